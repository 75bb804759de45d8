"""What requests bring: images as bytes, base64 or addresses, within the server's limits."""

import base64
import binascii

import numpy as np

from shotfit.data.images import opened_image, pixels_of
from shotfit.data.transforms import ImageSpec, prepare
from shotfit.data.web import fetch
from shotfit.errors import DataError
from shotfit.serve.settings import Settings


class Refused(Exception):
    """A request that is not answered: a status of HTTP and the reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def from_base64(text: str) -> bytes:
    """The bytes of an image.

    Raises:
        Refused: 422 for text that is not base64.
    """
    try:
        return base64.b64decode(text.partition("base64,")[2] or text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Refused(422, f"An image is not valid base64: {error}") from error


def from_address(url: str, settings: Settings) -> bytes:
    """The bytes at an address on the web.

    Raises:
        Refused: 403 where that is not allowed, 422 for what cannot be fetched.
    """
    if not settings.allow_urls:
        raise Refused(403, "This server fetches no addresses; send the image itself.")
    try:
        return fetch(url)
    except DataError as error:
        raise Refused(422, str(error)) from error


def check_count(count: int, settings: Settings) -> None:
    """Whether a request may have so many images.

    Raises:
        Refused: 422 for none, 413 for too many.
    """
    if not count:
        raise Refused(422, "There is no image in this request.")
    if count > settings.max_images:
        raise Refused(413, f"At most {settings.max_images} images at once, got {count}.")


def prepared(name: str, content: bytes, spec: ImageSpec, settings: Settings) -> np.ndarray:
    """An image as the model takes it, (3, size, size).

    Raises:
        Refused: 422 for one that cannot be read, 413 for one that is too large.
    """
    try:
        # Known from the header, before anything is decoded.
        pixels = pixels_of(content, name)
        if pixels > settings.max_pixels:
            raise Refused(413, f"{name} has {pixels:,} pixels; at most {settings.max_pixels:,}.")
        with opened_image(content, name) as image:
            return prepare(image, spec)
    except DataError as error:
        raise Refused(422, str(error)) from error
