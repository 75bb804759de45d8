"""A manifest of labelled images: CSV with a header, or JSON lines.

Columns: `path` (relative to the manifest), `label`, and optionally `name` (the class name, when the
label is a number or a code) and `split` (train, val or test; train when absent). Classes are in the
order of whole-number labels, otherwise of first appearance.
"""

import csv
from collections.abc import Iterable
from pathlib import Path

from shotfit.data.dataset import Dataset, Example
from shotfit.data.template import TEMPLATE
from shotfit.errors import DataError
from shotfit.system.parsing import parse_json

SPLITS = ("train", "val", "test")


def load(path: str, *, template: str = TEMPLATE) -> Dataset:
    """The images that a manifest lists.

    Raises:
        DataError: naming the file and the line, for a missing column, an unknown split, or a label
            with two names.
    """
    file = Path(path).expanduser()
    rows = list(_rows(file))
    if not rows:
        raise DataError(f"The manifest {file} lists no images.")
    labels = _label_order([row["label"] for _, row in rows])
    names: dict[str, str] = {}
    examples: dict[str, list[Example]] = {split: [] for split in SPLITS}
    for line, row in rows:
        name = row.get("name") or row["label"]
        if names.setdefault(row["label"], name) != name:
            raise DataError(
                f"{file}, line {line}: label {row['label']!r} is named {name!r} here and "
                f"{names[row['label']]!r} before."
            )
        split = row.get("split") or "train"
        if split not in SPLITS:
            raise DataError(f"{file}, line {line}: split {split!r} is none of {', '.join(SPLITS)}.")
        image = file.parent / row["path"]
        examples[split].append(Example(row["path"], labels[row["label"]], image))
    if not examples["train"]:
        raise DataError(f"The manifest {file} lists no training images.")
    return Dataset(
        name=file.stem,
        classnames=tuple(names[label].replace("_", " ") for label in labels),
        train=tuple(examples["train"]),
        val=tuple(examples["val"]),
        test=tuple(examples["test"]),
        template=template,
    )


def _rows(file: Path) -> Iterable[tuple[int, dict[str, str]]]:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"Cannot read the manifest {file}: {error}") from error
    lines = text.splitlines()
    if file.suffix in (".jsonl", ".json"):
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield number, _checked(file, number, _parse(file, number, line))
        return
    reader = csv.DictReader(lines)
    try:
        for row in reader:
            yield reader.line_num, _checked(file, reader.line_num, row)
    except csv.Error as error:  # such as a field of more than 131,072 characters
        raise DataError(f"{file}, line {reader.line_num}: not CSV ({error}).") from error


def _parse(file: Path, number: int, line: str) -> dict:
    try:
        row = parse_json(line)
    except ValueError as error:
        raise DataError(f"{file}, line {number}: not JSON ({error}).") from error
    if not isinstance(row, dict):
        raise DataError(f"{file}, line {number}: must be an object.")
    return {key: str(value) for key, value in row.items() if value is not None}


def _checked(file: Path, number: int, row: dict) -> dict[str, str]:
    missing = [column for column in ("path", "label") if not row.get(column)]
    if missing:
        columns = ", ".join(str(column) for column in row) or "none"
        raise DataError(
            f"{file}, line {number}: no {' and no '.join(missing)} (columns found: {columns})."
        )
    return row


def _label_order(labels: list[str]) -> dict[str, int]:
    unique = list(dict.fromkeys(labels))
    # Of digits that int reads: "²" is one that it does not, nor does it read thousands in a row.
    if all(label.isdecimal() and len(label) < 100 for label in unique):
        unique.sort(key=int)
    return {label: index for index, label in enumerate(unique)}
