"""The support set: batches of augmented pixels from the few labelled images of a run."""

import contextlib
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from shotfit.data.dataset import Split
from shotfit.data.decoded import DecodedImages
from shotfit.data.image_hashes import ImageHashes
from shotfit.data.prefetch import Batch, Loading, ahead, is_tiny, stack, thread_pool
from shotfit.data.transforms import (
    CROP_SCALE,
    Crop,
    ImageSpec,
    augment,
    draw_crop,
    enough_for_crops,
    prepare,
)

EMPTY: Batch = (torch.empty(0), torch.empty(0, dtype=torch.int64))


class SupportSet:
    """The labelled images that a method may learn from, as it sees them.

    The one random stream decides order and augmentation; workers only carry out what was drawn,
    so that a seed gives the same batches on any machine. Its threads start once and end with
    `close`, or when nobody holds the set any more. Of a `reduced` split, crops are not smaller than
    a share `smallest_crop` of an image's area. `hashes` are told of every image that is opened.
    """

    def __init__(
        self,
        split: Split,
        spec: ImageSpec,
        stream: random.Random,
        loading: Loading | None = None,
        *,
        smallest_crop: float = CROP_SCALE[0],
        hashes: ImageHashes | None = None,
    ) -> None:
        self.split = split
        self.spec = spec
        self.stream = stream
        self.loading = loading or Loading()
        self.smallest_crop = smallest_crop
        self._only_drawn = 0
        enough = enough_for_crops(spec, smallest_crop) if split.reduced else None
        self.images = DecodedImages(self.loading, enough, hashes)
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

    def part(self, split: Split, stream: random.Random) -> "SupportSet":
        """A support set of some of the examples, which need not be decoded again."""
        made = SupportSet(split, self.spec, stream, self.loading, smallest_crop=self.smallest_crop)
        made.images = self.images
        return made

    def decode(self, done: Callable[[int], None] | None = None) -> None:
        """Opens every image before a run, not during it, and keeps what fits.

        `done` is told how many have been opened.

        Raises:
            DataError: naming the first file that cannot be used.
        """
        for number in self._measured(range(len(self))):
            if done is not None:
                done(number)
        left = sum(not self.images.is_cached(example) for example in self.split.examples)
        if left:
            warnings.warn(
                f"{left:,} of {len(self):,} images fit neither into the memory nor on the disk "
                "that decoded images may take; each is decoded anew whenever it is used. Raise "
                "the budget (--image-memory, --image-disk).",
                stacklevel=2,
            )

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

    @contextlib.contextmanager
    def only_drawing(self, count: int) -> Iterator[None]:
        """Inside, what begins in `batches` draws so many batches and leaves them empty: a training
        that goes on later has had them before."""
        self._only_drawn = count
        try:
            yield
        finally:
            self._only_drawn = 0

    def augmented_once(
        self, batch_size: int = 256, crop_scale: tuple[float, float] = CROP_SCALE
    ) -> Iterator[Batch]:
        """One pass in order of the examples, each image augmented once."""
        return self._ahead(
            lambda stream: (
                self._augmented(indices, stream, crop_scale) for indices in self._parts(batch_size)
            )
        )

    def plain(self, batch_size: int = 256) -> Iterator[Batch]:
        """One pass in order of the examples with the test-time transform."""
        return self._ahead(lambda _: map(self._prepared, self._parts(batch_size)))

    def _parts(self, batch_size: int) -> Iterator[Sequence[int]]:
        """The examples in order, so many at a time."""
        for start in range(0, len(self), batch_size):
            yield range(start, min(start + batch_size, len(self)))

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
                # Later draws find the stream in the state that it would have without prefetching.
                self.stream.setstate(state)
                yield batch

    def _epochs(
        self,
        stream: random.Random,
        batch_size: int,
        drop_last: bool,
        crop_scale: tuple[float, float],
    ) -> Iterator[Batch]:
        left = self._only_drawn
        while True:
            order = list(range(len(self)))
            stream.shuffle(order)
            for start in range(0, len(order), batch_size):
                chosen = order[start : start + batch_size]
                if drop_last and start > 0 and len(chosen) < batch_size:
                    continue
                crops = self._crops(chosen, stream, crop_scale)
                yield self._batch(chosen, crops) if left < 1 else EMPTY
                left -= 1

    def _augmented(
        self, chosen: Sequence[int], stream: random.Random, crop_scale: tuple[float, float]
    ) -> Batch:
        return self._batch(chosen, self._crops(chosen, stream, crop_scale))

    def _crops(
        self, chosen: Sequence[int], stream: random.Random, crop_scale: tuple[float, float]
    ) -> list[Crop]:
        # Of smaller crops, a reduced image would not have the pixels.
        assert not self.split.reduced or crop_scale[0] >= self.smallest_crop
        for _ in self._measured(chosen):
            pass
        return [draw_crop(self._size(index), stream, crop_scale) for index in chosen]

    def _prepared(self, chosen: Sequence[int]) -> Batch:
        return self._batch(chosen, [None] * len(chosen))

    def _batch(self, chosen: Sequence[int], crops: Sequence[Crop | None]) -> Batch:
        examples = [self.split.examples[index] for index in chosen]
        quick = all(
            self.images.in_memory(example) and is_tiny(self._size(index))
            for index, example in zip(chosen, examples, strict=True)
        )
        run = map if quick else self._threads().map
        pixels = stack(run(self._transformed, chosen, crops), self.loading)
        labels = torch.tensor([example.label for example in examples])
        return pixels, labels.pin_memory() if self.loading.pin_memory else labels

    def _measured(self, chosen: Sequence[int]) -> Iterator[int]:
        """Decodes what has never been; only then is a size known, upright and perhaps reduced. How
        many there are so far."""
        examples = self.split.examples
        unknown = [index for index in chosen if self.images.size(examples[index]) is None]
        # Sizes, not images, come back from the threads: what is not kept must not pile up.
        yield from (n for n, _ in enumerate(self._threads().map(self._size, unknown), 1))

    def _size(self, index: int) -> tuple[int, int]:
        example = self.split.examples[index]
        return self.images.size(example) or self.images.get(example).size

    def _transformed(self, index: int, crop: Crop | None) -> np.ndarray:
        """All of the work on an image in one task: no more images that are not kept are in memory
        at a time than there are threads, however large the batch."""
        image = self.images.get(self.split.examples[index])
        return prepare(image, self.spec) if crop is None else augment(image, crop, self.spec)

    def _threads(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = thread_pool(self.loading)
        return self._pool
