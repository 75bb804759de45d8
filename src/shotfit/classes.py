"""The classes of a fitted classifier, as values: trained rows, names and names with images that
were added later, and which of them it answers with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shotfit.errors import UsageError


@dataclass(frozen=True)
class ClassList:
    """Classes in the order in which they are answered.

    `added` are names behind the `trained` ones, each with so many `images`, mostly none; `active`
    are the places, among all of these, of the classes that have not been removed.
    """

    trained: tuple[str, ...]
    added: tuple[str, ...]
    active: tuple[int, ...]
    images: tuple[int, ...]

    @classmethod
    def of(cls, trained: Sequence[str], added: Sequence[str] = ()) -> "ClassList":
        """All of these, none removed, none with images."""
        everything = tuple(range(len(trained) + len(added)))
        return cls(tuple(trained), tuple(added), everything, (0,) * len(added))

    @classmethod
    def saved(cls, settings: Mapping[str, Any]) -> "ClassList":
        """The classes in a saved classifier's config; `plain` has what was added to it later."""
        trained, added, active = (
            tuple(settings[key]) for key in ("trained_names", "added_names", "kept")
        )
        images = tuple(settings.get("added_images", (0,) * len(added)))
        return cls(trained, added, active, images)

    @property
    def everything(self) -> tuple[str, ...]:
        """Every name that was trained or added, also those that were removed since."""
        return (*self.trained, *self.added)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the classes that are answered with."""
        names = self.everything
        return tuple(names[place] for place in self.active)

    @property
    def origins(self) -> tuple[tuple[str, str], ...]:
        """Each class that is answered with, and how it is known: "trained" on images, by "name"
        alone, or by "name and 3 images" added later."""
        count = len(self.trained)
        kinds = (
            "trained" if place < count else _known_by(self.images[place - count])
            for place in self.active
        )
        return tuple(zip(self.names, kinds, strict=True))

    def with_added(self, names: Sequence[str], images: Sequence[int] | None = None) -> "ClassList":
        """With classes known by name, and by so many images each. Without images, a trained class
        that was removed comes back as it was."""
        images = images or (0,) * len(names)
        removed = [place for place in range(len(self.trained)) if place not in self.active]
        back, new = [], []
        for name, count in zip(names, images, strict=True):
            place = next((p for p in removed if self.trained[p] == name and p not in back), None)
            if place is None or count:
                new.append((name, count))
            else:
                back.append(place)
        behind = len(self.everything)
        return replace(
            self,
            added=(*self.added, *(name for name, _ in new)),
            images=(*self.images, *(count for _, count in new)),
            active=(*self.active, *back, *range(behind, behind + len(new))),
        )

    def without(self, names: Sequence[str]) -> "ClassList":
        """Without these classes (all classes of a name).

        Raises:
            UsageError: for a name that is not among the classes, or when none would be left.
        """
        known = self.names
        missing = [name for name in names if name not in known]
        if missing:
            raise UsageError(f"There is no class {', '.join(map(repr, missing))} to remove.")
        active = tuple(p for p, name in zip(self.active, known, strict=True) if name not in names)
        if not active:
            raise UsageError("A classifier needs at least one class.")
        return replace(self, active=active)


def _known_by(images: int) -> str:
    if not images:
        return "name"
    return f"name and {images} image{'' if images == 1 else 's'}"
