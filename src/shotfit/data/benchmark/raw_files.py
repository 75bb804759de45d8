"""The downloads as they are: lines of a text file, folders of classes, image files of a folder."""

import os
from pathlib import Path

from shotfit.data.image_files import is_image
from shotfit.errors import DataError


def read_lines(path: Path) -> list[str]:
    """The lines of a text file that are not blank, without surrounding white space.

    Raises:
        DataError: when the file is missing, cannot be read, or holds nothing.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise DataError(
            f"{path} is missing. It belongs to the dataset's download; "
            "`shotfit datasets` shows the layout."
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise DataError(f"{path} is empty. Download it again.")
    return lines


def list_folders(directory: Path) -> list[str]:
    """The names of the sub-folders of `directory`, hidden ones left out, sorted by code point.

    Raises:
        DataError: when `directory` is missing or has no sub-folder.
    """
    if not directory.is_dir():
        raise DataError(f"The folder {directory} is missing; `shotfit datasets` shows the layout.")
    with os.scandir(directory) as entries:
        names = [entry.name for entry in entries if entry.is_dir()]
    names = sorted(name for name in names if not name.startswith("."))
    if not names:
        raise DataError(f"{directory} holds no class folders: one folder per class is expected.")
    return names


def list_images(directory: Path) -> list[str]:
    """The names of the image files in `directory`, hidden ones left out, sorted by code point."""
    return sorted(
        name for name in os.listdir(directory) if not name.startswith(".") and is_image(name)
    )
