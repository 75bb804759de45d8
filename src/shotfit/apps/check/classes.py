"""What is said about the classes by their names and numbers of images alone."""

import re
from collections import Counter
from collections.abc import Sequence

from shotfit.apps.check.diagnosis import Diagnosis, listed
from shotfit.data.checks import without_images
from shotfit.data.dataset import Dataset
from shotfit.data.names import check_names
from shotfit.data.task import fewer_than_shots
from shotfit.errors import DataError
from shotfit.evaluation.unknown_names import plain

UNEVEN = 4
"""Times as many images of the largest class as of the smallest are worth a word."""
CODES = 5
_CODE = re.compile(
    r"\d+|[a-z]{1,2}[ _-]?\d{3,}|(class|label|category|cat|id|type|group|cluster|item)[ _-]?\d+"
    r"|(?=[a-f]*\d)[0-9a-f]{8,}|[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}",
    re.IGNORECASE,
)
"""Numbers, a letter or two before a number (n01440764), "class 3", hexadecimal digits, UUIDs."""


def class_errors(
    dataset: Dataset, shots: int | None, *, empty_told: bool = False
) -> list[Diagnosis]:
    """Names that no prompt can hold, and classes with fewer images than are asked for; of classes
    without any, it may have been told."""
    counts = Counter(example.label for example in dataset.train)
    found = []
    for label, name in enumerate(dataset.classnames):
        try:
            check_names([name])
        except DataError as error:
            text = str(error).replace("class number 0", f"class number {label}")
            found.append(Diagnosis("name", text, "error"))
        if counts[label] < (shots or 1) and (counts[label] or not empty_told):
            text = (
                fewer_than_shots(dataset, label, counts[label], shots)
                if shots and counts[label]
                else without_images(name)
            )
            found.append(Diagnosis("shots", text, "error"))
    return found


def class_warnings(dataset: Dataset) -> list[Diagnosis]:
    """What would surprise: names that mean nothing or the same, uneven and single classes."""
    return [*_names(dataset.classnames), *_numbers(dataset)]


def looks_like_code(name: str) -> bool:
    """Whether a name is an identifier rather than words."""
    return _CODE.fullmatch(name.strip()) is not None


def _names(names: Sequence[str]) -> list[Diagnosis]:
    found = []
    doubled = [name for name, count in Counter(names).items() if count > 1]
    if doubled:
        found.append(Diagnosis("doubled", f"several classes are named {listed_names(doubled)}"))
    alike: dict[str, set[str]] = {}
    for name in names:
        alike.setdefault(plain(name), set()).add(name)
    for spellings in alike.values():
        if len(spellings) > 1:
            spelt = " and ".join(map(repr, sorted(spellings)))
            text = f"{spelt} differ in spelling alone: are they one class?"
            found.append(Diagnosis("spelling", text))
    codes = [name for name in names if looks_like_code(name)]
    if codes:
        text = f"these names look like codes, which mean nothing to the model: {listed(codes, 5)}"
        found.append(Diagnosis("codes", text))
    return found


def _numbers(dataset: Dataset) -> list[Diagnosis]:
    found = []
    if len(dataset.classnames) == 1:
        text = "there is a single class: every image will be answered with it"
        found.append(Diagnosis("single class", text))
    counts = Counter(example.label for example in dataset.train)
    most, fewest = (pick(counts.values(), default=0) for pick in (max, min))
    if most > UNEVEN * fewest:
        least = dataset.classnames[min(counts, key=lambda label: counts[label])]
        text = (
            f"classes are uneven: the smallest, {least!r}, has {fewest} of the largest's {most} "
            "images"
        )
        found.append(Diagnosis("uneven", text))
    keys = Counter(example.key for example in dataset.train + dataset.val + dataset.test)
    twice = [key for key, count in keys.items() if count > 1]
    if twice:
        text = f"{len(twice)} images are listed more than once, such as {twice[0]}"
        found.append(Diagnosis("listed twice", text))
    if not dataset.test:
        text = "there are no test images: only what the fit leaves out will say how good it is"
        found.append(Diagnosis("no test images", text))
    return found


def listed_names(names: Sequence[str], most: int = 5) -> str:
    """The first of some class names, in quotes."""
    return listed([repr(name) for name in names], most)
