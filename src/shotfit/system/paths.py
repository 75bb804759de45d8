"""Names that should be those of files and folders: inside a folder, or typed by a person."""

import difflib
import os
from pathlib import Path

from shotfit.errors import DataError


def inside(folder: Path, name: str) -> Path | None:
    """`folder / name` where that, with every link followed, stays inside the folder; else None."""
    path = folder / name
    return path if _real(path).is_relative_to(_real(folder)) else None


def file_inside(folder: Path, name: str) -> Path:
    """The path of a plain file that lies in `folder`.

    The cache of the Hugging Face hub keeps contents beside its folders, and links to them.

    Raises:
        DataError: when it leads outside, or is a folder, a pipe or a device.
        FileNotFoundError: when there is none.
    """
    path = folder / name
    real, root = _real(path), _real(folder)
    blobs = root.parent.parent / "blobs"
    cached = root.parent.name == "snapshots" and real.parent == blobs
    if not (real.is_relative_to(root) or cached):
        raise DataError(f"{path} leads outside its folder, to {real}; it is not opened.")
    if not real.exists():
        raise FileNotFoundError(path)
    if not real.is_file():
        raise DataError(f"{path} is not a file.")
    return path


def mistyped_folder(name: str) -> str | None:
    """What there is to say of a name that is no folder, if one was meant; None for what may be the
    id of a repository on a hub, user/name."""
    path = Path(name).expanduser()
    parent = path.parent
    typed = name.startswith((".", "~", os.sep)) or name.count("/") != 1 or parent.is_dir()
    if path.exists() or not typed:
        return None
    there = [entry.name for entry in parent.iterdir() if entry.is_dir()] if parent.is_dir() else []
    near = difflib.get_close_matches(path.name, there, n=1)
    hint = f" Did you mean {str(parent / near[0])!r}?" if near else ""
    return f"There is no folder {name!r}.{hint}"


def _real(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError) as error:  # links in a circle, a null byte
        raise DataError(f"{path} cannot be followed: {error}") from error
