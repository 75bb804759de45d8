"""Shifts: an embedded task as another camera, another printer or other weather would show it.

The embedded model was trained on drawings of the same kind as the tasks', so that tuning has little
of the domain to learn. A shift is a fixed transformation of every image of a task, training and
test alike; it adds no image and changes no label. `symbols@noise` is the task `symbols` under the
shift `noise`. What is random in a shift is drawn from the shift's name and the image's key, so that
a task is the same wherever it is loaded.
"""

import hashlib
from collections.abc import Callable

import numpy as np
from PIL import Image, ImageFilter

from shotfit.errors import unknown_name

Pixels = np.ndarray
"""An image as float32 (height, width, 3) from 0 to 1."""

Shift = Callable[[Pixels, np.random.Generator], Pixels]


def list_shifts() -> list[str]:
    """The names of all shifts, sorted."""
    return sorted(SHIFTS)


def shifted(image: Image.Image, shift: str, key: str) -> Image.Image:
    """An RGB image under a shift; `key` names the image in its task.

    Raises:
        UsageError: for an unknown shift.
    """
    if shift not in SHIFTS:
        raise unknown_name("shift", shift, SHIFTS)
    seed = hashlib.sha256(f"{shift}\n{key}".encode()).digest()[:8]
    generator = np.random.default_rng(int.from_bytes(seed, "big"))
    pixels = np.asarray(image.convert("RGB"), dtype=np.float32) / 255
    changed = np.clip(SHIFTS[shift](pixels, generator), 0, 1)
    return Image.fromarray((changed * 255 + 0.5).astype(np.uint8))


def noise(pixels: Pixels, generator: np.random.Generator) -> Pixels:
    """Heavy Gaussian noise, as of a sensor in the dark."""
    return pixels + generator.normal(0, 0.6, pixels.shape)


def ground(pixels: Pixels, generator: np.random.Generator) -> Pixels:
    """Printed on a coarse, coloured cloth: smooth random stains show wherever paper would."""
    height, width, _ = pixels.shape
    coarse = generator.uniform(0, 1, (6, 6, 3))
    stains = _resized(coarse, width, height)
    return pixels * (0.35 + 0.65 * stains)


def blur(pixels: Pixels, generator: np.random.Generator) -> Pixels:
    """Out of focus: a Gaussian of a fifteenth of the image's side."""
    radius = max(pixels.shape[:2]) / 15
    return _array(_picture(pixels).filter(ImageFilter.GaussianBlur(radius)))


def low_resolution(pixels: Pixels, generator: np.random.Generator) -> Pixels:
    """Seen from afar: ten pixels a side."""
    height, width, _ = pixels.shape
    small = _picture(pixels).resize((10, 10), Image.Resampling.BOX)
    return _array(small.resize((width, height), Image.Resampling.BILINEAR))


def negative(pixels: Pixels, generator: np.random.Generator) -> Pixels:
    """A film negative."""
    return 1 - pixels


def edges(pixels: Pixels, generator: np.random.Generator) -> Pixels:
    """White outlines on black: the length of the gradient of the brightness."""
    gray = pixels.mean(axis=2)
    down, right = np.gradient(gray)
    length = np.hypot(down, right)
    return np.repeat((length / max(float(length.max()), 1e-6))[..., None], 3, axis=2)


def thermal(pixels: Pixels, generator: np.random.Generator) -> Pixels:
    """A thermal camera's false colours: dark is black and blue, bright is yellow and white."""
    gray = pixels.mean(axis=2)
    return np.stack([np.interp(gray, _HEAT, channel) for channel in _HEAT_COLORS], axis=2)


def rotation(pixels: Pixels, generator: np.random.Generator) -> Pixels:
    """Turned by any angle, as objects seen from above; corners are white."""
    turned = _picture(pixels).rotate(
        float(generator.uniform(0, 360)), Image.Resampling.BILINEAR, fillcolor=(255, 255, 255)
    )
    return _array(turned)


def fog(pixels: Pixels, generator: np.random.Generator) -> Pixels:
    """Behind drifting fog: little contrast left, less in some places."""
    height, width, _ = pixels.shape
    density = _resized(generator.uniform(0.55, 0.95, (4, 4, 1)), width, height)
    return pixels * (1 - density) + 0.75 * density


def rain(pixels: Pixels, generator: np.random.Generator) -> Pixels:
    """Through streaks of rain at dusk: dark, with slanted bright lines."""
    height, width, _ = pixels.shape
    drops = (generator.uniform(0, 1, (height, width)) > 0.98).astype(np.float32)
    streak = max(2, height // 6)
    falling = sum(np.roll(drops, (step, step // 3), axis=(0, 1)) for step in range(streak))
    return 0.45 * pixels + 0.55 * np.clip(falling, 0, 1)[..., None]


_HEAT = (0.0, 0.25, 0.5, 0.75, 1.0)
_HEAT_COLORS = ((0, 0.1, 0.8, 1, 1), (0, 0, 0.1, 0.8, 1), (0, 0.6, 0.2, 0, 1))

SHIFTS: dict[str, Shift] = {
    shift.__name__: shift
    for shift in (
        blur,
        edges,
        fog,
        ground,
        low_resolution,
        negative,
        noise,
        rain,
        rotation,
        thermal,
    )
}


# By benchmarks/shifted_suite.py, from zero-shot accuracy alone; a test holds it to that rule.
SHIFTED_SUITE = (
    "animals@blur",
    "animals@ground",
    "digits@rotation",
    "flags@negative",
    "flags@rotation",
    "interface@noise",
    "objects@ground",
    "people@blur",
    "smileys@noise",
    "symbols@blur",
    "symbols@rotation",
    "travel@ground",
)
"""The declared pairs of a task and a shift, as `task@shift`: what methods are compared on where the
domain is another than the model's."""


def _picture(pixels: Pixels) -> Image.Image:
    return Image.fromarray((np.clip(pixels, 0, 1) * 255 + 0.5).astype(np.uint8))


def _array(picture: Image.Image) -> Pixels:
    return np.asarray(picture, dtype=np.float32) / 255


def _resized(values: np.ndarray, width: int, height: int) -> np.ndarray:
    """Smooth values (rows, columns, channels) over an image of that size."""
    channels = [
        np.asarray(
            Image.fromarray(values[..., channel].astype(np.float32)).resize(
                (width, height), Image.Resampling.BICUBIC
            )
        )
        for channel in range(values.shape[2])
    ]
    return np.stack(channels, axis=2)
