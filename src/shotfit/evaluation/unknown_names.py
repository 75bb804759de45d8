"""Class names of a test set, found among the names that a classifier answers with.

A name counts as known only as it is spelt: `Nominal` is another class than `nominal`. What differs
in case, underscores or hyphens alone is asked about, as are near misses.
"""

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class UnknownName:
    """A class of the test set that no answer can be, how many images it has there, and the name
    that may be meant."""

    name: str
    images: int
    meant: str | None

    def __str__(self) -> str:
        count = f"{self.images} image{'' if self.images == 1 else 's'}"
        hint = f"; did you mean {self.meant!r}?" if self.meant is not None else ""
        return f"{self.name!r} ({count}{hint})"


def places(names: Sequence[str], known: Sequence[str]) -> tuple[int | None, ...]:
    """The place of each name among the `known` ones, None for an unknown name.

    Classes may share a name: its n-th mention is the n-th known class so named.
    """
    left: dict[str, list[int]] = {}
    for place, name in enumerate(known):
        left.setdefault(name, []).append(place)
    return tuple(left[name].pop(0) if left.get(name) else None for name in names)


def meant(name: str, known: Sequence[str]) -> str | None:
    """The known name that differs in spelling alone, or else the one that is nearest to it."""
    alike = {plain(other): other for other in reversed(known)}
    if plain(name) in alike:
        return alike[plain(name)]
    near = difflib.get_close_matches(plain(name), alike, n=1, cutoff=0.75)
    return alike[near[0]] if near else None


def spelled_otherwise(names: Sequence[str], known: Sequence[str]) -> list[tuple[str, str]]:
    """Names that are not among the `known` ones but for their spelling, each with the known one: by
    `polar bear`, the class `polar_bear` is not asked for."""
    alike = {plain(other): other for other in known}
    strangers = [name for name in names if name not in known]
    return [(name, alike[plain(name)]) for name in strangers if plain(name) in alike]


def plain(name: str) -> str:
    """A name without what people spell differently: case, underscores, hyphens, spaces."""
    return re.sub(r"[\s_\-]+", " ", name).strip().casefold()
