"""A classifier that answers requests: batches of images, one version of the classes an answer."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shotfit.runtime import ExportedClassifier
from shotfit.runtime.class_matrix import ClassMatrix
from shotfit.serve.answers import Question, answered
from shotfit.serve.batching import Batcher
from shotfit.serve.keeping import Kept, OwnClasses
from shotfit.serve.metrics import Metrics
from shotfit.serve.settings import Settings
from shotfit.serve.uploads import Refused, check_count, prepared

_log = logging.getLogger(__name__)

Image = tuple[str, bytes | Refused]
"""A name and what was sent, or why nothing can be made of that."""


class Service:
    """What the routes call."""

    def __init__(
        self, classifier: ExportedClassifier, settings: Settings, kept: Kept | None = None
    ) -> None:
        """`kept` says where the classes are, None for here."""
        self.classifier = classifier
        self.kept = kept or OwnClasses(classifier, settings.save)
        self.settings = settings
        self.metrics = Metrics()
        self.batcher = Batcher(
            classifier.encoder.features,
            settings.batch_size,
            settings.batch_delay,
            self.metrics.batches.observe,
        )
        self.ready = False

    async def start(self) -> None:
        """Loads the model by asking it once, for an image and, where it takes them, a name."""
        encoder = self.classifier.encoder
        side = encoder.image_spec.size
        await asyncio.to_thread(encoder.features, np.zeros((1, 3, side, side), np.float32))
        if encoder.takes_names:
            await asyncio.to_thread(encoder.class_row, self.classifier.classes[0])
        await self._matrix()
        self.batcher.start()
        self.ready = True

    async def stop(self) -> None:
        """Answers no more."""
        self.ready = False
        await self.batcher.stop()

    async def predict(self, images: Sequence[Image], question: Question) -> dict[str, Any]:
        """The answers to a question about named images; one of several that cannot be answered has
        an error in place of answers.

        Raises:
            Refused: for more images than the limit, or when none can be answered.
            UsageError: when the shots cannot tell what is asked.
        """
        found = await self._features(images)
        usable = [features for features in found if not isinstance(features, Refused)]
        # Taken once: whatever changes meanwhile, the answer is of this version.
        matrix = await self._matrix()
        rows = iter(answered(matrix, np.stack(usable), question))
        self.metrics.images.inc(len(usable))
        results: list[dict[str, Any]] = []
        for (name, _), one in zip(images, found, strict=True):
            row = {"answers": [], "error": str(one)} if isinstance(one, Refused) else next(rows)
            results.append({"image": name, **row})
        return {"version": matrix.version, "results": results}

    async def classes(self) -> dict[str, Any]:
        """The classes and how each is known."""
        matrix = await self._matrix()
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

    async def _features(self, images: Sequence[Image]) -> list[np.ndarray | Refused]:
        """Features (f,) of each image, or why it has none.

        Raises:
            Refused: for more images than the limit, or when none has any.
        """
        check_count(len(images), self.settings)
        found = await asyncio.gather(*(self._of_one(*image) for image in images))
        refused = [one for one in found if isinstance(one, Refused)]
        if len(refused) == len(found):
            raise refused[0]
        return list(found)

    async def _of_one(self, name: str, content: bytes | Refused) -> np.ndarray | Refused:
        spec = self.classifier.encoder.image_spec
        if isinstance(content, Refused):
            return content
        try:
            pixels = await asyncio.to_thread(prepared, name, content, spec, self.settings)
            features = await self.batcher.features(pixels)
            if not np.isfinite(features).all():
                raise ValueError("its features are not finite")
        except Refused as error:
            return error
        except Exception:
            _log.exception("The model failed on an image.")
            return Refused(500, "The server failed on this image; its log says how.")
        return features

    async def _change(self, change: Callable[..., None], *arguments: Any) -> dict[str, Any]:
        try:
            await self.kept.change(change, *arguments)
        except OSError as error:
            _log.error("The classes cannot be saved: %s", error)
            raise Refused(
                507, "The classes are changed, but not saved: a restart loses this change."
            ) from error
        return await self.classes()

    async def _matrix(self) -> ClassMatrix:
        """The classes of now."""
        matrix = await self.kept.current()
        self.metrics.version.set(matrix.version)
        self.metrics.classes.set(len(matrix.names))
        return matrix
