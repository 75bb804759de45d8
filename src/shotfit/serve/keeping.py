"""Where the classes of a server are kept: in its own process, or in one for all replicas."""

import asyncio
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from shotfit.runtime import ExportedClassifier
from shotfit.runtime.class_matrix import ClassMatrix
from shotfit.runtime.manifest import CLASSES

Stamp = tuple[str, int]
"""Whose version of the classes: versions count from the start of what keeps them."""


class Kept(Protocol):
    """The classes that are answered with."""

    async def current(self) -> ClassMatrix:
        """Those of now: whatever change was confirmed before is in them."""
        ...

    async def change(self, change: Callable[..., None], *arguments: Any) -> None:
        """Changes them by a method of the classifier.

        Raises:
            OSError: when they are changed but cannot be saved.
        """
        ...


class OwnClasses:
    """The classes of a server of one process: those of its classifier."""

    def __init__(self, classifier: ExportedClassifier, save: bool) -> None:
        self._classifier = classifier
        self._save = save

    async def current(self) -> ClassMatrix:
        """Those of now."""
        return self._classifier.matrix

    async def change(self, change: Callable[..., None], *arguments: Any) -> None:
        """Changes them, and saves them where that was asked for."""
        await asyncio.to_thread(change, *arguments)
        if self._save:
            await asyncio.to_thread(self._classifier.save)


class Keeper:
    """One version of the classes for all replicas, in a process of its own."""

    def __init__(self, start: ClassMatrix | str, save: bool) -> None:
        """`start` are the classes, or the exported folder that holds them; it is read again when
        this is started again after a crash. With `save` changes are written there."""
        self._path = None if isinstance(start, ClassMatrix) else Path(start) / CLASSES
        self._matrix = (
            start if isinstance(start, ClassMatrix) else ClassMatrix.read(Path(start) / CLASSES)
        )
        self._save = save
        self._name = uuid.uuid4().hex

    def other_than(self, known: Stamp | None) -> tuple[Stamp, ClassMatrix] | None:
        """The classes of now, unless they are those that the asker has."""
        stamp = (self._name, self._matrix.version)
        return None if stamp == known else (stamp, self._matrix)

    def exchange(self, known: Stamp, changed: ClassMatrix) -> bool:
        """Takes changed classes, unless others have changed meanwhile those they were made of.

        Raises:
            OSError: when they are taken but cannot be saved.
        """
        if known != (self._name, self._matrix.version):
            return False
        self._matrix = changed
        if self._save and self._path is not None:
            changed.write(self._path)
        return True


class SharedClasses:
    """The classes of one replica of several: asked for at every answer, so that a change is seen by
    all of them as soon as it was confirmed."""

    def __init__(self, classifier: ExportedClassifier, keeper: Any) -> None:
        """`keeper` is the handle of a `Keeper` that runs as an actor of Ray."""
        self._classifier = classifier
        self._keeper = keeper
        self._known: tuple[Stamp, ClassMatrix] | None = None
        self._changing = asyncio.Lock()

    async def current(self) -> ClassMatrix:
        """Those of now."""
        return (await self._asked())[1]

    async def change(self, change: Callable[..., None], *arguments: Any) -> None:
        """Changes them as they are now, again where another replica was faster."""
        async with self._changing:
            while True:
                stamp, self._classifier.matrix = await self._asked()
                await asyncio.to_thread(change, *arguments)
                changed = self._classifier.matrix
                if changed.version == stamp[1]:
                    return  # a correction that was right already
                if await self._keeper.exchange.remote(stamp, changed):
                    return

    async def _asked(self) -> tuple[Stamp, ClassMatrix]:
        known = self._known
        other = await self._keeper.other_than.remote(None if known is None else known[0])
        if other is not None:
            self._known = known = other
        assert known is not None
        return known
