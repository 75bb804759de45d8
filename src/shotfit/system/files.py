"""Files that appear whole or not at all."""

import os
import secrets
import stat
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
    """Writes beside `path` and renames it there: the file at `path` is always complete.

    Raises:
        OSError: when it cannot be written; what was there before is there still.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Beside its target, since only within one file system is replacing atomic; and made as any file
    # is, so that it has the rights that the user's umask gives.
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


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
