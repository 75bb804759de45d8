"""Images in, tensors out: opening, the test-time transform, and the training augmentation.

Pillow does the resizing, so that test pixels are bit-identical to transformers' Pillow image
processors, whatever else is installed.
"""

import io
import math
import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image, UnidentifiedImageError

from shotfit.errors import DataError, UsageError

CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")
# Pillow warns from here on and refuses twice as much; a photo of this many pixels is an attack.
MAX_PIXELS = 178_956_970
# Of an image longer than this many widths the ends are cut off before it is resized, not after:
# one with 30,000,000 pixels in a row would take terabytes.
LONGEST = 200

TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""How an image is made upright, by its EXIF orientation."""

ImageSource = str | Path | bytes | Image.Image | np.ndarray


@dataclass(frozen=True)
class ImageSpec:
    """What a backbone's image tower expects: the facts of its preprocessor config.

    `size` is the side of the square that goes in; `resize` the length that the short side (or,
    with `square`, both sides) is brought to before the centre crop.
    """

    size: int = 224
    resize: int = 224
    square: bool = False
    resample: int = Image.Resampling.BICUBIC
    scale: float = 1 / 255
    mean: tuple[float, float, float] = CLIP_MEAN
    std: tuple[float, float, float] = CLIP_STD

    def normalize(self, image: Image.Image) -> np.ndarray:
        """An RGB image as float32 (3, height, width), scaled and normalised.

        The 256 possible values of a channel are computed once per call and looked up: the same
        bits as transformers' rescale and normalise, without their float64 pass over the image.
        """
        pixels = np.asarray(image)
        levels = (np.arange(256, dtype=np.float64) * self.scale).astype(np.float32)
        out = np.empty((3, *pixels.shape[:2]), dtype=np.float32)
        for channel in range(3):
            mean, std = np.float32(self.mean[channel]), np.float32(self.std[channel])
            np.take((levels - mean) / std, pixels[:, :, channel], out=out[channel], mode="clip")
        return out


def open_image(
    source: ImageSource, name: str | None = None, *, enough: int | None = None
) -> Image.Image:
    """An upright RGB image from a file, bytes, a PIL image or a uint8 array (height, width[, 3]).

    EXIF orientation is applied; where the EXIF is damaged, the image is taken as it lies, as
    viewers do. Transparency is laid over white, as transformers' image processors
    do. With `enough`, a JPEG may come at 1/2, 1/4 or 1/8 of its size, which is decoded in a
    fraction of the time, as long as its short side keeps so many pixels.

    Raises:
        DataError: naming the file, when it is missing, unreadable, truncated, or too large.
        UsageError: for an object that is no image.
    """
    name = name or (str(source) if isinstance(source, str | Path) else "the given image")
    if isinstance(source, np.ndarray):
        return _to_rgb(_from_array(source))
    try:
        if isinstance(source, Image.Image):
            image = source
        elif isinstance(source, bytes):
            image = Image.open(io.BytesIO(source))
        elif isinstance(source, str | Path):
            # Read whole: Pillow leaves a file open when decoding fails.
            image = Image.open(io.BytesIO(Path(source).expanduser().read_bytes()))
        else:
            raise UsageError(
                f"An image must be a path, bytes, a PIL image or an array, "
                f"got {type(source).__name__}."
            )
        # Pillow only warns up to twice as many, and making an error of its warning would change
        # the filters of all threads.
        if image.width * image.height > MAX_PIXELS:
            raise Image.DecompressionBombError
        if enough is not None:
            _draft(image, enough)
        image.load()
        return _to_rgb(_upright(image))
    except (UsageError, MemoryError):
        raise
    except FileNotFoundError as error:
        raise DataError(f"There is no image file {name}.") from error
    except UnidentifiedImageError as error:
        raise DataError(f"{name} is not an image that Pillow can read.") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise DataError(f"{name} claims more than {MAX_PIXELS:,} pixels; refused.") from error
    except Exception as error:
        # Of a damaged file, Pillow's decoders let out whatever they stumble over.
        why = str(error) or type(error).__name__
        raise DataError(f"{name} cannot be read as an image: {why}.") from error


def draft_side(spec: ImageSpec) -> int:
    """The short side that a drafted image keeps for the test-time transform: twice what it is
    resized to, so that the resizing filter still has pixels to average."""
    return 2 * spec.resize


def draft_side_of_crops(spec: ImageSpec, smallest: float) -> int:
    """The short side that a drafted image keeps for training: its narrowest crop, of a share
    `smallest` of the area and an aspect ratio of 3/4, is as wide as what goes into the tower."""
    return math.ceil(spec.size / math.sqrt(smallest * 3 / 4))


def prepare(image: Image.Image, spec: ImageSpec) -> np.ndarray:
    """The test-time transform: resize, centre crop, normalise; float32 (3, size, size)."""
    if not spec.square:
        image = _middle(image)
    width, height = image.size
    if spec.square:
        target = (spec.resize, spec.resize)
    elif width <= height:
        target = (spec.resize, int(spec.resize * height / width))
    else:
        target = (int(spec.resize * width / height), spec.resize)
    image = image.resize(target, spec.resample)
    left, top = (target[0] - spec.size) // 2, (target[1] - spec.size) // 2
    return spec.normalize(image.crop((left, top, left + spec.size, top + spec.size)))


@dataclass(frozen=True)
class Crop:
    """One draw of the training augmentation: the box to cut out, and whether to mirror it."""

    box: tuple[int, int, int, int]
    flip: bool


# The bounds of torchvision's random-resized-crop, which the paper and most baselines use.
CROP_SCALE = (0.08, 1.0)


def draw_crop(
    size: tuple[int, int], stream: random.Random, scale: tuple[float, float] = CROP_SCALE
) -> Crop:
    """Random-resized-crop with aspect ratios 3/4 to 4/3, and a mirror image half the time.

    `size` is (width, height); `scale` bounds the crop's share of the image's area. The paper and
    most baselines use 0.08 to 1 (methods 2.2); Tip-Adapter and LP++ start at 0.5.
    """
    width, height = size
    box = _draw_box(width, height, stream, scale)
    return Crop(box, stream.random() < 0.5)


def _draw_box(
    width: int, height: int, stream: random.Random, scale: tuple[float, float]
) -> tuple[int, int, int, int]:
    bounds = math.log(3 / 4), math.log(4 / 3)
    for _ in range(10):
        area = width * height * stream.uniform(*scale)
        ratio = math.exp(stream.uniform(*bounds))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            left, top = stream.randint(0, width - w), stream.randint(0, height - h)
            return left, top, left + w, top + h
    # An image too long for any draw: the largest centred box within the ratios.
    w = min(width, round(height * 4 / 3))
    h = min(height, round(width * 4 / 3))
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h


def augment(image: Image.Image, crop: Crop, spec: ImageSpec) -> np.ndarray:
    """The training transform with its random draw given: float32 (3, size, size)."""
    # Cutting before resizing matters: resizing with a box lets the filter see beyond the box.
    patch = image.crop(crop.box).resize((spec.size, spec.size), spec.resample)
    if crop.flip:
        patch = patch.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return spec.normalize(patch)


def _draft(image: Image.Image, enough: int) -> None:
    shrunk = enough / min(image.size)
    if shrunk < 1:
        # Of the sizes that the format offers, Pillow takes the smallest that is not below this.
        image.draft(None, (math.ceil(image.width * shrunk), math.ceil(image.height * shrunk)))


def _upright(image: Image.Image) -> Image.Image:
    """`ImageOps.exif_transpose` as far as pixels go. That one also writes the EXIF anew without the
    orientation, which fails for values that could be read."""
    try:
        turn = TURNS.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:
        turn = None
    return image.copy() if turn is None else image.transpose(turn)


def _middle(image: Image.Image) -> Image.Image:
    """The middle of an image that is far too long, any other as it is."""
    width, height = image.size
    cut = (max(width, height) - LONGEST * min(width, height)) // 2
    if cut <= 0:
        return image
    across = width > height
    return image.crop((cut, 0, width - cut, height) if across else (0, cut, width, height - cut))


def _to_rgb(image: Image.Image) -> Image.Image:
    if "A" in image.getbands() or image.info.get("transparency") is not None:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, image).convert("RGB")
    if image.mode == "RGB":
        return image
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
    return image.convert("RGB")


def _from_array(array: np.ndarray) -> Image.Image:
    gray = array.ndim == 2
    color = array.ndim == 3 and array.shape[2] in (3, 4)
    if array.dtype != np.uint8 or not (gray or color):
        raise UsageError(
            "An image array must be uint8 of shape (height, width) or (height, width, 3), "
            f"got {array.dtype} of shape {array.shape}."
        )
    return Image.fromarray(array)
