"""transformers' image processors that work with Pillow, which earlier versions call otherwise."""

import importlib
from importlib.util import find_spec
from typing import Any


def _of(family: str, name: str) -> Any:
    folder = f"transformers.models.{family}"
    new = f"{folder}.image_processing_pil_{family}"
    if find_spec(new) is not None:
        return getattr(importlib.import_module(new), f"{name}Pil")
    return getattr(importlib.import_module(f"{folder}.image_processing_{family}"), name)


CLIPImageProcessorPil = _of("clip", "CLIPImageProcessor")
SiglipImageProcessorPil = _of("siglip", "SiglipImageProcessor")
