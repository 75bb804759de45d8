"""Decoded images of a run: each is decoded once, kept in memory, and beyond that on the disk."""

import os
import shutil
import tempfile
import weakref
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from PIL import Image

from shotfit.data.dataset import Example
from shotfit.data.image_hashes import ImageHashes
from shotfit.data.images import opened_image, reduced
from shotfit.data.prefetch import Loading, name_in_errors

# Pillow keeps RGB in four bytes a pixel; on the disk it takes three.
MEMORY_PIXEL, DISK_PIXEL = 4, 3


class Spilled(NamedTuple):
    """Where in the file the pixels of an image lie."""

    offset: int
    size: tuple[int, int]


class DecodedImages:
    """Decodes examples, and keeps what fits into the budgets of `Loading`.

    An image is known by its example's key. With `enough`, it comes at the nearest reduction whose
    short side has at least so many pixels (`open_image`); with `hashes` it is first opened at its
    full size, and hashed. Threads may ask at the same time.
    """

    def __init__(
        self, loading: Loading, enough: int | None = None, hashes: ImageHashes | None = None
    ) -> None:
        self.loading = loading
        self.enough = enough
        self.hashes = hashes
        self.memory_bytes = 0
        """What is kept in memory; at most `loading.memory`."""
        self.disk_bytes = 0
        """What is kept on the disk; at most `loading.disk`, and half of what is free there."""
        self._cached: dict[str, Image.Image] = {}
        self._spilled: dict[str, Spilled] = {}
        self._sizes: dict[str, tuple[int, int]] = {}
        self._lock = Lock()
        self._file = None
        self._room = loading.disk

    def get(self, example: Example) -> Image.Image:
        """The upright RGB image of an example.

        Raises:
            DataError: naming the file, when it cannot be used.
        """
        cached = self._cached.get(example.key)
        if cached is not None:
            return cached
        spilled = self._spilled.get(example.key)
        if spilled is not None:
            return self._read(spilled)
        image = self._open(example)
        with self._lock:
            self._sizes[example.key] = image.size
            self._keep(example.key, image)
        return image

    def _open(self, example: Example) -> Image.Image:
        name = name_in_errors(example)
        whole = self.hashes is not None
        with opened_image(example.image, name, enough=None if whole else self.enough) as image:
            if self.hashes is None:
                return image
            self.hashes.add(example, image)
            return image if self.enough is None else reduced(image, self.enough)

    def size(self, example: Example) -> tuple[int, int] | None:
        """(width, height) as `get` gives it, if that has ever been asked for it."""
        return self._sizes.get(example.key)

    def in_memory(self, example: Example) -> bool:
        """Whether the image is there without any work."""
        return example.key in self._cached

    def is_cached(self, example: Example) -> bool:
        """Whether the image need not be decoded again."""
        return example.key in self._cached or example.key in self._spilled

    def _keep(self, key: str, image: Image.Image) -> None:
        if key in self._cached or key in self._spilled:
            return
        pixels = image.width * image.height
        if self.memory_bytes + pixels * MEMORY_PIXEL <= self.loading.memory:
            self.memory_bytes += pixels * MEMORY_PIXEL
            self._cached[key] = image
        elif self.disk_bytes + pixels * DISK_PIXEL <= self._room:
            self._spill(key, image)

    def _spill(self, key: str, image: Image.Image) -> None:
        try:
            if self._file is None:
                folder = spill_folder()
                self._room = min(self._room, shutil.disk_usage(folder).free // 2)
                # Without a name: whatever ends this process, nothing stays.
                self._file = tempfile.TemporaryFile(dir=folder, prefix="shotfit-images-")  # noqa: SIM115
                weakref.finalize(self, self._file.close)
                if image.width * image.height * DISK_PIXEL > self._room:
                    return
            self._file.seek(self.disk_bytes)
            self._file.write(image.tobytes())
            self._file.flush()
        except OSError:
            # A full or read-only disk: what is there stays, the rest is decoded again.
            self._room = self.disk_bytes
            return
        self._spilled[key] = Spilled(self.disk_bytes, image.size)
        self.disk_bytes += image.width * image.height * DISK_PIXEL

    def _read(self, spilled: Spilled) -> Image.Image:
        assert self._file is not None
        width, height = spilled.size
        with self._lock:
            self._file.seek(spilled.offset)
            pixels = self._file.read(width * height * DISK_PIXEL)
        return Image.frombuffer("RGB", spilled.size, pixels, "raw", "RGB", 0, 1)


def spill_folder() -> Path:
    """Where large temporary files go: TMPDIR if it is set, or else /var/tmp, since /tmp is memory
    on many systems (Filesystem Hierarchy Standard 5.15)."""
    large = Path("/var/tmp")
    chosen = not os.environ.get("TMPDIR") and large.is_dir() and os.access(large, os.W_OK)
    return large if chosen else Path(tempfile.gettempdir())
