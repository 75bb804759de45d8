"""Small copies of images as data addresses, for pages that load nothing."""

import base64
import io

from PIL import Image

from shotfit.data.images import ImageSource, open_image


def thumbnail(image: ImageSource, size: int = 160) -> str:
    """An image of at most so many pixels a side, as the text of a `data:` address (JPEG).

    Raises:
        DataError: for an image that cannot be read.
    """
    picture = open_image(image, enough=size)
    picture.thumbnail((size, size), Image.Resampling.LANCZOS)
    content = io.BytesIO()
    picture.save(content, "JPEG", quality=80)
    return f"data:image/jpeg;base64,{base64.b64encode(content.getvalue()).decode('ascii')}"
