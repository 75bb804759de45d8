"""Images to tensors: the test-time transform, and the training augmentation.

Pillow does the resizing, so that test pixels are bit-identical to transformers' Pillow image
processors, whatever else is installed.
"""

import math
import random
from dataclasses import dataclass

import numpy as np
from PIL import Image

CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)


CLIP_STD = (0.26862954, 0.26130258, 0.27577711)


# Of an image longer than this many widths the ends are cut off before it is resized, not after:
# one with 30,000,000 pixels in a row would take terabytes.
LONGEST = 200
LARGEST_SIDE = 4096
"""Pixels of the square that goes into an image tower; known models have up to 560."""


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

    def check(self) -> None:
        """Refuses values that no image can be prepared by.

        Raises:
            ValueError: saying which; TypeError: for lists that are none.
        """
        sides, numbers = (self.size, self.resize), (self.scale, *self.mean, *self.std)
        if any(type(side) is not int or not 0 < side <= LARGEST_SIDE for side in sides):
            raise ValueError(f"sides of {sides} pixels")
        if any(type(number) not in (int, float) or not math.isfinite(number) for number in numbers):
            raise ValueError("numbers that are none")
        if not len(self.mean) == len(self.std) == 3 or 0 in self.std:
            raise ValueError("three means and three deviations are due")
        Image.Resampling(self.resample)

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


def enough_for_prediction(spec: ImageSpec) -> int:
    """The short side that suffices for the test-time transform: twice what it is resized to, so
    that the resizing filter still has pixels to average."""
    return 2 * spec.resize


def enough_for_crops(spec: ImageSpec, smallest: float) -> int:
    """The short side that suffices for training crops of at least a share `smallest` of the area:
    the smallest square one is as wide as what goes into the tower."""
    return max(math.ceil(spec.size / math.sqrt(smallest)), spec.resize)


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
    if spec.square and height > LONGEST * width:
        # As Pillow does it itself by now; before, it made such an image wide first: gigabytes.
        image = image.resize((width, target[1]), spec.resample)
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
    most baselines use 0.08 to 1; Tip-Adapter and LP++ start at 0.5.
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


def _middle(image: Image.Image) -> Image.Image:
    """The middle of an image that is far too long, any other as it is."""
    width, height = image.size
    cut = (max(width, height) - LONGEST * min(width, height)) // 2
    if cut <= 0:
        return image
    across = width > height
    return image.crop((cut, 0, width - cut, height) if across else (0, cut, width, height - cut))
