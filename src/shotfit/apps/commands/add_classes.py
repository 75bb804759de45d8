"""shotfit add-classes"""

from pathlib import Path
from typing import Annotated

import typer

from shotfit.apps import options
from shotfit.errors import UsageError

EXAMPLES = (
    'shotfit add-classes pets zebra "polar bear"',
    "shotfit add-classes pets zebra --out pets-and-zebras",
)


def add_classes(
    model: Annotated[Path, typer.Argument(help="A saved classifier; it is changed in place.")],
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME[=FOLDER]...",
            help="Names of the new classes, each with a folder (or pattern) of a few images of it "
            "where there are some.",
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="Save here instead.")] = None,
    backbone: options.SavedBackbone = None,
) -> None:
    """Teach a saved classifier new classes by their names, or by names and a few images.

    Nothing is trained.
    """
    from shotfit.apps.pretrained import changed_alone, confirmed
    from shotfit.classifier import FewShotClassifier

    with changed_alone(model):
        classifier = FewShotClassifier.from_pretrained(
            model, backbone=confirmed(str(model), backbone)
        )
        alone = [name for name in names if "=" not in name]
        shown = dict(_name_and_folder(name) for name in names if "=" in name)
        if len(alone) + len(shown) < len(names):
            raise UsageError("Give all images of a class in one folder or pattern.")
        if shown:
            classifier.add_classes(shown)
        if alone:
            classifier.add_classes(alone)
        folder = classifier.save_pretrained(out or model)
    print(f"{folder} now has {len(classifier.classes)} classes.")


def _name_and_folder(text: str) -> tuple[str, str]:
    name, _, folder = text.partition("=")
    if not name.strip() or not folder:
        raise UsageError(f"A class with images is NAME=FOLDER, got {text!r}.")
    return name.strip(), folder
