"""The support set: batches of augmented pixels from the few labelled images of a run."""

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

import numpy as np
import torch
from PIL.Image import Image
from torch import Tensor

from shotfit.data.dataset import Split
from shotfit.data.images import open_image
from shotfit.data.prefetch import (
    Batch,
    Loading,
    ahead,
    is_tiny,
    name_in_errors,
    plain_batches,
    stack,
    thread_pool,
)
from shotfit.data.transforms import (
    CROP_SCALE,
    Crop,
    ImageSpec,
    augment,
    draft_side_of_crops,
    draw_crop,
)

# Pillow keeps RGB in four bytes a pixel.
PIXEL_BYTES = 4


class SupportSet:
    """The labelled images that a method may learn from, as it sees them.

    The one random stream decides order and augmentation; workers only carry out what was drawn,
    so that a seed gives the same batches on any machine. Its threads start once and end with
    `close`, or when nobody holds the set any more.
    """

    def __init__(
        self,
        split: Split,
        spec: ImageSpec,
        stream: random.Random,
        loading: Loading | None = None,
    ) -> None:
        self.split = split
        self.spec = spec
        self.stream = stream
        self.loading = loading or Loading()
        self._enough = draft_side_of_crops(spec, CROP_SCALE[0]) if split.draft else None
        self._decoded: dict[int, Image] = {}
        self._sizes: dict[int, tuple[int, int]] = {}
        self._cached_bytes = 0
        self._lock = Lock()
        self._pool: ThreadPoolExecutor | None = None

    def __len__(self) -> int:
        return len(self.split.examples)

    def __enter__(self) -> "SupportSet":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def classnames(self) -> tuple[str, ...]:
        """The names of the classes; labels index them."""
        return self.split.classnames

    @property
    def labels(self) -> Tensor:
        """Labels in the order of the examples, int64 (N,)."""
        return torch.tensor(self.split.labels)

    @property
    def cached_bytes(self) -> int:
        """What the decoded images take that are kept; at most `loading.memory`."""
        return self._cached_bytes

    def decode(self) -> None:
        """Opens every image before a run, not during it, and keeps what fits.

        Raises:
            DataError: naming the first file that cannot be used.
        """
        self._measure(range(len(self)))

    def close(self) -> None:
        """Ends the threads; asking for batches afterwards starts new ones."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()

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
        return self._ahead(
            lambda stream: self._epochs(stream, batch_size, drop_last, crop_scale),
        )

    def augmented_once(
        self, batch_size: int = 256, crop_scale: tuple[float, float] = CROP_SCALE
    ) -> Iterator[Batch]:
        """One pass in order of the examples, each image augmented once."""
        chosen = [
            range(start, min(start + batch_size, len(self)))
            for start in range(0, len(self), batch_size)
        ]
        return self._ahead(
            lambda stream: (self._augmented(indices, stream, crop_scale) for indices in chosen)
        )

    def plain(self, batch_size: int = 256) -> Iterator[Batch]:
        """One pass in order of the examples with the test-time transform."""
        return plain_batches(self.split, self.spec, batch_size, self.loading)

    def _ahead(self, make: Callable[[random.Random], Iterator[Batch]]) -> Iterator[Batch]:
        """What `make` makes of the random stream, ahead of its use where that is worth it."""
        # One large image is enough. A search, so that without `decode` it ends at the first one.
        large = (not is_tiny(self._size(index)) for index in range(len(self)))
        if not self.loading.prefetch or not any(large):
            yield from make(self.stream)
            return
        stream = random.Random()
        stream.setstate(self.stream.getstate())
        made = ((batch, stream.getstate()) for batch in make(stream))
        with contextlib.closing(ahead(made, self.loading.prefetch)) as batches:
            for batch, state in batches:
                # Who draws after this batch finds the stream as it is without prefetch.
                self.stream.setstate(state)
                yield batch

    def _epochs(
        self,
        stream: random.Random,
        batch_size: int,
        drop_last: bool,
        crop_scale: tuple[float, float],
    ) -> Iterator[Batch]:
        while True:
            order = list(range(len(self)))
            stream.shuffle(order)
            for start in range(0, len(order), batch_size):
                chosen = order[start : start + batch_size]
                if drop_last and start > 0 and len(chosen) < batch_size:
                    continue
                yield self._augmented(chosen, stream, crop_scale)

    def _augmented(
        self, chosen: Sequence[int], stream: random.Random, crop_scale: tuple[float, float]
    ) -> Batch:
        self._measure(chosen)
        sizes = [self._sizes[index] for index in chosen]
        crops = [draw_crop(size, stream, crop_scale) for size in sizes]
        quick = all(map(is_tiny, sizes)) and all(index in self._decoded for index in chosen)
        run = map if quick else self._threads().map
        pixels = stack(run(self._augment, chosen, crops), self.loading)
        labels = torch.tensor([self.split.examples[index].label for index in chosen])
        return pixels, labels.pin_memory() if self.loading.pin_memory else labels

    def _measure(self, chosen: Sequence[int]) -> None:
        """Decodes what has never been; only then is a size known, upright and perhaps drafted."""
        unknown = [index for index in chosen if index not in self._sizes]
        # Sizes, not images, come back from the threads: what is not kept must not pile up.
        for _ in self._threads().map(self._size, unknown):
            pass

    def _size(self, index: int) -> tuple[int, int]:
        return self._sizes.get(index) or self._decode(index).size

    def _decode(self, index: int) -> Image:
        kept = self._decoded.get(index)
        if kept is not None:
            return kept
        example = self.split.examples[index]
        image = open_image(example.image, name_in_errors(example), enough=self._enough)
        size = image.width * image.height * PIXEL_BYTES
        with self._lock:
            self._sizes[index] = image.size
            if index not in self._decoded and self._cached_bytes + size <= self.loading.memory:
                self._cached_bytes += size
                self._decoded[index] = image
        return image

    def _augment(self, index: int, crop: Crop) -> np.ndarray:
        """All of the work on an image in one task: no more images that are not kept are in memory
        at a time than there are threads, however large the batch."""
        return augment(self._decode(index), crop, self.spec)

    def _threads(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = thread_pool(self.loading)
        return self._pool
