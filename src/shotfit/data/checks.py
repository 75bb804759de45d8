"""What can be known to be wrong before a run is found before it, not in the middle."""

import warnings
from collections.abc import Sequence

from shotfit.data.dataset import Split
from shotfit.data.template import check_template
from shotfit.errors import DataError, UsageError


def check_names(names: Sequence[str]) -> None:
    """Refuses class names that cannot stand in a prompt.

    Raises:
        DataError: for an empty name.
        UsageError: for a single string in place of a list.
    """
    if isinstance(names, str):
        raise UsageError(f"Give class names as a list, not as the one string {names!r}.")
    for number, name in enumerate(names):
        if not name.strip():
            raise DataError(f"The name of class number {number} is empty.")


def check_split(split: Split) -> None:
    """Looks at every class before a run, not during it; `SupportSet.decode` does so for images.

    Raises:
        DataError: naming the first class that cannot be used.
        UsageError: for a template without a place for the name.
    """
    check_names(split.classnames)
    check_template(split.template)
    doubled = sorted({name for name in split.classnames if split.classnames.count(name) > 1})
    if doubled:
        warnings.warn(
            f"More than one class is named {', '.join(map(repr, doubled))}; they are kept apart "
            "by their position.",
            stacklevel=3,
        )
    without = set(range(len(split.classnames))) - set(split.labels)
    if without:
        raise DataError(f"Class {split.classnames[min(without)]!r} has no training images.")
