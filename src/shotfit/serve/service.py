"""A classifier that answers requests: batches of images, one version of the classes an answer."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shotfit.runtime import ExportedClassifier
from shotfit.serve.answers import Question, answered
from shotfit.serve.batching import Batcher
from shotfit.serve.metrics import Metrics
from shotfit.serve.settings import Settings
from shotfit.serve.uploads import prepared


class Service:
    """What the routes call."""

    def __init__(self, classifier: ExportedClassifier, settings: Settings) -> None:
        self.classifier = classifier
        self.settings = settings
        self.metrics = Metrics()
        self.batcher = Batcher(
            classifier.encoder.features,
            settings.batch_size,
            settings.batch_delay,
            self.metrics.batches.observe,
        )
        self.ready = False
        self._note_classes()

    async def start(self) -> None:
        """Loads the model by asking it once."""
        self.batcher.start()
        side = self.classifier.encoder.image_spec.size
        await self.batcher.features(np.zeros((3, side, side), np.float32))
        self.ready = True

    async def stop(self) -> None:
        """Answers no more."""
        self.ready = False
        await self.batcher.stop()

    async def predict(
        self, images: Sequence[tuple[str, bytes]], question: Question
    ) -> dict[str, Any]:
        """The answers to a question about named images.

        Raises:
            Refused: for images beyond the limits, or that cannot be read.
            UsageError: when the shots cannot tell what is asked.
        """
        features = await self._features(images)
        # Taken once: whatever changes meanwhile, the answer is of this version.
        matrix = self.classifier.matrix
        rows = answered(matrix, features, question)
        self.metrics.images.inc(len(rows))
        results = [{"image": name, **row} for (name, _), row in zip(images, rows, strict=True)]
        return {"version": matrix.version, "results": results}

    def classes(self) -> dict[str, Any]:
        """The classes and how each is known."""
        matrix = self.classifier.matrix
        rows = [{"name": name, "known_by": origin} for name, origin in matrix.classes.origins]
        return {"version": matrix.version, "classes": rows}

    async def add(self, names: Sequence[str]) -> dict[str, Any]:
        """Adds classes by name.

        Raises:
            DataError, UsageError: as `ExportedClassifier.add_classes`.
        """
        return await self._change(self.classifier.add_classes, names)

    async def remove(self, names: Sequence[str]) -> dict[str, Any]:
        """Removes classes.

        Raises:
            UsageError: as `ExportedClassifier.remove_classes`.
        """
        return await self._change(self.classifier.remove_classes, names)

    async def correct(self, image: tuple[str, bytes], name: str) -> dict[str, Any]:
        """Says what an image is.

        Raises:
            Refused: for an image that cannot be read.
            UsageError: for a name that is not among the classes.
        """
        (features,) = await self._features([image])
        return await self._change(self.classifier.correct_features, features, name)

    async def _features(self, images: Sequence[tuple[str, bytes]]) -> np.ndarray:
        pixels = await prepared(images, self.classifier.encoder.image_spec, self.settings)
        return np.stack(await asyncio.gather(*map(self.batcher.features, pixels)))

    async def _change(self, change: Callable[..., None], *arguments: Any) -> dict[str, Any]:
        await asyncio.to_thread(change, *arguments)
        if self.settings.save:
            await asyncio.to_thread(self.classifier.save)
        self._note_classes()
        return self.classes()

    def _note_classes(self) -> None:
        matrix = self.classifier.matrix
        self.metrics.version.set(matrix.version)
        self.metrics.classes.set(len(matrix.names))
