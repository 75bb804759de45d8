"""The pretrained model of a classifier as it was, and what its first stage has made of it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from shotfit.backbone import Backbone
from shotfit.backbone.hub import find_checkpoint, read_image_spec, read_transformers
from shotfit.classifier import FewShotClassifier
from shotfit.errors import DataError, UsageError
from shotfit.methods.base import Method
from shotfit.methods.linear import LinearClassifier

TOLERANCE = 1e-5
"""How far unit embeddings may lie from the classifier's."""
_TEXTS = ("a photo of a cat.", "something else")


@dataclass(frozen=True)
class Pretrained:
    """A model of transformers as its makers published it; `backbone` is the same modules, by the
    names that methods know them by."""

    model: Any
    backbone: Backbone
    folder: Path

    def name_of(self, module: nn.Module) -> str:
        """What transformers calls a module of `backbone`."""
        return next(name for name, found in self.model.named_modules() if found is module)


def first_stage(classifier: FewShotClassifier) -> Method:
    """What tuned the encoders: the wrapped method of a second stage, any other itself."""
    method = classifier.method
    return method.inner if isinstance(method, LinearClassifier) else method


def learned_inside(classifier: FewShotClassifier, goal: str) -> list[str]:
    """What the first stage has learned, as names of its backbone's tensors.

    Raises:
        UsageError: when it has learned anything beside its backbone.
    """
    method, names = first_stage(classifier), classifier.method.learned_names()
    if method is not classifier.method:
        names = [name.removeprefix("inner.") for name in names if name.startswith("inner.")]
    outside = [name for name in names if not name.startswith("backbone.")]
    if outside:
        raise UsageError(
            f"{type(method).__name__} cannot be written as {goal}: it has learned {outside[0]}"
            f"{f' and {len(outside) - 1} more' if len(outside) > 1 else ''}, for which that has no "
            "place."
        )
    return [name.removeprefix("backbone.") for name in names]


def read_pretrained(classifier: FewShotClassifier) -> Pretrained:
    """The classifier's pretrained model, read anew.

    Raises:
        DataError: when it is not there any more.
    """
    own = classifier.method.backbone
    folder = find_checkpoint(own.name, own.revision or None)
    model, tokenizer = read_transformers(own.name, folder)
    backbone = Backbone.from_model(model, tokenizer, read_image_spec(folder), name=own.name)
    return Pretrained(model, backbone, folder)


@torch.no_grad()
def check_embeddings(method: Method, other: Backbone) -> float:
    """The largest difference between the unit embeddings of a first stage and of a plain backbone,
    of images of noise and of texts.

    Raises:
        DataError: when it is above the tolerance.
    """
    size = method.backbone.image_spec.size
    pixels = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0))
    pixels = pixels.to(method.backbone.device)
    pairs = (
        (method.encode_images(pixels), other.encode_image(pixels)),
        (method.backbone.encode_text(_TEXTS), other.encode_text(_TEXTS)),
    )
    unit = nn.functional.normalize
    worst = max(float((unit(a, dim=-1) - unit(b, dim=-1)).abs().max()) for a, b in pairs)
    if not worst <= TOLERANCE:
        raise DataError(
            f"Embeddings would lie {worst:.1e} from the classifier's, above {TOLERANCE:.0e}: "
            "nothing is written."
        )
    return worst
