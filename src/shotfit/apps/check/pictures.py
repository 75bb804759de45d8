"""What is said about the images themselves: copies, blanks, tiny and turned ones, skipped files."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from shotfit.apps.check.diagnosis import NAMED, Diagnosis, ShownImage, errors, listed
from shotfit.data.dataset import Dataset, Example
from shotfit.data.image_files import SUFFIXES, is_image
from shotfit.data.image_looks import ImageLook, look_at, near_duplicates
from shotfit.errors import DataError
from shotfit.measure import Watch

COMPARED = 20_000
"""Images beyond which near duplicates are not looked for: every pair is compared."""
PICTURES = (".cr2", ".dng", ".eps", ".jp2", ".jxl", ".nef", ".psd", ".raw", ".svg")
"""Endings of pictures that are not read."""
OURS = ("classnames.json", "desktop.ini", "thumbs.db")
"""Files that belong beside images."""

Seen = tuple[str, Example, ImageLook]
"""The part of the dataset, the example, and its look."""


def image_diagnoses(
    dataset: Dataset, watch: Watch | None = None
) -> tuple[list[Diagnosis], set[str]]:
    """What is found by opening every image, and the keys of those that cannot be read."""
    unreadable: dict[str, str] = {}
    seen: list[Seen] = []
    parts = [(part, e) for part in ("train", "val", "test") for e in getattr(dataset, part)]
    for number, (part, example) in enumerate(parts, 1):
        try:
            seen.append((part, example, look_at(example.image)))
        except DataError as error:
            unreadable[example.key] = str(error)
        if watch is not None:
            watch("images opened", number, len(parts))
    found = errors("unreadable", list(unreadable.values()), "images cannot be read")
    return [*found, *_single(dataset, seen), *_copies(dataset, seen)], set(unreadable)


def skipped_files(folder: Path) -> list[Diagnosis]:
    """What lies in a folder and is not read, counted by the ending of its name."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    endings = Counter(
        path.suffix.lower()
        for path in paths
        if not is_image(path.name)
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
        and path.name.lower() not in OURS
    )
    found = []
    for ending, count in sorted(endings.items()):
        files = f"{count} {ending or 'nameless'} file{'s are' if count > 1 else ' is'}"
        picture = ending in PICTURES
        advice = f" not read: convert to {SUFFIXES[3][1:]} or png" if picture else " no image"
        found.append(Diagnosis("skipped", f"{files}{advice}"))
    return found


def _single(dataset: Dataset, seen: Sequence[Seen]) -> list[Diagnosis]:
    kinds: tuple[tuple[str, str, Callable[[ImageLook], bool]], ...] = (
        ("blank", "nearly one colour", lambda look: look.blank),
        ("tiny", "tiny", lambda look: look.tiny),
        ("turned", "turned upright by their EXIF, as cameras mean it", lambda look: look.turned),
    )
    diagnoses = []
    for kind, words, holds in kinds:
        found = [ShownImage.of(dataset, example) for _, example, look in seen if holds(look)]
        if found:
            count = f"{len(found)} image{'s are' if len(found) > 1 else ' is'}"
            names = listed([one.key for one in found])
            groups = tuple((one,) for one in found)
            diagnoses.append(Diagnosis(kind, f"{count} {words}: {names}", groups=groups))
    return diagnoses


def _copies(dataset: Dataset, seen: Sequence[Seen]) -> list[Diagnosis]:
    """Pairs of images that are or look the same, by what that does to a run."""
    found = _nothing_left(seen)
    if len(seen) > COMPARED:
        text = f"more than {COMPARED:,} images: no copies were looked for"
        return [*found, Diagnosis("copies", text)]
    kinds: dict[str, list[tuple[Seen, Seen]]] = {}
    for one, other in near_duplicates([look for _, _, look in seen]):
        pair = seen[one], seen[other]
        same = "are the same" if pair[0][2].exact == pair[1][2].exact else "look the same"
        kinds.setdefault(f"{same} {_relation(pair)}", []).append(pair)
    return [*found, *(_pairs(dataset, words, pairs) for words, pairs in sorted(kinds.items()))]


def _nothing_left(seen: Sequence[Seen]) -> list[Diagnosis]:
    """Images that were trained on measure nothing, and are left out."""
    test = {look.exact for part, _, look in seen if part == "test"}
    if not test or not test <= {look.exact for part, _, look in seen if part != "test"}:
        return []
    text = (
        "every test image is a training image too: a fit on all of them is cross-validated, or "
        "not measured where that cannot be"
    )
    return [Diagnosis("copies", text)]


def _relation(pair: tuple[Seen, Seen]) -> str:
    (part, one, _), (other_part, other, _) = pair
    if (part == "test") != (other_part == "test"):
        return "in training and in test, which flatters the accuracy"
    if one.label != other.label:
        return "in different classes: one label is wrong, or nothing tells them apart"
    return "in one class, which learns nothing from the second"


def _pairs(dataset: Dataset, words: str, pairs: Sequence[tuple[Seen, Seen]]) -> Diagnosis:
    groups = [
        (ShownImage.of(dataset, one, part), ShownImage.of(dataset, other, other_part))
        for (part, one, _), (other_part, other, _) in pairs
    ]
    told = [" and ".join(f"{one.key} ({one.name})" for one in group) for group in groups[:NAMED]]
    count = f"{len(pairs)} pair{'s' if len(pairs) > 1 else ''} of images"
    more = " …" if len(pairs) > NAMED else ""
    return Diagnosis("copies", f"{count} {words}: {'; '.join(told)}{more}", groups=tuple(groups))
