"""Batches of pixels: augmented and endless for training, in order and once for everything else.

Threads do the work: Pillow lets go of the interpreter while it decodes and resizes.
"""

import contextlib
import os
import random
import re
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import TypeVar

import numpy as np
import torch
from PIL.Image import Image
from torch import Tensor

from shotfit.data.dataset import Example, Split
from shotfit.data.images import (
    CROP_SCALE,
    Crop,
    ImageSource,
    ImageSpec,
    augment,
    draft_side,
    draft_side_of_crops,
    draw_crop,
    open_image,
    prepare,
)
from shotfit.errors import DataError, UsageError

# Below this many pixels an image is transformed faster than a thread can be asked to do it, and
# what a thread prepares ahead of tiny images costs the step more than it saves.
THREAD_PIXELS = 128 * 128
# Pillow keeps RGB in four bytes a pixel.
PIXEL_BYTES = 4

T = TypeVar("T")
Batch = tuple[Tensor, Tensor]
Named = tuple[ImageSource, str | None]
"""An image and what to call it in an error; None calls it by its path."""


@dataclass(frozen=True)
class Loading:
    """How images get from files into batches: what that costs, never what comes out."""

    memory: int = 2 << 30
    """Bytes of decoded images that a support set keeps; others are decoded anew each time, one by
    each thread."""
    workers: int | None = None
    """Threads that decode and transform; None takes one for each processor, 16 at most."""
    prefetch: int = 2
    """Batches prepared while a step computes; 0 prepares each when it is asked for."""
    pin_memory: bool = False
    """Page-locked batches, which an accelerator fetches by itself."""

    @property
    def threads(self) -> int:
        """The number of threads meant by `workers`."""
        return self.workers or min(16, os.cpu_count() or 1)


def memory_bytes(amount: int | str) -> int:
    """Bytes of a number, or of words such as "2GB", "1.5GiB" or "500MB".

    Raises:
        UsageError: for what is none.
    """
    found = re.fullmatch(r"([\d.]+)\s*([kmgt]?)(i?)b?", str(amount).strip().lower())
    try:
        if found is None:
            raise ValueError
        number, prefix, binary = found.groups()
        return int(float(number) * (1024 if binary else 1000) ** " kmgt".index(prefix or " "))
    except ValueError:
        raise UsageError(f"Memory is an amount such as 2GB or 500MB, got {amount!r}.") from None


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
        self._kept_bytes = 0
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
    def kept_bytes(self) -> int:
        """What the decoded images take that are kept; at most `loading.memory`."""
        return self._kept_bytes

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
        large = (not _tiny(self._size(index)) for index in range(len(self)))
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
        quick = all(map(_tiny, sizes)) and all(index in self._decoded for index in chosen)
        run = map if quick else self._threads().map
        pixels = _stack(run(self._augment, chosen, crops), self.loading)
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
        image = open_image(example.image, _name(example), enough=self._enough)
        size = image.width * image.height * PIXEL_BYTES
        with self._lock:
            self._sizes[index] = image.size
            if index not in self._decoded and self._kept_bytes + size <= self.loading.memory:
                self._kept_bytes += size
                self._decoded[index] = image
        return image

    def _augment(self, index: int, crop: Crop) -> np.ndarray:
        """All of the work on an image in one task: no more images that are not kept are in memory
        at a time than there are threads, however large the batch."""
        return augment(self._decode(index), crop, self.spec)

    def _threads(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = _pool(self.loading)
        return self._pool


def batches_per_epoch(images: int, batch_size: int, drop_last: bool) -> int:
    """Batches in one pass of `SupportSet.batches` over so many images, never less than one."""
    full, rest = divmod(images, batch_size)
    return max(1, full if drop_last else full + (rest > 0))


@dataclass(frozen=True)
class Prepared:
    """A batch for a model to answer: `pixels` (B, 3, size, size) of the images that can be read,
    in order, and the errors of the others by their place in `images`. `tiny` as long as no image
    has been large so far; one that cannot be read might have been."""

    images: list[ImageSource]
    pixels: Tensor
    broken: dict[int, DataError]
    tiny: bool


def prepared_batches(
    images: Iterable[Named],
    spec: ImageSpec,
    batch_size: int,
    *,
    draft: bool = False,
    loading: Loading | None = None,
) -> Generator[Prepared, None, None]:
    """The images in order with the test-time transform, in constant memory: `images` is read as
    far as batches are prepared ahead. Closing the generator ends its threads.

    Raises:
        UsageError: for an object that is no image.
    """
    loading = loading or Loading()
    enough = draft_side(spec) if draft else None
    with _pool(loading) as pool:
        made = _prepare(iter(images), spec, batch_size, enough, loading, pool)
        for batch in made:
            yield batch
            if not batch.tiny:
                break
        else:
            return
        with contextlib.closing(ahead(made, loading.prefetch)) as rest:
            yield from rest


def plain_batches(
    split: Split, spec: ImageSpec, batch_size: int = 256, loading: Loading | None = None
) -> Iterator[Batch]:
    """One pass in order with the test-time transform: pixels (B, 3, size, size), labels (B,).

    Raises:
        DataError: for an image that cannot be read.
    """
    labels = torch.tensor(split.labels)
    named = ((example.image, _name(example)) for example in split.examples)
    batches = prepared_batches(named, spec, batch_size, draft=split.draft, loading=loading)
    start = 0
    with contextlib.closing(batches):
        for batch in batches:
            for error in batch.broken.values():
                raise error
            end = start + len(batch.images)
            yield batch.pixels, labels[start:end]
            start = end


def ahead(items: Iterator[T], count: int) -> Generator[T, None, None]:
    """`items` in their order, up to `count` of them computed by a thread before they are asked
    for. The thread has ended when this generator is closed; 0 needs none."""
    if count < 1:
        yield from items
        return
    waiting: deque[Future[T | None]] = deque()
    with ThreadPoolExecutor(1, "shotfit-ahead") as thread:
        try:
            for _ in range(count):
                waiting.append(thread.submit(next, items, None))
            while (item := waiting.popleft().result()) is not None:
                waiting.append(thread.submit(next, items, None))
                yield item
        finally:
            for future in waiting:
                future.cancel()


def _prepare(
    images: Iterator[Named],
    spec: ImageSpec,
    batch_size: int,
    enough: int | None,
    loading: Loading,
    pool: ThreadPoolExecutor,
) -> Iterator[Prepared]:
    def load(named: Named) -> tuple[np.ndarray | DataError, bool]:
        try:
            image = open_image(*named, enough=enough)
        except DataError as error:
            return error, False
        return prepare(image, spec), _tiny(image.size)

    run: Callable = pool.map
    tiny = True
    while named := list(islice(images, batch_size)):
        loaded = list(run(load, named))
        tiny = tiny and all(small for _, small in loaded)
        run = map if tiny else pool.map
        found = [item for item, _ in loaded if not isinstance(item, DataError)]
        yield Prepared(
            images=[image for image, _ in named],
            pixels=_stack(found, loading) if found else torch.zeros(0, 3, spec.size, spec.size),
            broken={n: item for n, (item, _) in enumerate(loaded) if isinstance(item, DataError)},
            tiny=tiny,
        )


def _name(example: Example) -> str | None:
    """Files are called by their whole path; bytes and pictures have no name of their own."""
    return None if isinstance(example.image, Path) else example.key


def _tiny(size: tuple[int, int]) -> bool:
    return size[0] * size[1] <= THREAD_PIXELS


def _stack(arrays: Iterable[np.ndarray], loading: Loading) -> Tensor:
    pixels = torch.from_numpy(np.stack(list(arrays)))
    return pixels.pin_memory() if loading.pin_memory else pixels


def _pool(loading: Loading) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(loading.threads, "shotfit-images")
