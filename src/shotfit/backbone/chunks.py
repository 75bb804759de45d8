"""Which part of a pass through a tower is under way, for what must differ between its parts.

The text tower takes many prompts in parts, one after another, and some of them once more in the
backward pass, where all must be as it was.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

# Each thread has its own: several models may train at once.
_part: ContextVar[int] = ContextVar("part", default=0)


@contextmanager
def part_of_pass(number: int) -> Iterator[None]:
    """Inside, part `number` of a pass is under way, counted from 0."""
    before = _part.set(number)
    try:
        yield
    finally:
        _part.reset(before)


def current_part() -> int:
    """The part under way; 0 for what is not taken in parts."""
    return _part.get()
