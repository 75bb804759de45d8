"""Several prompt templates for a class name, averaged."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

IMAGENET_TEMPLATES = (
    "itap of a {}.",
    "a bad photo of the {}.",
    "a origami {}.",
    "a photo of the large {}.",
    "a {} in a video game.",
    "art of the {}.",
    "a photo of the small {}.",
)
"""The seven that CLIP's authors picked for ImageNet (openai/CLIP, prompt engineering notebook)."""


def mean_embeddings(
    encode_text: Callable[[Sequence[str]], Tensor],
    names: Sequence[str],
    templates: Sequence[str],
    *,
    unit: bool,
) -> Tensor:
    """The mean over templates of a name's text embeddings, (names, dim), not normalised again.

    With `unit` each embedding is brought to unit norm before it enters the mean.
    """
    embeds = torch.stack(
        [encode_text([template.format(name) for name in names]) for template in templates]
    )
    return (F.normalize(embeds, dim=-1) if unit else embeds).mean(dim=0)
