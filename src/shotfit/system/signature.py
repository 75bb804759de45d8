"""What this user wrote is told from what others sent, by a key that only this user has.

The key is made at the first use, in `~/.config/shotfit/key` (or under `XDG_CONFIG_HOME`), readable
by its owner alone. Where no key can be kept, nothing is known to be one's own.
"""

import hashlib
import hmac
import os
import secrets
from pathlib import Path

DIGITS = 64
"""Hexadecimal digits of a key."""


def sign(text: str) -> str | None:
    """A code that only this user can make for `text`; None where no key can be kept."""
    key = _key(create=True)
    return None if key is None else hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def is_own(text: str, signature: object) -> bool:
    """Whether `signature` is what `sign` gave this user for `text`."""
    key = _key(create=False)
    if key is None or not isinstance(signature, str) or not signature.isascii():
        return False
    expected = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    return hmac.compare_digest(expected, signature)


def _key(*, create: bool) -> bytes | None:
    try:
        base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
        path = Path(base) / "shotfit" / "key"
        if create and not _is_whole(path):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            _make(path)
        key = path.read_bytes()
    except (OSError, RuntimeError):  # no home, or nothing can be read or written there
        return None
    return key if len(key) == DIGITS else None


def _is_whole(path: Path) -> bool:
    """Whether there is a key, and not what a kill of an earlier version has left of one."""
    return path.is_file() and path.stat().st_size == DIGITS


def _make(path: Path) -> None:
    """Makes a key that is there whole or not at all; that of a faster process stays."""
    made = path.with_name(f"{path.name}-{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_hex(DIGITS // 2).encode())
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(made, path)
        except OSError:  # it is there already, or the file system has no links
            if not _is_whole(path):
                os.replace(made, path)
    finally:
        made.unlink(missing_ok=True)
