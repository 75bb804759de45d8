"""Files that one process writes alone."""

import contextlib
import errno
import os
from pathlib import Path

from filelock import FileLock, Timeout

from shotfit.errors import DataError

NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP)
"""What some network file systems answer when they are asked for a lock."""


class WriterLock:
    """Keeps other processes from writing a file until `release`, or until this process ends.

    A lock file lies beside it meanwhile. Where the file system has no locks, nobody is kept out.
    """

    def __init__(self, path: Path, *, wait: float = 0) -> None:
        """Takes the lock, after waiting up to so many seconds for it.

        Raises:
            DataError: when another process has it.
        """
        self._lock = FileLock(f"{path}.lock", thread_local=False)
        try:
            self._lock.acquire(timeout=wait)
        except Timeout:
            raise DataError(f"{path} is being written by another process.") from None
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            self._remove()

    def __enter__(self) -> "WriterLock":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Lets others write; a second call changes nothing."""
        if self._lock.is_locked:
            # Still locked: who waits for this very file sees that it is gone, and makes another.
            self._remove()
            self._lock.release()

    def _remove(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self._lock.lock_file)
