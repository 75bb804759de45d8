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
from shotfit.errors import DataError, Problem, refuse
from shotfit.system.parsing import parse_json

SPLITS = ("train", "val", "test")


def load(path: str, *, template: str = TEMPLATE) -> Dataset:
    """The images that a manifest lists.

    Raises:
        DataError: naming the file and the line, for a missing column, an unknown split, or a label
            with two names.
    """
    return survey(refuse, path, template=template)


def survey(problem: Problem, path: str, *, template: str = TEMPLATE) -> Dataset:
    """`load`, going on after each problem that it tells.

    Raises:
        DataError: when there is nothing to go on with.
    """
    file = Path(path).expanduser()
    rows = list(_rows(problem, file))
    if not rows:
        raise DataError(f"The manifest {file} lists no images.")
    labels = _label_order([row["label"] for _, row in rows])
    names: dict[str, str] = {}
    examples: dict[str, list[Example]] = {split: [] for split in SPLITS}
    for line, row in rows:
        name = row.get("name") or row["label"]
        if names.setdefault(row["label"], name) != name:
            problem(
                f"{file}, line {line}: label {row['label']!r} is named {name!r} here and "
                f"{names[row['label']]!r} before."
            )
        split = row.get("split") or "train"
        if split not in SPLITS:
            problem(f"{file}, line {line}: split {split!r} is none of {', '.join(SPLITS)}.")
            continue
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


def _rows(problem: Problem, file: Path) -> Iterable[tuple[int, dict[str, str]]]:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"Cannot read the manifest {file}: {error}") from error
    lines = text.splitlines()
    read = _json_lines(problem, file, lines) if file.suffix in (".jsonl", ".json") else None
    for number, row in _table(file, lines) if read is None else read:
        missing = [column for column in ("path", "label") if not row.get(column)]
        if missing:
            columns = ", ".join(str(column) for column in row) or "none"
            problem(
                f"{file}, line {number}: no {' and no '.join(missing)} (columns found: {columns})."
            )
        else:
            yield number, row


def _table(file: Path, lines: list[str]) -> Iterable[tuple[int, dict[str, str]]]:
    reader = csv.DictReader(lines)
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:  # such as a field of more than 131,072 characters
        raise DataError(f"{file}, line {reader.line_num}: not CSV ({error}).") from error


def _json_lines(
    problem: Problem, file: Path, lines: list[str]
) -> Iterable[tuple[int, dict[str, str]]]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = parse_json(line)
        except ValueError as error:
            problem(f"{file}, line {number}: not JSON ({error}).")
            continue
        if isinstance(row, dict):
            yield number, {key: str(value) for key, value in row.items() if value is not None}
        else:
            problem(f"{file}, line {number}: must be an object.")


def _label_order(labels: list[str]) -> dict[str, int]:
    unique = list(dict.fromkeys(labels))
    # Of digits that int reads: "²" is one that it does not, nor does it read thousands in a row.
    if all(label.isdecimal() and len(label) < 100 for label in unique):
        unique.sort(key=int)
    return {label: index for index, label in enumerate(unique)}
