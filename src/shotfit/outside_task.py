"""What a fit has done to names that it has nothing to do with."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from shotfit.backbone import Backbone
from shotfit.data.images import ImageSource
from shotfit.evaluation.unknown_names import plain
from shotfit.evaluation.vocabulary import VOCABULARY
from shotfit.methods import get_method

if TYPE_CHECKING:
    from shotfit.classifier import FewShotClassifier


@dataclass(frozen=True)
class Drift:
    """Words that are no class: the mean cosine of their embeddings with those before training, the
    word that moved most and its cosine; and of `images`, how many would be answered with one of
    these words, were they all classes."""

    words: int
    cosine: float
    most_moved: str
    least_cosine: float
    images: int
    taken: int


@torch.no_grad()
def drift(classifier: "FewShotClassifier", images: Sequence[ImageSource]) -> Drift | None:
    """By the words of `VOCABULARY`; None where a method is bound to its classes.

    Raises:
        DataError: for an image that cannot be read.
    """
    method = classifier.method
    if not method.open_vocabulary:
        return None
    own = {plain(name) for name in classifier.classes}
    words = [word for word in VOCABULARY if plain(word) not in own]
    backbone = Backbone.from_pretrained(method.backbone.name, classifier.experiment.revision)
    before = get_method("zero_shot")(backbone.to(method.backbone.device), None, method.words)
    was = before.encode_classes(words).weight.float()
    cosines = (was * method.encode_classes(words).weight.float()).sum(dim=-1)
    least = int(cosines.argmin())
    answers = classifier.predict(list(images), [*classifier.classes, *words]) if images else []
    chosen = set(words)
    return Drift(
        words=len(words),
        cosine=cosines.mean().item(),
        most_moved=words[least],
        least_cosine=cosines[least].item(),
        images=len(answers),
        taken=sum(answer in chosen for answer in answers),
    )
