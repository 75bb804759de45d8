"""Scores of any number of images in constant memory, decoded while the model computes."""

import contextlib
from collections.abc import Generator, Iterable
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from shotfit.data.images import ImageSource
from shotfit.data.prefetch import Loading, prepared_batches
from shotfit.errors import DataError
from shotfit.evaluation.decisions import Refusal
from shotfit.evaluation.scoring import Scorer
from shotfit.methods.base import Method


@dataclass(frozen=True)
class PredictedBatch:
    """A batch of images and its logits (readable images, classes), in order, on the CPU; `broken`
    has the errors of the others by their place in `images`. `familiarity` (readable images,) says
    how well each answer fits, where the rule was fitted."""

    images: list[ImageSource]
    logits: Tensor
    broken: dict[int, DataError]
    familiarity: Tensor | None = None

    def refused(self, refusal: Refusal) -> NDArray[np.bool_]:
        """Which of the readable images are none of the classes, (readable images,)."""
        familiarity = None if self.familiarity is None else self.familiarity.numpy()
        return refusal(self.logits.numpy(), familiarity)


@torch.no_grad()
def image_embeddings(method: Method, images: Iterable[ImageSource]) -> Tensor:
    """The unit embeddings of images, (images, dim), on the CPU.

    Raises:
        DataError: for an image that cannot be read.
    """
    spec, device = method.backbone.image_spec, method.backbone.device
    embeds = [torch.empty(0, method.backbone.dim)]
    for batch in prepared_batches(((image, None) for image in images), spec, 64):
        for error in batch.broken.values():
            raise error
        embeds.append(method.encode_images(batch.pixels.to(device)).float().cpu())
    return torch.cat(embeds)


def mean_embedding(method: Method, images: Iterable[ImageSource]) -> Tensor:
    """The unit mean of images' unit embeddings, (dim,), on the CPU.

    Raises:
        DataError: for an image that cannot be read.
    """
    return F.normalize(image_embeddings(method, images).mean(dim=0), dim=-1)


@torch.no_grad()
def predict_batches(
    scorer: Scorer,
    images: Iterable[ImageSource],
    *,
    batch_size: int = 64,
    reduced: bool = False,
    loading: Loading | None = None,
) -> Generator[PredictedBatch, None, None]:
    """Scores images as they come, in order, and sets those aside that cannot be read.

    `reduced` images are read at a fraction of their size (`enough_for_prediction`).
    """
    backbone = scorer.method.backbone
    device = backbone.device
    loading = replace(loading or Loading(), pin_memory=device.type == "cuda")
    batches = prepared_batches(
        ((image, None) for image in images),
        backbone.image_spec,
        batch_size,
        reduced=reduced,
        loading=loading,
    )
    with contextlib.closing(batches):
        for batch in batches:
            if len(batch.pixels):
                found = scorer(batch.pixels.to(device, non_blocking=True))
                yield PredictedBatch(batch.images, found.logits, batch.broken, found.familiarity)
            else:
                none = torch.zeros(0, len(scorer.names))
                yield PredictedBatch(batch.images, none, batch.broken)
