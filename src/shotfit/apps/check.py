"""What `shotfit check` looks for: everything that would stop a run, and what would surprise."""

from collections import Counter
from pathlib import Path
from typing import Any

from shotfit.apps.check_images import image_findings, skipped_files
from shotfit.data.checks import missing_files
from shotfit.data.dataset import Dataset
from shotfit.data.inputs import locate
from shotfit.data.sources import load_dataset
from shotfit.evaluation.unknown_names import plain

# More lines than this help nobody.
MOST = 50
LONG = 40
"""Words of a name, of which CLIP's text tower reads some 70 with the prompt's."""
UNEVEN = 4
"""Times as many images of the largest class as of the smallest are worth a word."""


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
    notes = _notes(dataset)
    if decode and not missing:
        found, looks = image_findings(dataset)
        problems, notes = problems + found, notes + looks
    if source == "folder":
        notes += skipped_files(Path(options["path"]))
    return {
        "name": dataset.name,
        "classes": len(dataset.classnames),
        "images": {part: len(getattr(dataset, part)) for part in ("train", "val", "test")},
        "problems": problems,
        "notes": notes,
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


def _notes(dataset: Dataset) -> list[str]:
    notes = []
    doubled = [name for name, count in Counter(dataset.classnames).items() if count > 1]
    if doubled:
        notes.append(f"several classes are named {', '.join(map(repr, doubled))}")
    alike: dict[str, set[str]] = {}
    for name in dataset.classnames:
        alike.setdefault(plain(name), set()).add(name)
    for names in alike.values():
        if len(names) > 1:
            spelt = " and ".join(map(repr, sorted(names)))
            notes.append(f"{spelt} differ in spelling alone: are they one class?")
    long = [name for name in dataset.classnames if len(name.split()) > LONG]
    if long:
        notes.append(f"names of more than {LONG} words may be cut off: {long[0]!r}")
    if len(dataset.classnames) == 1:
        notes.append("there is a single class: every image will be answered with it")
    counts = Counter(example.label for example in dataset.train)
    most, fewest = (pick(counts.values(), default=0) for pick in (max, min))
    if most > UNEVEN * fewest:
        least = dataset.classnames[min(counts, key=lambda label: counts[label])]
        notes.append(
            f"classes are uneven: the smallest, {least!r}, has {fewest} of the largest's {most} "
            "images"
        )
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
