"""A classifier that was shown no image yet: names alone, zero-shot."""

from collections.abc import Sequence

from shotfit.backbone import Backbone
from shotfit.classifier import FewShotClassifier
from shotfit.data.names import check_names
from shotfit.methods import get_method


def untrained(
    names: Sequence[str],
    backbone: str = "iconclip",
    *,
    revision: str | None = None,
    device: str | None = None,
) -> FewShotClassifier:
    """A pretrained model that answers with these names.

    Raises:
        DataError: for an empty name, one that is too long, or a model that cannot be found.
    """
    check_names(names)
    classifier = FewShotClassifier(backbone, "zero_shot", revision=revision, device=device)
    model = Backbone.from_pretrained(backbone, revision).to(classifier.device)
    return classifier.take(get_method("zero_shot")(model), added=tuple(names))
