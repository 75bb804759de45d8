"""The pictures that wait for a label, and which of them to ask for next."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shotfit.apps.app.pictures import check_upload
from shotfit.apps.app.project import Answer, Project
from shotfit.data.image_files import find_images
from shotfit.errors import DataError, UsageError
from shotfit.labelling import next_to_label

BATCH = 8
"""Proposals for which the classifier is asked once."""
COMPARED = 2_000
"""Pictures, of which the rest is a sample, that a proposal is chosen among."""


@dataclass(frozen=True)
class Proposed:
    """A picture, and what it may be, the likeliest first."""

    path: Path
    answers: tuple[Answer, ...]


class Unlabelled:
    """Pictures of a folder in the order in which labels of them help a project most."""

    def __init__(self, project: Project, places: Sequence[str | Path]) -> None:
        """`places` are folders, patterns or files; pictures of the project are left out.

        Raises:
            DataError: for a folder without pictures.
        """
        self.project = project
        self.waiting: list[Path] = []
        self.refused: list[str] = []
        """A sentence for each picture that cannot be used."""
        self.done = 0
        """Labels given here."""
        self._batch: list[Proposed] = []
        for path in map(Path, find_images(places)):
            if self._usable(path):
                self.waiting.append(path)
        random.Random(0).shuffle(self.waiting)

    def next(self) -> Proposed | None:
        """The picture to label next; None when all are.

        Raises:
            DataError: when the project has no class to choose among.
        """
        if not self._batch and self.waiting:
            compared = self.waiting[:COMPARED]
            classifier = self.project.classifier
            known = [self.project.folder / p.path for p in self.project.pictures.labelled.values()]
            found = next_to_label(classifier, compared, known, BATCH)
            self._batch = [
                Proposed(compared[one.place], tuple(Answer(*answer) for answer in one.answers))
                for one in found
            ]
        return self._batch[0] if self._batch else None

    def label(self, path: Path, name: str) -> str:
        """Says what a picture is: it becomes a picture of the project. A sentence about that.

        Raises:
            UsageError: for a picture that does not wait for a label.
            DataError: for a name that cannot stand in a prompt.
        """
        self._take(path)
        said = self.project.correct((path.name, path.read_bytes()), name)
        self.done += 1
        return said

    def skip(self, path: Path) -> None:
        """Asks no more for this picture.

        Raises:
            UsageError: for a picture that does not wait for a label.
        """
        self._take(path)

    def again(self) -> None:
        """Chooses anew: the classifier is another one."""
        self._batch = []

    def _take(self, path: Path) -> None:
        if path not in self.waiting:
            raise UsageError(f"{path.name} does not wait for a label.")
        self.waiting.remove(path)
        self._batch = [one for one in self._batch if one.path != path]

    def _usable(self, path: Path) -> bool:
        try:
            content = path.read_bytes()
            check_upload(path.name, content, self.project.pictures.limits)
        except (OSError, DataError) as error:
            self.refused.append(str(error))
            return False
        return self.project.pictures.label_of(content) is None
