"""Batches of pixels: augmented and endless for training, in order and once for everything else."""

import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import torch
from PIL.Image import Image
from torch import Tensor

from shotfit.data.dataset import Example, Split
from shotfit.data.images import CROP_SCALE, Crop, ImageSpec, augment, draw_crop, open_image, prepare

# Decoded images are kept up to this many bytes; beyond it they are decoded anew each time.
CACHE_BYTES = 2 << 30
# Below this many pixels an image is transformed faster than a thread can be asked to do it.
THREAD_PIXELS = 128 * 128

Batch = tuple[Tensor, Tensor]


class SupportSet:
    """The labelled images that a method may learn from, as it sees them.

    The one random stream decides order and augmentation; workers only carry out what was drawn,
    so that a seed gives the same batches on any machine.
    """

    def __init__(
        self,
        split: Split,
        spec: ImageSpec,
        stream: random.Random,
        *,
        threads: int = 2,
    ) -> None:
        self.split = split
        self.spec = spec
        self.stream = stream
        self.threads = threads
        self._decoded: dict[int, Image] = {}
        self._cached_bytes = 0

    def __len__(self) -> int:
        return len(self.split.examples)

    @property
    def classnames(self) -> tuple[str, ...]:
        """The names of the classes; labels index them."""
        return self.split.classnames

    @property
    def labels(self) -> Tensor:
        """Labels in the order of the examples, int64 (N,)."""
        return torch.tensor(self.split.labels)

    def batches(
        self,
        batch_size: int,
        *,
        drop_last: bool = False,
        crop_scale: tuple[float, float] = CROP_SCALE,
    ) -> Iterator[Batch]:
        """Endless augmented batches: pixels (B, 3, size, size) and labels (B,).

        Every epoch is a new order without replacement. `drop_last` leaves out an incomplete last
        batch, unless it is the only one (Dassl `data_manager.py`).
        """
        with self._pool() as pool:
            while True:
                order = list(range(len(self)))
                self.stream.shuffle(order)
                for start in range(0, len(order), batch_size):
                    chosen = order[start : start + batch_size]
                    if drop_last and start > 0 and len(chosen) < batch_size:
                        continue
                    yield self._augmented(chosen, pool, crop_scale)

    def augmented_once(
        self, batch_size: int = 256, crop_scale: tuple[float, float] = CROP_SCALE
    ) -> Iterator[Batch]:
        """One pass in order of the examples, each image augmented once."""
        with self._pool() as pool:
            for start in range(0, len(self), batch_size):
                chosen = list(range(start, min(start + batch_size, len(self))))
                yield self._augmented(chosen, pool, crop_scale)

    def plain(self, batch_size: int = 256) -> Iterator[Batch]:
        """One pass in order of the examples with the test-time transform."""
        return plain_batches(self.split.examples, self.spec, batch_size, threads=self.threads)

    def _augmented(
        self,
        chosen: Sequence[int],
        pool: ThreadPoolExecutor,
        crop_scale: tuple[float, float],
    ) -> Batch:
        images = _map(pool, self._decode, chosen)
        crops = [draw_crop(image.size, self.stream, crop_scale) for image in images]
        pixels = _transform(pool, partial(_augment, spec=self.spec), images, crops)
        labels = torch.tensor([self.split.examples[index].label for index in chosen])
        return pixels, labels

    def _decode(self, index: int) -> Image:
        kept = self._decoded.get(index)
        if kept is not None:
            return kept
        example = self.split.examples[index]
        image = open_image(example.image, example.key)
        size = image.width * image.height * 3
        if self._cached_bytes + size <= CACHE_BYTES:
            self._cached_bytes += size
            self._decoded[index] = image
        return image

    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(max_workers=self.threads)


def plain_batches(
    examples: Sequence[Example], spec: ImageSpec, batch_size: int = 256, *, threads: int = 2
) -> Iterator[Batch]:
    """One pass in order with the test-time transform: pixels (B, 3, size, size), labels (B,)."""

    def load(example: Example) -> np.ndarray:
        return prepare(open_image(example.image, example.key), spec)

    with ThreadPoolExecutor(max_workers=threads) as pool:
        for start in range(0, len(examples), batch_size):
            batch = examples[start : start + batch_size]
            pixels = torch.from_numpy(np.stack(list(pool.map(load, batch))))
            yield pixels, torch.tensor([example.label for example in batch])


def _augment(image: Image, crop: Crop, *, spec: ImageSpec) -> np.ndarray:
    return augment(image, crop, spec)


def _map(pool: ThreadPoolExecutor, function: Callable, items: Sequence[int]) -> list[Image]:
    return [function(item) for item in items] if len(items) < 2 else list(pool.map(function, items))


def _transform(
    pool: ThreadPoolExecutor, function: Callable, images: list[Image], crops: list[Crop]
) -> Tensor:
    small = all(image.width * image.height <= THREAD_PIXELS for image in images)
    run = map if small else pool.map
    return torch.from_numpy(np.stack(list(run(function, images, crops))))
