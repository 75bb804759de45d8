"""The memory of this process: how much is free, how much it has held, and what freeing returns."""

import contextlib
import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# Numbers of glibc's `mallopt`.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4
MB = 1 << 20

_depth = 0
_lock = threading.Lock()


@contextmanager
def kept_memory() -> Iterator[None]:
    """Inside, the C library keeps freed buffers instead of handing them back at every step.

    A training step frees and asks for the same buffers again; giving each back to the system costs
    page faults, a sixth of a step of the embedded model. Buffers of more than 32 MB, such as those
    of ViT-B/16's MLP, would always be given back, whatever the threshold: none is mapped on its
    own. The end of the outermost use hands back what is free. Only glibc has these settings.
    """
    global _depth
    libc = _libc()
    with _lock:
        _depth += 1
        if libc is not None and _depth == 1:
            libc.mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1)
            libc.mallopt(M_MMAP_MAX, 0)
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if libc is not None and _depth == 0:
                # glibc starts with thresholds of 128 KB and raises them to these as it meets large
                # buffers, until one of them is set: then it leaves them where they are.
                libc.mallopt(M_MMAP_MAX, 65536)
                libc.mallopt(M_MMAP_THRESHOLD, 32 * MB)
                libc.mallopt(M_TRIM_THRESHOLD, 64 * MB)
                libc.malloc_trim(0)


def _libc() -> Any:
    """glibc, or None where the C library is another."""
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        if libc.mallopt and libc.malloc_trim:
            return libc
    return None
