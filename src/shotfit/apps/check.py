"""What `shotfit check` looks for: everything that would stop a run, and what would surprise."""

from collections import Counter
from typing import Any

from shotfit.data.checks import missing_files
from shotfit.data.dataset import Dataset
from shotfit.data.images import open_image
from shotfit.data.inputs import locate
from shotfit.data.sources import load_dataset
from shotfit.errors import DataError

# More lines than this help nobody.
MOST = 50


def check_data(data: str, shots: int | None, root: str | None, *, decode: bool) -> dict[str, Any]:
    """Counts, `problems` that would stop a run, and `notes` that would not.

    Raises:
        UsageError, DataError: when the data cannot be found or read at all.
    """
    source, options = locate(data)
    dataset = load_dataset(source, root=root, **options)
    problems = _class_problems(dataset, shots)
    missing = missing_files(dataset)
    problems += [f"{path} is missing" for path in missing[:MOST]]
    if len(missing) > MOST:
        problems.append(f"{len(missing) - MOST:,} more files are missing")
    elif decode and not missing:
        problems += _image_problems(dataset)
    return {
        "name": dataset.name,
        "classes": len(dataset.classnames),
        "images": {part: len(getattr(dataset, part)) for part in ("train", "val", "test")},
        "problems": problems,
        "notes": _notes(dataset),
    }


def _class_problems(dataset: Dataset, shots: int | None) -> list[str]:
    counts = Counter(example.label for example in dataset.train)
    problems = []
    for label, name in enumerate(dataset.classnames):
        if not name.strip():
            problems.append(f"the name of class number {label} is empty")
        if counts[label] < (shots or 1):
            wanted = f", fewer than {shots} shots" if shots else ""
            problems.append(f"class {name!r} has {counts[label]} training images{wanted}")
    return problems


def _image_problems(dataset: Dataset) -> list[str]:
    problems = []
    for part in (dataset.train, dataset.val, dataset.test):
        for example in part:
            try:
                open_image(example.image)
            except DataError as error:
                problems.append(str(error))
                if len(problems) > MOST:
                    return problems
    return problems


def _notes(dataset: Dataset) -> list[str]:
    notes = []
    doubled = [name for name, count in Counter(dataset.classnames).items() if count > 1]
    if doubled:
        notes.append(f"several classes are named {', '.join(map(repr, doubled))}")
    codes = [n for n in dataset.classnames if any(c.isdigit() for c in n) and " " not in n]
    if codes:
        notes.append(
            f"these names look like codes, which mean nothing to the model: {', '.join(codes[:5])}"
        )
    keys = Counter(example.key for example in dataset.train + dataset.val + dataset.test)
    twice = [key for key, count in keys.items() if count > 1]
    if twice:
        notes.append(f"{len(twice)} images are listed more than once, such as {twice[0]}")
    if not dataset.test:
        notes.append("there are no test images, so nothing can be measured")
    return notes
