"""Of which images is a result? A hash of what their files hold, whatever they are called."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image

from shotfit.data.addresses import is_address
from shotfit.data.dataset import Split
from shotfit.data.images import ImageSource
from shotfit.data.task import Task
from shotfit.system.files import read_plain

# Files whose hashes a process remembers, so that the runs of a grid read each of them once.
REMEMBERED = 1 << 18
THREADS = 4


def task_content(task: Task, targets: Mapping[str, Split] | None = None) -> str:
    """Twelve hex digits of the SHA-256 over what a task's images hold, and those of transfer
    `targets`: all that the numbers of a run depend on, in order.

    Files are hashed as they are, without being decoded. One that cannot be read counts as empty: it
    is for whoever needs its pixels to say so.
    """
    tests = [task.tests[key] for key in sorted(task.tests)]
    splits = [task.support, task.validation, *tests, *(targets or {}).values()]
    images = [example.image for split in splits for example in split.examples]
    digest = hashlib.sha256()
    for found in source_hashes(images):
        digest.update(found)
    return digest.hexdigest()[:12]


def source_hashes(images: Sequence[ImageSource]) -> list[bytes]:
    """32 bytes for each image, of what its file holds, or of its pixels where it has none."""
    files = [place for place, image in enumerate(images) if isinstance(image, str | Path)]
    with ThreadPoolExecutor(THREADS, "shotfit-contents") as threads:
        read = dict(zip(files, threads.map(lambda n: _of_file(images[n]), files), strict=True))
    return [
        read[place] if place in read else _of_memory(image) for place, image in enumerate(images)
    ]


def _of_file(image: ImageSource) -> bytes:
    assert isinstance(image, str | Path)
    if is_address(image):
        return hashlib.sha256(str(image).encode()).digest()
    path = Path(image).expanduser()
    try:
        facts = os.stat(path)
        # A file that was changed or exchanged since has another time of change, whatever its
        # modification time was set to.
        return _remembered(path, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
    except OSError:
        return hashlib.sha256().digest()


@lru_cache(REMEMBERED)
def _remembered(path: Path, *state: int) -> bytes:
    return hashlib.sha256(read_plain(path)).digest()


def _of_memory(image: ImageSource) -> bytes:
    if isinstance(image, bytes):
        return hashlib.sha256(image).digest()
    if isinstance(image, Image.Image):
        try:
            pixels = image.tobytes()
        except Exception:  # opened elsewhere, and damaged: Pillow raises whatever it runs into
            pixels = b""
        return hashlib.sha256(f"{image.mode} {image.size}".encode() + pixels).digest()
    if isinstance(image, np.ndarray):
        return hashlib.sha256(f"{image.dtype} {image.shape}".encode() + image.tobytes()).digest()
    assert callable(image)
    return source_hashes([image()])[0]
