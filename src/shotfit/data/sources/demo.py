"""The embedded suite: eleven small tasks drawn in styles that the embedded model never saw.

One archive per task holds PNG images and a `manifest.json` with class names, licence, style and
split of each image.
"""

import json
import zipfile
from functools import cache
from pathlib import Path

from shotfit.data.dataset import Dataset, Example
from shotfit.data.template import TEMPLATE
from shotfit.errors import DataError, unknown_name

SUITE = Path(__file__).parent.parent.parent / "assets" / "suite"


def list_tasks() -> list[str]:
    """The names of the embedded tasks, sorted."""
    return sorted(path.stem for path in SUITE.glob("*.zip"))


@cache
def load(name: str, *, template: str = TEMPLATE) -> Dataset:
    """The embedded task called `name`.

    Raises:
        UsageError: for an unknown name.
        DataError: when the package's file is damaged.
    """
    if name not in list_tasks():
        raise unknown_name("embedded task", name, list_tasks())
    path = SUITE / f"{name}.zip"
    try:
        with zipfile.ZipFile(path) as archive:
            manifest = json.loads(archive.read("manifest.json"))
            images = {entry["file"]: archive.read(entry["file"]) for entry in manifest["images"]}
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise DataError(f"The embedded task {path} cannot be read: {error}") from error
    parts: dict[str, list[Example]] = {"train": [], "test": []}
    for entry in manifest["images"]:
        example = Example(entry["file"], entry["label"], images[entry["file"]])
        parts[entry["split"]].append(example)
    return Dataset(
        name=name,
        classnames=tuple(manifest["classnames"]),
        train=tuple(parts["train"]),
        test=tuple(parts["test"]),
        template=template,
    )
