"""Which image is this? A hash of what is seen, so that an image is known again wherever it lies."""

import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from PIL import Image
from torch import Tensor

from shotfit.data.dataset import Example
from shotfit.data.images import ImageSource, opened_image
from shotfit.errors import DataError

DIGEST_BYTES = 16
# Rows that are hashed at a time, so that no second copy of a large picture is made.
ROWS = 1024


def image_hash(image: ImageSource) -> bytes:
    """Sixteen bytes of the SHA-256 over an image's size and its pixels, upright and in RGB.

    A file, its bytes, and the picture that was opened from it are the same image; one that was
    scaled, cropped or compressed again is another.

    Raises:
        DataError: for an image that cannot be read.
    """
    with opened_image(image) as picture:
        return picture_hash(picture)


def picture_hash(picture: Image.Image) -> bytes:
    """`image_hash` of what `open_image` gave at its full size."""
    digest = hashlib.sha256(f"{picture.width}x{picture.height}".encode())
    for top in range(0, picture.height, ROWS):
        bottom = min(picture.height, top + ROWS)
        digest.update(picture.crop((0, top, picture.width, bottom)).tobytes())
    return digest.digest()[:DIGEST_BYTES]


def image_hashes(images: Sequence[ImageSource], workers: int = 4) -> list[bytes]:
    """`image_hash` of each image, in order.

    Raises:
        DataError: for the first image that cannot be read.
    """
    with ThreadPoolExecutor(max_workers=workers) as threads:
        return list(threads.map(image_hash, images))


class ImageHashes:
    """The hashes of examples' images, by the examples' keys, as they become known: who opens an
    image at its full size need not open it again for its hash."""

    def __init__(self) -> None:
        self._known: dict[str, bytes] = {}

    def add(self, example: Example, picture: Image.Image) -> None:
        """Notes the hash of an example whose picture, at its full size, this is."""
        self._known[example.key] = picture_hash(picture)

    def of(self, examples: Sequence[Example]) -> list[bytes]:
        """The hash of each example; images that nobody has opened yet are opened.

        Raises:
            DataError: for the first image that cannot be read.
        """
        unknown = [example for example in examples if example.key not in self._known]
        found = image_hashes([example.image for example in unknown])
        self._known.update(zip((e.key for e in unknown), found, strict=True))
        return [self._known[example.key] for example in examples]


def hashes_as_tensors(hashes: frozenset[bytes] | None) -> dict[str, Tensor]:
    """What is saved of them: "hashes", uint8 (images, `DIGEST_BYTES`), in an order that says
    nothing; empty for None."""
    if hashes is None:
        return {}
    values = [list(one) for one in sorted(hashes)]
    return {"hashes": torch.tensor(values, dtype=torch.uint8).view(len(values), DIGEST_BYTES)}


def hashes_of_tensors(tensors: Mapping[str, Tensor]) -> frozenset[bytes] | None:
    """What `hashes_as_tensors` saved; None where there is nothing of it.

    Raises:
        DataError: for a tensor that holds no hashes.
    """
    saved = tensors.get("hashes")
    if saved is None:
        return None
    if saved.dtype != torch.uint8 or saved.shape[1:] != (DIGEST_BYTES,):
        raise DataError(f"A tensor of shape {tuple(saved.shape)} holds no hashes of images.")
    return frozenset(bytes(one) for one in saved.tolist())
