"""Images prepared by threads ahead of their use: batches in order, with the test-time transform.

Threads do the work: Pillow lets go of the interpreter while it decodes and resizes.
"""

import contextlib
import os
import re
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from shotfit.data.dataset import Example, Split
from shotfit.data.images import ImageSource, opened_image
from shotfit.data.transforms import (
    ImageSpec,
    enough_for_prediction,
    prepare,
)
from shotfit.errors import DataError, UsageError

# Below this many pixels an image is transformed faster than a thread can be asked to do it, and
# what a thread prepares ahead of tiny images costs the step more than it saves.
THREAD_PIXELS = 128 * 128

T = TypeVar("T")
Batch = tuple[Tensor, Tensor]
Named = tuple[ImageSource, str | None]
"""An image and what to call it in an error; None calls it by its path."""


@dataclass(frozen=True)
class Loading:
    """How images get from files into batches: what that costs, never what comes out."""

    memory: int = 2 << 30
    """Bytes of decoded images that a support set keeps in memory."""
    disk: int = field(default=16 << 30, kw_only=True)
    """Bytes of those beyond it that it keeps on the disk until it ends, at most half of what is
    free there; others are decoded anew each time, one by each thread."""
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
        UsageError: for anything else.
    """
    found = re.fullmatch(r"([\d.]+)\s*([kmgt]?)(i?)b?", str(amount).strip().lower())
    try:
        if found is None:
            raise ValueError
        number, prefix, binary = found.groups()
        return int(float(number) * (1024 if binary else 1000) ** " kmgt".index(prefix or " "))
    except ValueError:
        raise UsageError(f"Memory is an amount such as 2GB or 500MB, got {amount!r}.") from None


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
    reduced: bool = False,
    loading: Loading | None = None,
) -> Generator[Prepared, None, None]:
    """The images in order with the test-time transform, in constant memory: `images` is read as
    far as batches are prepared ahead. Closing the generator ends its threads.

    Raises:
        UsageError: for an object that is not an image.
    """
    loading = loading or Loading()
    enough = enough_for_prediction(spec) if reduced else None
    with thread_pool(loading) as pool:
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
    named = ((example.image, name_in_errors(example)) for example in split.examples)
    batches = prepared_batches(named, spec, batch_size, loading=loading)
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
            with opened_image(*named, enough=enough) as image:
                return prepare(image, spec), is_tiny(image.size)
        except DataError as error:
            return error, False

    run: Callable = pool.map
    tiny = True
    while named := list(islice(images, batch_size)):
        loaded = list(run(load, named))
        tiny = tiny and all(small for _, small in loaded)
        run = map if tiny else pool.map
        found = [item for item, _ in loaded if not isinstance(item, DataError)]
        yield Prepared(
            images=[image for image, _ in named],
            pixels=stack(found, loading) if found else torch.zeros(0, 3, spec.size, spec.size),
            broken={n: item for n, (item, _) in enumerate(loaded) if isinstance(item, DataError)},
            tiny=tiny,
        )


def name_in_errors(example: Example) -> str | None:
    """Files are called by their whole path; bytes and pictures have no name of their own."""
    return None if isinstance(example.image, Path) else example.key


def is_tiny(size: tuple[int, int]) -> bool:
    return size[0] * size[1] <= THREAD_PIXELS


def stack(arrays: Iterable[np.ndarray], loading: Loading) -> Tensor:
    pixels = torch.from_numpy(np.stack(list(arrays)))
    return pixels.pin_memory() if loading.pin_memory else pixels


def thread_pool(loading: Loading) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(loading.threads, "shotfit-images")
