"""Files that appear whole or not at all."""

import contextlib
import errno
import hashlib
import importlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from shotfit.errors import DataError


def read_plain(path: Path, most: int | None = None) -> bytes:
    """What a plain file holds. A pipe is not waited for, a device not opened.

    Raises:
        OSError: when it cannot be read, is no plain file, or holds more than `most` bytes.
    """
    _require_plain(os.stat(path))
    # Asked again of what was opened: in between, the name may have become another file's.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with open(os.open(path, flags), "rb") as file:
        facts = os.fstat(file.fileno())
        _require_plain(facts)
        if most is not None and facts.st_size > most:
            raise OSError(f"it holds {facts.st_size:,} bytes, more than {most:,}")
        return file.read()


def _require_plain(facts: os.stat_result) -> None:
    if not stat.S_ISREG(facts.st_mode):
        raise OSError("it is not a file")


def write_atomically(path: Path, text: str) -> None:
    """As `write_bytes_atomically`, in UTF-8 and with the line ends that `text` has."""
    write_bytes_atomically(path, text.encode())


def write_bytes_atomically(path: Path, content: bytes) -> None:
    """Writes beside `path` and renames it there: the file at `path` is always complete. What a kill
    leaves beside it is taken over when `path` is written again; see `remove_unfinished`.

    Raises:
        OSError: when it cannot be written; what was there before is there still.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        # As any file is made, so that it has the rights that the user's umask gives.
        temporary.write_bytes(content)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A place beside `path` to write a file to, which takes the place of `path` when the block has
    ended well; of a block that fails, nothing is left.

    Raises:
        OSError: when it cannot take it.
    """
    with _place_beside(path) as temporary:
        try:
            yield temporary
            # What is renamed must be there after a power cut too, not its name alone.
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def remove_unfinished(path: Path) -> None:
    """Removes what a kill has left of writing `path`, if nobody is writing it now."""
    with contextlib.suppress(OSError):
        if _usual_place(path).exists():
            with _place_beside(path) as temporary:
                temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def _place_beside(path: Path) -> Iterator[Path]:
    """Where to write what is to replace `path`: within one file system, since only there replacing
    is atomic. It is the same place at every time, unless somebody is writing there now."""
    lock = _locked(_usual_place(path))
    if lock is None:
        yield path.with_name(f".{secrets.token_hex(8)}.tmp")
        return
    try:
        yield _usual_place(path)
    finally:
        os.close(lock)


def _usual_place(path: Path) -> Path:
    # Not the name itself, with which it could become too long.
    return path.with_name(f".{hashlib.sha256(os.fsencode(path.name)).hexdigest()[:16]}.tmp")


def _locked(path: Path) -> int | None:
    """A descriptor that keeps others from writing to `path`, until it is closed or this process
    ends; None where that cannot be had, or the file is not ours."""
    try:
        fcntl = importlib.import_module("fcntl")
    except ImportError:  # on Windows
        return None
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError:  # what is wrong is said when it is written to
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        facts, there = os.fstat(descriptor), path.lstat()
        plain = stat.S_ISREG(facts.st_mode) and facts.st_nlink == 1
        # Whoever had the lock may have renamed or removed it before it was ours.
        if plain and facts.st_uid == os.geteuid() and os.path.samestat(facts, there):
            return descriptor
    except OSError as error:  # somebody has it, or the file system has no locks
        if error.errno in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
            # Nobody can have it then, and nobody would take it over.
            path.unlink(missing_ok=True)
    os.close(descriptor)
    return None


def check_new(path: Path, *, overwrite: bool) -> None:
    """Says before any work is done that its result would replace a file.

    Raises:
        DataError: when the file is there and not `overwrite`.
    """
    if path.is_file() and not overwrite:
        raise DataError(f"{path} is there already: --overwrite replaces it.")


def write_result(path: Path, content: bytes, *, overwrite: bool) -> None:
    """Writes a file that a command was asked for; the same content may be there already.

    Raises:
        DataError: when a file with other content is there and not `overwrite`.
        OSError: when it cannot be written.
    """
    if path.is_file() and not overwrite and path.read_bytes() != content:
        raise DataError(f"{path} is there with other content: --overwrite replaces it.")
    write_bytes_atomically(path, content)
