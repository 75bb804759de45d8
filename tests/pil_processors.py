"""transformers' image processors that work with Pillow, which earlier versions call otherwise."""

import importlib
from importlib.util import find_spec
from typing import Any

import numpy as np
from PIL import Image


def _of(family: str, name: str) -> Any:
    folder = f"transformers.models.{family}"
    new = f"{folder}.image_processing_pil_{family}"
    if find_spec(new) is not None:
        return getattr(importlib.import_module(new), f"{name}Pil")
    return getattr(importlib.import_module(f"{folder}.image_processing_{family}"), name)


CLIPImageProcessorPil = _of("clip", "CLIPImageProcessor")
SiglipImageProcessorPil = _of("siglip", "SiglipImageProcessor")


def pixels(processor: Any, image: Image.Image) -> np.ndarray:
    """What a processor makes of one image: (3, height, width).

    Those before transformers 5.5 take a row of pixels for channels, leave a picture's mode to whom
    SigLIP's are called by, and drop transparency: there the image comes as RGB over white.
    """
    if type(processor).__name__.endswith("Pil"):
        return processor(image, return_tensors="np")["pixel_values"][0]
    white = Image.new("RGBA", image.size, "white")
    image = Image.alpha_composite(white, image.convert("RGBA")).convert("RGB")
    given = {"input_data_format": "channels_last", "return_tensors": "np"}
    return processor(image, **given)["pixel_values"][0]
