"""A project: classes, pictures and the classifier that was made of them, in one folder.

What the page of `shotfit app` does, without a page: every click is a method here. The classifier is
the last fit; until there is one, names alone answer (zero-shot).
"""

import dataclasses
import io
import tempfile
import threading
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shotfit.apps.app.pictures import Added, Limits, Pictures, Upload, check_upload
from shotfit.apps.check.doctor import Wanted, check_data
from shotfit.apps.expectation import expectation_lines
from shotfit.apps.report import write_report
from shotfit.classifier import FewShotClassifier
from shotfit.data.sources.demo import load
from shotfit.errors import DataError, UsageError
from shotfit.saved_settings import is_saved
from shotfit.system.files import write_bytes_atomically
from shotfit.untrained import untrained

CLASSIFIER, REPORT, ARCHIVE = "classifier", "report.html", "classifier.zip"
EXAMPLE = ("animals", ("penguin", "crab", "butterfly"))
"""An embedded task, and classes of it."""


@dataclass(frozen=True)
class Update:
    """An update of a fit that is running: its stage, its place in that, and the batch's loss and
    accuracy (percent)."""

    stage: int
    iteration: int
    total: int
    loss: float
    accuracy: float


@dataclass(frozen=True)
class Answer:
    """A class and its probability."""

    name: str
    probability: float


class Stopped(Exception):
    """A fit that was asked to end; the classifier before it is still there."""


class Project:
    """Classes, pictures and a classifier."""

    def __init__(
        self, folder: str | Path, backbone: str = "iconclip", limits: Limits | None = None
    ) -> None:
        """Opens the project in `folder`, which is made when there is something to keep.

        Raises:
            DataError: for a folder with a manifest or a classifier that cannot be read.
        """
        self.folder = Path(folder).expanduser()
        self.backbone = backbone
        self.pictures = Pictures(self.folder, limits)
        self.fitted: FewShotClassifier | None = None
        """The last fit, with the names that were added to it since."""
        self._changing = threading.RLock()
        self._untrained: FewShotClassifier | None = None
        if is_saved(self.folder / CLASSIFIER):
            self.fitted = FewShotClassifier.from_pretrained(self.folder / CLASSIFIER)

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes."""
        return tuple(self.pictures.names)

    @property
    def classifier(self) -> FewShotClassifier:
        """What answers: the last fit, or before it names alone.

        Raises:
            DataError: when there is no class yet.
        """
        with self._changing:
            if self.fitted is not None:
                return self.fitted
            if not self.classes:
                raise DataError("Name a class first.")
            if self._untrained is None or self._untrained.classes != self.classes:
                self._untrained = untrained(self.classes, self.backbone)
            return self._untrained

    # Classes and pictures

    def add_class(self, name: str) -> str:
        """Adds a class by its name, which is answered with from now on; the name as it is kept.

        Raises:
            DataError: for a name that cannot stand in a prompt.
        """
        with self._changing:
            name = self.pictures.add_name(name)
            if self.fitted is not None and name not in self.fitted.classes:
                self.fitted.add_classes([name])
                self._save()
            return name

    def remove_class(self, name: str) -> None:
        """Removes a class and its pictures.

        Raises:
            UsageError: for a name that is no class.
        """
        with self._changing:
            self.pictures.remove_name(name)
            if self.fitted is None or name not in self.fitted.classes:
                return
            if len(self.fitted.classes) > 1:
                self.fitted.remove_classes([name])
                self._save()
            else:
                self.fitted = None  # It has nothing left to answer with.

    def add_pictures(self, name: str, uploads: Sequence[Upload]) -> Added:
        """Takes pictures of a class. A class that the classifier knows by its name alone is known
        by them as well from now on; one that was trained learns from them in the next fit.

        Raises:
            DataError: for a name that cannot stand in a prompt.
        """
        with self._changing:
            name = self.add_class(name)
            added = self.pictures.add(name, uploads)
            return dataclasses.replace(added, at_once=added.count > 0 and self._show(name))

    def correct(self, upload: Upload, name: str) -> str:
        """Says what a picture is: it becomes one of the pictures of that class. A sentence about
        what that changes.

        Raises:
            DataError: for a file that is no picture, or beyond the limits.
        """
        added = self.add_pictures(name, [upload])
        if not added.count:
            raise DataError(" ".join(added.refused))
        effect = "answers go by it at once" if added.at_once else "the next fit will learn from it"
        return f"{upload[0]} is a picture of {name!r} now; {effect}."

    def add_example(self) -> str:
        """Adds classes with drawings of the embedded suite; the first one's name."""
        task = load(EXAMPLE[0])
        for name in EXAMPLE[1]:
            label = task.classnames.index(name)
            own = [e for e in task.train if e.label == label]
            self.add_pictures(
                name, [(f"{name}.png", e.image) for e in own if isinstance(e.image, bytes)]
            )
        return EXAMPLE[1][0]

    def diagnoses(self) -> dict[str, list[str]]:
        """What `shotfit check` says of the pictures: `problems` and `notes`."""
        with self._changing:
            problems: list[str] = []
            notes: list[str] = []
            if self.pictures.labelled:
                found = check_data(str(self.pictures.manifest), Wanted(backbone=self.backbone))
                problems, notes = found.texts("error"), found.texts("warning")
            bare = [name for name, count in self.pictures.counts().items() if not count]
            if bare:
                notes = [*notes, f"known by their names alone: {', '.join(map(repr, bare))}"]
            return {"problems": problems, "notes": notes}

    # Fitting

    def fit(
        self,
        minutes: float | None = None,
        *,
        preset: str | None = None,
        observe: Callable[[Update], None] | None = None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> FewShotClassifier:
        """Learns from all pictures, by the strongest preset that ends in so many `minutes`, or by
        the one that is named; classes without a picture are known by their names.

        `stopped` is asked after every update.

        Raises:
            DataError: when less than two classes have pictures, or one cannot be read.
            UsageError: when no preset is quick enough.
            Stopped: when it was; nothing has changed then.
        """
        with self._changing:
            shown = [name for name, count in self.pictures.counts().items() if count]
            if len(shown) < 2:
                raise DataError("A fit needs pictures of two classes at least.")
            manifest, classes = self.pictures.manifest, self.classes
        classifier = FewShotClassifier(self.backbone, preset=preset, minutes=minutes)

        def watch(method: Any, stage: int, step: Any) -> None:
            if stopped():
                raise Stopped("The fit was stopped; the classifier before it is still there.")
            if observe is not None:
                observe(Update(stage, step.iteration, step.total, step.loss, step.accuracy))

        classifier.fit(manifest, observe=watch, verbose=False)
        # Pages go on while it learns: what has been named or removed meanwhile counts.
        with self._changing:
            bare = [name for name in self.classes if name not in classifier.classes]
            if bare:
                classifier.add_classes(bare)
            gone = [name for name in classes if name not in self.classes]
            if gone:
                classifier.remove_classes(gone)
            self.fitted = classifier
            self._save()
        return classifier

    def expectation(self) -> list[str]:
        """What to expect of the last fit on new pictures, by shots that were held out; empty where
        they cannot tell."""
        if self.fitted is None or self.fitted.expected is None:
            return []
        return expectation_lines(self.fitted.expected)

    # Answers

    def answers(self, uploads: Sequence[Upload], top: int = 3) -> list[tuple[Answer, ...]]:
        """The likeliest classes of each picture, the likeliest first.

        Raises:
            DataError: for a file that is no picture, or beyond the limits, and without a class.
        """
        for given, content in uploads:
            check_upload(given, content, self.pictures.limits)
        classifier = self.classifier
        rows = classifier.predict_proba([content for _, content in uploads])
        return [
            tuple(
                Answer(classifier.classes[place], float(row[place]))
                for place in np.argsort(-row, kind="stable")[:top]
            )
            for row in rows
        ]

    # What is taken away

    def report(self) -> Path:
        """Writes the page of the last fit (`shotfit report`).

        Raises:
            UsageError: before the first fit.
        """
        fitted = self._last_fit()
        return write_report(self.folder / CLASSIFIER, fitted, None, self.folder / REPORT)

    def archive(self) -> Path:
        """Writes the last fit as a zip file, which any `shotfit` reads when it has been unpacked;
        a pretrained model from a folder here is to be named there.

        Raises:
            UsageError: before the first fit.
        """
        fitted, content = self._last_fit(), io.BytesIO()
        with (
            tempfile.TemporaryDirectory() as folder,
            zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive,
        ):
            packed = fitted.save_pretrained(Path(folder) / CLASSIFIER, shared=True)
            for path in sorted(packed.iterdir()):
                archive.write(path, Path(CLASSIFIER) / path.name)
        out = self.folder / ARCHIVE
        write_bytes_atomically(out, content.getvalue())
        return out

    def _last_fit(self) -> FewShotClassifier:
        if self.fitted is None:
            raise UsageError("There is no classifier yet: fit one first.")
        return self.fitted

    def _save(self) -> None:
        if self.fitted is not None:
            self.fitted.save_pretrained(self.folder / CLASSIFIER)

    def _show(self, name: str) -> bool:
        """Gives a class that was not trained all its pictures; whether it takes them."""
        fitted = self.fitted
        if fitted is None or name in fitted.method.trained_names or len(fitted.classes) < 2:
            return False
        fitted.remove_classes([name])
        try:
            fitted.add_classes({name: self.pictures.of(name)})
        except UsageError:  # its method knows images of trained classes alone
            fitted.add_classes([name])
            return False
        self._save()
        return True
