"""Which chunk of a pass through a tower is under way, for what must differ between chunks.

The text tower takes many texts in chunks, one after another, and some of them once more in the
backward pass, where all must be as it was.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

# Each thread has its own: several models may train at once.
_chunk: ContextVar[int] = ContextVar("chunk", default=0)


@contextmanager
def chunk_under_way(number: int) -> Iterator[None]:
    """Inside, chunk `number` of a pass is under way, counted from 0."""
    before = _chunk.set(number)
    try:
        yield
    finally:
        _chunk.reset(before)


def current_chunk() -> int:
    """The chunk under way; 0 where a pass is not split into chunks."""
    return _chunk.get()
