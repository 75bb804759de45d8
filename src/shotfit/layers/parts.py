"""Which part of a pass through a tower is under way, for what must differ between its parts.

The text tower takes many prompts in parts, one after another, and some of them once more in the
backward pass, where all must be as it was.
"""

from collections.abc import Iterator
from contextlib import contextmanager

_part = 0


@contextmanager
def part_of_pass(number: int) -> Iterator[None]:
    """Inside, part `number` of a pass is under way, counted from 0."""
    global _part
    before, _part = _part, number
    try:
        yield
    finally:
        _part = before


def current_part() -> int:
    """The part under way; 0 for what is not taken in parts."""
    return _part
