"""The ways a user can be at fault, each with the exit code that the command line gives it."""

import difflib
from collections.abc import Callable, Iterable
from typing import NoReturn


class UsageError(ValueError):
    """An option, a name or a combination that makes no sense (exit code 2)."""

    exit_code = 2


class DataError(ValueError):
    """A file or folder that cannot be used; the message names it and says why (exit code 3)."""

    exit_code = 3


class Diverged(UsageError, FloatingPointError):
    """A training that left the finite numbers; the message says where (exit code 2)."""


Problem = Callable[[str], None]
"""Told what is wrong with data, by who can go on after it."""


def refuse(text: str) -> NoReturn:
    """The `Problem` of who cannot go on.

    Raises:
        DataError: with this text.
    """
    raise DataError(text)


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """The error for a name that is not among the `known` ones, with the nearest as a suggestion."""
    known = sorted(known)
    if not known:
        return UsageError(f"Unknown {kind} {name!r}: there are none at all.")
    lower = {word.lower(): word for word in known}
    near = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.5)
    hint = f" Did you mean {lower[near[0]]!r}?" if near else ""
    return UsageError(f"Unknown {kind} {name!r}.{hint} Known: {', '.join(known)}.")
