"""What `shotfit check` says about the images themselves: copies, blanks, tiny and turned ones."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from shotfit.data.dataset import Dataset, Example
from shotfit.data.image_files import SUFFIXES, is_image
from shotfit.data.image_looks import ImageLook, look_at, near_duplicates
from shotfit.errors import DataError

MOST = 50
NAMED = 3
COMPARED = 20_000
"""Images beyond which near duplicates are not looked for: every pair is compared."""
KNOWN = (".psd", ".raw", ".cr2", ".nef", ".dng", ".svg", ".jxl", ".jp2")
"""Endings of pictures that are not read."""

Seen = tuple[str, Example, ImageLook]
"""The part of the dataset, the example, and its look."""


def image_findings(dataset: Dataset) -> tuple[list[str], list[str]]:
    """Problems of images that cannot be read, and notes about the others."""
    problems: list[str] = []
    seen: list[Seen] = []
    for part in ("train", "val", "test"):
        for example in getattr(dataset, part):
            try:
                seen.append((part, example, look_at(example.image)))
            except DataError as error:
                problems.append(str(error))
    if len(problems) > MOST:
        problems = [*problems[:MOST], f"{len(problems) - MOST:,} more images cannot be read"]
    return problems, [*_single_notes(seen), *_copies(dataset, seen)]


def skipped_files(folder: Path) -> list[str]:
    """What lies in a folder and is not read, counted by the ending of its name."""
    names = [path.name for path in folder.rglob("*") if path.is_file()]
    endings = Counter(
        Path(name).suffix.lower()
        for name in names
        if not is_image(name) and not name.startswith(".") and Path(name).suffix.lower() in KNOWN
    )
    return [
        f"{count} {ending} file{'s are' if count > 1 else ' is'} not read: convert to "
        f"{SUFFIXES[3][1:]} or png"
        for ending, count in sorted(endings.items())
    ]


def _single_notes(seen: Sequence[Seen]) -> list[str]:
    kinds = (
        ("nearly one colour", [s for s in seen if s[2].blank]),
        ("tiny", [s for s in seen if s[2].tiny]),
        ("turned upright by their EXIF, as cameras mean it", [s for s in seen if s[2].turned]),
    )
    return [
        f"{len(found)} image{'s are' if len(found) > 1 else ' is'} {words}: {_named(found)}"
        for words, found in kinds
        if found
    ]


def _copies(dataset: Dataset, seen: Sequence[Seen]) -> list[str]:
    """Pairs of images that are or look the same, by what that does to a run."""
    if len(seen) > COMPARED:
        return [f"more than {COMPARED:,} images: no copies were looked for"]
    kinds: dict[str, list[tuple[Seen, Seen]]] = {}
    for one, other in near_duplicates([look for _, _, look in seen]):
        pair = seen[one], seen[other]
        same = "are the same" if pair[0][2].exact == pair[1][2].exact else "look the same"
        kinds.setdefault(f"{same} {_relation(pair)}", []).append(pair)
    return [
        f"{len(pairs)} pair{'s' if len(pairs) > 1 else ''} of images {words}: "
        + "; ".join(_pair(dataset, pair) for pair in pairs[:NAMED])
        + (" …" if len(pairs) > NAMED else "")
        for words, pairs in sorted(kinds.items())
    ]


def _relation(pair: tuple[Seen, Seen]) -> str:
    (part, one, _), (other_part, other, _) = pair
    if (part == "test") != (other_part == "test"):
        return "in training and in test, which flatters the accuracy"
    if one.label != other.label:
        return "in different classes, so that one of them is wrong"
    return "in one class, which learns nothing from the second"


def _pair(dataset: Dataset, pair: tuple[Seen, Seen]) -> str:
    names = [f"{example.key} ({dataset.classnames[example.label]})" for _, example, _ in pair]
    return " and ".join(names)


def _named(found: Sequence[Seen]) -> str:
    names = ", ".join(example.key for _, example, _ in found[:NAMED])
    return names + (" …" if len(found) > NAMED else "")
