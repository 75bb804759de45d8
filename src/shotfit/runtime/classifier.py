"""`ExportedClassifier`: predict, add, remove and correct classes, save them."""

import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from shotfit.data.images import ImageSource, open_image
from shotfit.data.names import check_names
from shotfit.data.transforms import ImageSpec, prepare
from shotfit.errors import UsageError
from shotfit.evaluation.decisions import Refusal, Sets
from shotfit.runtime.class_matrix import ClassMatrix, ClassRow
from shotfit.runtime.graphs import Graphs
from shotfit.runtime.manifest import CLASSES, Manifest

BATCH = 16


class Encoder(Protocol):
    """What makes features of images, and rows of names."""

    @property
    def image_spec(self) -> ImageSpec:
        """How images are prepared."""
        ...

    @property
    def takes_names(self) -> bool:
        """Whether a class can be added by its name alone."""
        ...

    def features(self, pixels: np.ndarray) -> np.ndarray:
        """Features (batch, f) of pixels (batch, 3, size, size)."""
        ...

    def class_row(self, name: str) -> ClassRow:
        """The row of a class that is known by its name alone."""
        ...


class ExportedClassifier:
    """A classifier that `shotfit export onnx` wrote. It may be asked by several threads at once:
    each answer is of one version of the classes, whatever changes meanwhile."""

    def __init__(self, encoder: Encoder, matrix: ClassMatrix, folder: Path | None) -> None:
        """`folder` is where `save` writes, None for nowhere."""
        self.encoder = encoder
        self.matrix = matrix
        self.folder = folder
        self._changing = threading.Lock()

    @classmethod
    def load(
        cls, folder: str | Path, *, threads: int | None = None, check: bool = False
    ) -> "ExportedClassifier":
        """The classifier in an exported folder; its graphs are loaded when they are first needed.

        `threads` of onnxruntime, None for all cores. `check` compares the files with their hashes.

        Raises:
            DataError: for a folder that holds no export, or an altered one.
        """
        folder = Path(folder).expanduser()
        manifest = Manifest.read(folder)
        if check:
            manifest.check(folder)
        matrix = ClassMatrix.read(folder / CLASSES)
        return cls(Graphs(folder, manifest, threads), matrix, folder)

    @property
    def classes(self) -> tuple[str, ...]:
        """The names that `predict` answers with; their order is that of `predict_proba`."""
        return self.matrix.names

    def predict(self, images: Any, *, reject: float | None = None) -> Any:
        """The most likely class of an image, or of each in a list; with `reject`, None for one that
        is none of the classes: by a threshold under which at most that share of trained images
        falls, as held-out shots say.

        An image is a path, bytes, a PIL image or a uint8 array (height, width, 3).

        Raises:
            DataError: for an image that cannot be read.
            UsageError: for a rate that the shots cannot tell.
        """
        matrix = self.matrix
        refusal = None if reject is None else Refusal(matrix.held_out, matrix.trained, reject)

        def answer(features: np.ndarray) -> list[str | None]:
            scores = matrix.scores(features)
            names: list[str | None] = [matrix.names[place] for place in scores.argmax(axis=-1)]
            if refusal is None:
                return names
            refused = refusal(scores, matrix.familiarity(features))
            return [None if no else name for name, no in zip(names, refused, strict=True)]

        return self._map(images, answer)

    def prediction_sets(self, images: Any, coverage: float = 0.9) -> Any:
        """For an image, or each in a list, the classes, likeliest first, among which the right one
        is with this probability, on average over images like the shots (conformal prediction).

        Raises:
            DataError: for an image that cannot be read.
            UsageError: when so few shots cannot promise that, saying what they can.
        """
        matrix = self.matrix
        sets = Sets(matrix.held_out, matrix.trained, coverage)

        def answer(features: np.ndarray) -> list[tuple[str, ...]]:
            scores = matrix.scores(features)
            ranked = zip(np.argsort(-scores, kind="stable"), sets(scores), strict=True)
            return [tuple(matrix.names[p] for p in order if inside[p]) for order, inside in ranked]

        return self._map(images, answer)

    def predict_proba(self, images: Any) -> np.ndarray:
        """Softmax probabilities, float32 (images, classes), or (classes,) for a single image.

        Raises:
            DataError: for an image that cannot be read.
        """
        matrix = self.matrix
        found = self._map(images, lambda features: list(matrix.probabilities(features)))
        if not isinstance(images, list | tuple):
            return found
        return np.stack(found) if found else np.zeros((0, len(matrix.names)), np.float32)

    def features(self, images: Iterable[ImageSource]) -> np.ndarray:
        """What the class matrix is multiplied with, (images, f).

        Raises:
            DataError: for an image that cannot be read.
        """
        spec = self.encoder.image_spec
        pixels = [prepare(open_image(image), spec) for image in images]
        return self.encoder.features(np.stack(pixels))

    def add_classes(self, names: Sequence[str]) -> None:
        """Adds classes that have no images, by name; a trained one that was removed comes back.

        Raises:
            DataError: for an empty name or one that is too long.
            UsageError: when there is no text tower to embed a name.
        """
        check_names(names)
        embed = self.encoder.class_row if self.encoder.takes_names else None
        self._change(lambda matrix: matrix.with_added(names, embed))

    def remove_classes(self, names: Sequence[str]) -> None:
        """Stops answering with these classes (all classes of a name).

        Raises:
            UsageError: for a name that is not among the classes, or when none would be left.
        """
        self._change(lambda matrix: matrix.without(names))

    def correct(self, image: ImageSource, name: str) -> None:
        """Says what an image is: the class matrix moves until it answers so, or as far as one
        image may move it (`ClassMatrix.corrected`).

        Raises:
            DataError: for an image that cannot be read.
            UsageError: for a name that is not among the classes.
        """
        (features,) = self.features([image])
        self.correct_features(features, name)

    def correct_features(self, features: np.ndarray, name: str) -> None:
        """As `correct`, for an image whose features (f,) are known.

        Raises:
            UsageError: for a name that is not among the classes.
        """
        self._change(lambda matrix: matrix.corrected(features, name))

    def save(self) -> None:
        """Writes the classes into the folder they came from; nothing else ever changes there.

        Raises:
            OSError: when the file cannot be written.
            UsageError: when it came from no exported folder.
        """
        if self.folder is None:
            raise UsageError("These classes came from no exported folder to save them in.")
        with self._changing:
            self.matrix.write(self.folder / CLASSES)

    def _change(self, change: Callable[[ClassMatrix], ClassMatrix]) -> None:
        """One change after the other; whoever reads `matrix` meanwhile has the one before."""
        with self._changing:
            self.matrix = change(self.matrix)

    def _map(self, images: Any, answer: Callable[[np.ndarray], Sequence[Any]]) -> Any:
        """The answers to a list of images, a batch at a time, or the one to an image."""
        many = list(images) if isinstance(images, list | tuple) else [images]
        parts = (many[start : start + BATCH] for start in range(0, len(many), BATCH))
        found = [one for part in parts for one in answer(self.features(part))]
        return found if isinstance(images, list | tuple) else found[0]
