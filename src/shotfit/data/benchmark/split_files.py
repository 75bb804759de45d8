"""Split files in CoOp's form: an object with `train`, `val` and `test`, each a list of
[path relative to the image folder, label, class name]."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from shotfit.data.benchmark.facts import Benchmark
from shotfit.data.dataset import Dataset, Example
from shotfit.data.template import TEMPLATE
from shotfit.errors import DataError
from shotfit.system.files import write_atomically
from shotfit.system.parsing import parse_json

SPLITS = ("train", "val", "test")


Entry = tuple[str, int, str]
"""Path relative to the image folder, label, class name: an entry of a split file."""


def read_split(path: Path) -> dict[str, list[Entry]]:
    """The entries of a `split_zhou_*.json`, in file order: few-shot sampling depends on it.

    Raises:
        DataError: when the file is not such a split, naming the first entry that is wrong.
    """
    try:
        values = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(
            f"The split file {path} cannot be read ({error}). Download it again."
        ) from error
    if not isinstance(values, dict) or not all(isinstance(values.get(s), list) for s in SPLITS):
        raise DataError(f"The split file {path} must hold the lists train, val and test.")
    return {
        split: [
            _entry(value, f"{split}[{position}] of the split file {path}")
            for position, value in enumerate(values[split])
        ]
        for split in SPLITS
    }


def write_split(dataset: Dataset, path: Path, *, note: str = "") -> Path:
    """Write `dataset` as a split file in the published form; returns `path`.

    `note` says where the split comes from, under a key that readers of the form ignore. The file
    appears at once or not at all.
    """
    values: dict[str, Any] = {"note": note} if note else {}
    for split in SPLITS:
        examples: Sequence[Example] = getattr(dataset, split)
        values[split] = [
            [example.key, example.label, dataset.classnames[example.label]] for example in examples
        ]
    write_atomically(path, json.dumps(values, indent=1, ensure_ascii=False))
    return path


def to_dataset(
    benchmark: Benchmark, root: Path, entries: Mapping[str, Sequence[Entry]], origin: Path
) -> Dataset:
    """The dataset of split `entries`, class names as they are; `origin` is named in errors.

    Raises:
        DataError: when the labels are not 0 to K-1 with one name each.
    """
    classnames = classnames_of(entries, origin)
    return dataset_of(benchmark, root, classnames, entries, TEMPLATE)


def _entry(value: Any, where: str) -> Entry:
    if not isinstance(value, list) or len(value) != 3:
        raise DataError(f"{where} must be [path, label, class name], got {value!r}.")
    path, label, classname = value
    # Some tools write the label as text; CoOp's own reader converts it.
    if isinstance(label, str) and label.isdecimal():
        label = int(label)
    fits = isinstance(path, str) and isinstance(classname, str) and classname.strip()
    if not fits or not isinstance(label, int) or isinstance(label, bool) or label < 0:
        raise DataError(f"{where} must be [path, label, class name], got {value!r}.")
    # A split file is fetched from elsewhere: it must not reach out of the image folder.
    pure = PurePosixPath(path)
    if not path or pure.is_absolute() or ".." in pure.parts or "\\" in path:
        raise DataError(f"{where} must have a path relative to the image folder, got {path!r}.")
    return path, label, classname


def classnames_of(entries: Mapping[str, Sequence[Entry]], origin: Path) -> tuple[str, ...]:
    names: dict[int, str] = {}
    for split in SPLITS:
        for _, label, classname in entries[split]:
            if names.setdefault(label, classname) != classname:
                raise DataError(
                    f"{origin} gives label {label} two class names: "
                    f"{names[label]!r} and {classname!r}."
                )
    if not entries["train"]:
        raise DataError(f"{origin} has no training images.")
    # Not of all labels up to the last: a damaged file may have one of a hundred digits.
    absent = next(label for label in range(len(names) + 1) if label not in names)
    if absent < len(names):
        raise DataError(f"{origin} has labels up to {max(names)} but no image of label {absent}.")
    return tuple(names[label] for label in range(len(names)))


def dataset_of(
    benchmark: Benchmark,
    root: Path,
    classnames: tuple[str, ...],
    entries: Mapping[str, Sequence[Entry]],
    template: str,
) -> Dataset:
    images = benchmark.image_directory(root)

    def examples(split: str) -> tuple[Example, ...]:
        return tuple(Example(path, label, images / path) for path, label, _ in entries[split])

    return Dataset(
        name=benchmark.key,
        classnames=classnames,
        train=examples("train"),
        val=examples("val"),
        test=examples("test"),
        template=template,
    )
