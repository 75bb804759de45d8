"""Small copies of images, also as data addresses for pages that load nothing."""

import base64
import io

from PIL import Image

from shotfit.data.images import ImageSource, open_image


def small_picture(image: ImageSource, size: int = 256) -> Image.Image:
    """An image of at most so many pixels a side.

    Raises:
        DataError: for an image that cannot be read.
    """
    picture = open_image(image, enough=size)
    picture.thumbnail((size, size), Image.Resampling.LANCZOS)
    return picture


def thumbnail(image: ImageSource, size: int = 160) -> str:
    """An image of at most so many pixels a side, as the text of a `data:` address (JPEG).

    Raises:
        DataError: for an image that cannot be read.
    """
    picture = small_picture(image, size)
    content = io.BytesIO()
    picture.save(content, "JPEG", quality=80)
    return f"data:image/jpeg;base64,{base64.b64encode(content.getvalue()).decode('ascii')}"
