"""Files and folders that appear whole or not at all."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_atomically(path: Path, text: str) -> None:
    """As `write_bytes_atomically`, in UTF-8 and with the line ends that `text` has."""
    write_bytes_atomically(path, text.encode())


def write_bytes_atomically(path: Path, content: bytes) -> None:
    """Writes beside `path` and renames it there: the file at `path` is always complete.

    Raises:
        OSError: when it cannot be written; what was there before is there still.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Beside its target, since only within one file system is replacing atomic.
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


@contextmanager
def folder_written_whole(target: Path) -> Iterator[Path]:
    """A new folder to write into, which is at `target` when the block has ended well.

    It takes the place of a folder that was there. When the block fails, or the exchange does, that
    one is still there. An empty folder is filled rather than exchanged: it may be a mount, which
    cannot be renamed.

    Raises:
        OSError: when nothing can be written there.
    """
    fill = target.is_dir() and not any(target.iterdir())
    beside = target if fill else target.parent
    beside.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=beside, prefix=".shotfit-") as scratch:
        made = Path(scratch) / "made"
        made.mkdir()
        yield made
        if fill:
            _move_inside(made, target)
        else:
            _exchange(made, target)


def _move_inside(made: Path, target: Path) -> None:
    moved = []
    try:
        for entry in sorted(made.iterdir()):
            entry.rename(target / entry.name)
            moved.append(target / entry.name)
    except BaseException:
        for entry in moved:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        raise


def _exchange(made: Path, target: Path) -> None:
    if not target.exists():
        made.rename(target)
        return
    # Not inside what is removed in any case: if it cannot be put back, it is at least there.
    beside = Path(tempfile.mkdtemp(dir=target.parent, prefix=".shotfit-previous-"))
    previous = beside / target.name
    try:
        target.rename(previous)
        made.rename(target)
    except BaseException:
        if previous.exists():
            previous.rename(target)
        beside.rmdir()
        raise
    shutil.rmtree(beside)
