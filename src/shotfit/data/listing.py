"""The images that a user means by a file, a folder or a pattern, found as they are asked for."""

import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from shotfit.data.images import SUFFIXES
from shotfit.errors import DataError


def list_images(where: str | Path) -> list[str] | None:
    """The images in a folder (and below) or matching a glob pattern; None for a plain file.

    Raises:
        DataError: when there are none.
    """
    return None if _kind(where) == "file" else list(find_images([where]))


def find_images(places: Sequence[str | Path]) -> Iterator[str]:
    """Files as they are, and of folders and glob patterns the images, in order of their names.

    One folder is read at a time: beside the names of the largest one, nothing grows.

    Raises:
        DataError: for a folder or pattern without images, when it is reached.
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


def _kind(where: str | Path) -> str:
    path = Path(where).expanduser()
    if path.is_dir():
        return "folder"
    return "pattern" if glob.has_magic(str(where)) and not path.exists() else "file"


def _below(folder: Path | str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        ordered = sorted(entries, key=lambda entry: entry.name)
    for entry in ordered:
        if entry.is_dir(follow_symlinks=False):
            yield from _below(entry.path)
        elif os.path.splitext(entry.name)[1].lower() in SUFFIXES and entry.is_file():
            yield entry.path


def _matching(pattern: Path) -> Iterator[str]:
    # Patterns are matched folder by folder in no order at all, so this one is a list.
    return (
        file for file in sorted(glob.glob(str(pattern), recursive=True)) if os.path.isfile(file)
    )
