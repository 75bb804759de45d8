"""`ExportedClassifier`: predict, add, remove and correct classes, save them."""

import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shotfit.data.images import ImageSource, open_image
from shotfit.data.names import check_names
from shotfit.data.transforms import prepare
from shotfit.runtime.class_matrix import ClassMatrix
from shotfit.runtime.graphs import Graphs
from shotfit.runtime.manifest import CLASSES, Manifest

BATCH = 16


class ExportedClassifier:
    """A classifier that `shotfit export onnx` wrote. It may be asked by several threads at once:
    each answer is of one version of the classes, whatever changes meanwhile."""

    def __init__(self, graphs: Graphs, matrix: ClassMatrix, folder: Path) -> None:
        self.graphs = graphs
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

    def predict(self, images: Any) -> Any:
        """The most likely class of an image, or of each in a list.

        An image is a path, bytes, a PIL image or a uint8 array (height, width, 3).

        Raises:
            DataError: for an image that cannot be read.
        """
        matrix = self.matrix
        best = self._map(images, lambda features: matrix.scores(features).argmax(axis=-1))
        names = [matrix.names[int(index)] for index in best.reshape(-1)]
        return names if isinstance(images, list | tuple) else names[0]

    def predict_proba(self, images: Any) -> np.ndarray:
        """Softmax probabilities, float32 (images, classes), or (classes,) for a single image.

        Raises:
            DataError: for an image that cannot be read.
        """
        found = self._map(images, self.matrix.probabilities)
        return found if isinstance(images, list | tuple) else found[0]

    def features(self, images: Iterable[ImageSource]) -> np.ndarray:
        """What the class matrix is multiplied with, (images, f).

        Raises:
            DataError: for an image that cannot be read.
        """
        spec = self.graphs.manifest.image
        pixels = [prepare(open_image(image), spec) for image in images]
        return self.graphs.features(np.stack(pixels))

    def add_classes(self, names: Sequence[str]) -> None:
        """Adds classes that have no images, by name; a trained one that was removed comes back.

        Raises:
            DataError: for an empty name or one that is too long.
            UsageError: when there is no text tower to embed a name.
        """
        check_names(names)
        embed = None if self.graphs.manifest.text is None else self.graphs.class_row
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
        self._change(lambda matrix: matrix.corrected(features, name))

    def save(self) -> None:
        """Writes the classes into the folder they came from; nothing else ever changes there.

        Raises:
            OSError: when the file cannot be written.
        """
        with self._changing:
            self.matrix.write(self.folder / CLASSES)

    def _change(self, change: Callable[[ClassMatrix], ClassMatrix]) -> None:
        """One change after the other; whoever reads `matrix` meanwhile has the one before."""
        with self._changing:
            self.matrix = change(self.matrix)

    def _map(self, images: Any, answer: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        many = list(images) if isinstance(images, list | tuple) else [images]
        if not many:
            return np.zeros((0, len(self.classes)), np.float32)
        parts = (many[start : start + BATCH] for start in range(0, len(many), BATCH))
        return np.concatenate([answer(self.features(part)) for part in parts])
