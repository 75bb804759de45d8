"""The images that a user means by a file, a folder or a pattern, found as they are asked for."""

import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from shotfit.data.addresses import is_address, no_image_file
from shotfit.errors import DataError

SUFFIXES = (
    *(".avif", ".bmp", ".gif", ".heic", ".heif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff"),
    ".webp",
)

CAMERAS = (".heic", ".heif", ".jpeg", ".jpg")
"""What cameras write; drawings are rarely saved so."""


def is_image(name: str) -> bool:
    """Whether a file is an image by the ending of its name. Hidden ones, such as the "._photo.jpg"
    that macOS writes beside every file on a foreign disk, are not."""
    return not name.startswith(".") and os.path.splitext(name)[1].lower() in SUFFIXES


def is_photograph(name: str) -> bool:
    """Whether a file is a photograph, by the format that cameras write."""
    return os.path.splitext(name)[1].lower() in CAMERAS


def list_images(where: str | Path) -> list[str] | None:
    """The images in a folder (and below) or matching a glob pattern; None for a plain file.

    Raises:
        DataError: when there are none.
    """
    return None if _kind(where) == "file" else list(find_images([where]))


def find_images(places: Sequence[str | Path]) -> Iterator[str]:
    """Files as they are, and of folders and glob patterns the images, in order of their names.

    One folder is read at a time: beside the names of the largest one, nothing grows. Linked folders
    are followed, but not in circles. An image whose link leads nowhere is listed too, so that it is
    reported as missing.

    Raises:
        DataError: for a folder or pattern without images, or a folder that cannot be read, when it
            is reached.
    """
    for where in places:
        kind, path = _kind(where), Path(where).expanduser()
        if kind == "file":
            yield str(where)
            continue
        found = False
        for file in _below(path) if kind == "folder" else _matching(path):
            found = True
            yield file
        if not found:
            raise DataError(f"No images in {where}.")


def check_named_files(places: Sequence[str | Path]) -> None:
    """Finds a mistyped path before any work is done for those that come before it.

    Raises:
        DataError: naming the first one that is neither a pattern nor there.
    """
    for where in places:
        if _kind(where) == "file" and not Path(where).expanduser().exists():
            raise DataError(no_image_file(where))


def _kind(where: str | Path) -> str:
    if is_address(where):
        return "file"
    path = Path(where).expanduser()
    if path.is_dir():
        return "folder"
    return "pattern" if glob.has_magic(str(where)) and not path.exists() else "file"


def _below(folder: Path | str, above: frozenset[tuple[int, int]] = frozenset()) -> Iterator[str]:
    # Names alone: the entries themselves take three times the memory.
    folders, images = set(), []
    try:
        facts = os.stat(folder)
        with os.scandir(folder) as entries:
            for entry in entries:
                if _is_folder(entry):
                    if not entry.name.startswith("."):
                        folders.add(entry.name)
                elif is_image(entry.name) and (
                    entry.is_file(follow_symlinks=False) or _file_or_nothing(entry.path)
                ):
                    images.append(entry.name)
    except OSError as error:
        raise DataError(f"Cannot read the folder {folder}: {error.strerror}.") from error
    # By what it is, not by its name: a link to a folder that it lies in ends here.
    identity = facts.st_dev, facts.st_ino
    if identity in above:
        return
    for name in sorted([*folders, *images]):
        path = os.path.join(folder, name)
        if name in folders:
            yield from _below(path, above | {identity})
        else:
            yield path


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _file_or_nothing(link: str) -> bool:
    return os.path.isfile(link) or not os.path.exists(link)


def _matching(pattern: Path) -> Iterator[str]:
    # Patterns are matched folder by folder in no order at all, so this one is a list.
    for file in sorted(glob.glob(str(pattern), recursive=True)):
        if os.path.isfile(file) or (is_image(file) and _file_or_nothing(file)):
            yield file
