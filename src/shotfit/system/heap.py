"""What the C library holds of memory that was freed. Of glibc alone: others have no such calls."""

import contextlib
import ctypes
from typing import Any


def glibc() -> Any:
    """glibc, or None where the C library is another."""
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        if libc.mallopt and libc.malloc_trim:
            return libc
    return None


def return_freed() -> None:
    """Hands freed memory back to the system: what one thread has freed, glibc keeps for it, while
    another asks for more."""
    libc = glibc()
    if libc is not None:
        libc.malloc_trim(0)
