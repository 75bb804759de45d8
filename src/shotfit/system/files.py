"""Files that appear whole or not at all."""

import os
import secrets
from pathlib import Path

from shotfit.errors import DataError


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


def write_result(path: Path, content: bytes, *, overwrite: bool) -> None:
    """Writes a file that a command was asked for; the same content may be there already.

    Raises:
        DataError: when a file with other content is there and not `overwrite`.
        OSError: when it cannot be written.
    """
    if path.is_file() and not overwrite and path.read_bytes() != content:
        raise DataError(f"{path} is there with other content: --overwrite replaces it.")
    write_bytes_atomically(path, content)
