"""Families of models, one file each: the file name is the model type in transformers' configs.

Each has `towers(model, tokenizer)` and `tokenize(tokenizer, texts)`.
"""

import importlib
import pkgutil
from types import ModuleType

from shotfit.errors import UsageError


def get_family(model_type: str) -> ModuleType:
    """The module of the family of this model type.

    Raises:
        UsageError: for a model type that there are no towers for.
    """
    if model_type not in {module.name for module in pkgutil.iter_modules(__path__)}:
        raise UsageError(
            f"Models of type {model_type!r} are not supported; "
            "a CLIP or fixed-resolution SigLIP dual encoder is needed."
        )
    return importlib.import_module(f"{__name__}.{model_type}")
