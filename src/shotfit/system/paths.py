"""Files that a folder from elsewhere may name: plain ones, inside it."""

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


def _real(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError) as error:  # links in a circle, a null byte
        raise DataError(f"{path} cannot be followed: {error}") from error
