"""shotfit add-classes"""

from pathlib import Path
from typing import Annotated

import typer

from shotfit.apps import options


def add_classes(
    model: Annotated[Path, typer.Argument(help="A saved classifier; it is changed in place.")],
    names: Annotated[list[str], typer.Argument(help="Names of the new classes.")],
    out: Annotated[Path | None, typer.Option(help="Save here instead.")] = None,
    backbone: options.SavedBackbone = None,
) -> None:
    """Teach a saved classifier new classes by their names alone."""
    from shotfit.apps.pretrained import confirmed
    from shotfit.classifier import FewShotClassifier

    classifier = FewShotClassifier.from_pretrained(model, backbone=confirmed(str(model), backbone))
    classifier.add_classes(names)
    folder = classifier.save_pretrained(out or model)
    print(f"{folder} now has {len(classifier.classes)} classes.")
