"""Which class names can stand in a prompt."""

from collections.abc import Sequence

from shotfit.errors import DataError, UsageError
from shotfit.system.terminal import has_controls


def check_names(names: Sequence[str]) -> None:
    """Refuses class names that cannot stand in a prompt.

    Raises:
        DataError: for an empty name, or one with control characters.
        UsageError: for a single string in place of a list.
    """
    if isinstance(names, str):
        raise UsageError(f"Give class names as a list, not as the one string {names!r}.")
    for number, name in enumerate(names):
        if not name.strip():
            raise DataError(f"The name of class number {number} is empty.")
        if has_controls(name):
            raise DataError(
                f"The name of class number {number}, {name!r}, holds control characters, which no "
                "prompt should."
            )
