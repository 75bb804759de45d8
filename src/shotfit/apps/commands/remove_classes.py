"""shotfit remove-classes"""

from pathlib import Path
from typing import Annotated

import typer

from shotfit.apps import options

EXAMPLES = (
    "shotfit remove-classes pets zebra",
    'shotfit remove-classes pets "polar bear" --out pets-only',
)


def remove_classes(
    model: Annotated[Path, typer.Argument(help="A saved classifier; it is changed in place.")],
    names: Annotated[list[str], typer.Argument(help="Names of the classes to leave out.")],
    out: Annotated[Path | None, typer.Option(help="Save here instead.")] = None,
    backbone: options.SavedBackbone = None,
) -> None:
    """Make a saved classifier stop answering with classes; add-classes brings them back."""
    from shotfit.apps.pretrained import changed_alone, confirmed
    from shotfit.classifier import FewShotClassifier

    with changed_alone(model):
        classifier = FewShotClassifier.from_pretrained(
            model, backbone=confirmed(str(model), backbone)
        )
        classifier.remove_classes(names)
        folder = classifier.save_pretrained(out or model)
    print(f"{folder} now has {len(classifier.classes)} classes.")
