"""Files and folders that appear whole or not at all, and files that one process writes alone."""

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from shotfit.errors import DataError

NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP)
"""What some network file systems answer when they are asked for a lock."""


def write_atomically(path: Path, text: str) -> None:
    """Writes `text` beside `path` and renames it there: the file at `path` is always complete.

    Raises:
        OSError: when it cannot be written; what was there before is there still.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Beside its target, since only within one file system is replacing atomic.
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
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


class WriterLock:
    """Keeps other processes from writing a file until `release`, or until this process ends.

    A lock file lies beside it meanwhile. Where the file system has no locks, nobody is kept out.
    """

    def __init__(self, path: Path) -> None:
        """Takes the lock.

        Raises:
            DataError: when another process has it.
        """
        self._lock = FileLock(f"{path}.lock", thread_local=False)
        try:
            self._lock.acquire(blocking=False)
        except Timeout:
            raise DataError(f"{path} is being written by another process.") from None
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            self._remove()

    def release(self) -> None:
        """Lets others write; a second call changes nothing."""
        if self._lock.is_locked:
            # Still locked: who waits for this very file sees that it is gone, and makes another.
            self._remove()
            self._lock.release()

    def _remove(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self._lock.lock_file)
