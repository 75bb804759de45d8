"""The embedded suite: eleven small tasks drawn in styles that the embedded model never saw.

One archive per task holds PNG images and a `manifest.json` with class names, licence, style and
split of each image. `task@shift` is a task whose every image was changed (`data/shifts.py`).
"""

import dataclasses
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


def is_task(name: str) -> bool:
    """Whether `name` means an embedded task, with or without a shift."""
    task, mark, shift = name.partition("@")
    if task not in list_tasks():
        return False
    from shotfit.data.shifts import SHIFTS

    return not mark or shift in SHIFTS


@cache
def load(name: str, *, template: str = TEMPLATE) -> Dataset:
    """The embedded task called `name`, `task` or `task@shift`.

    Raises:
        UsageError: for an unknown task or shift.
        DataError: when the package's file is damaged.
    """
    task, mark, shift = name.partition("@")
    if task not in list_tasks():
        raise unknown_name("embedded task", task, list_tasks())
    if mark:
        return _shifted(load(task, template=template), shift)
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


def _shifted(dataset: Dataset, shift: str) -> Dataset:
    from shotfit.data.images import open_image
    from shotfit.data.shifts import shifted

    def changed(examples: tuple[Example, ...]) -> tuple[Example, ...]:
        return tuple(
            dataclasses.replace(each, image=shifted(open_image(each.image), shift, each.key))
            for each in examples
        )

    return dataclasses.replace(
        dataset,
        name=f"{dataset.name}@{shift}",
        train=changed(dataset.train),
        test=changed(dataset.test),
    )
