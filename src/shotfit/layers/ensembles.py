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

DIVERSE_TEMPLATES = (
    "a photo of a {}.",
    "a bad photo of a {}.",
    "a photo of many {}.",
    "a sculpture of a {}.",
    "a photo of the hard to see {}.",
    "a low resolution photo of the {}.",
    "a rendering of a {}.",
    "graffiti of a {}.",
    "a bad photo of the {}.",
    "a cropped photo of the {}.",
    "a tattoo of a {}.",
    "the embroidered {}.",
    "a photo of a hard to see {}.",
    "a bright photo of a {}.",
    "a photo of a clean {}.",
    "a photo of a dirty {}.",
    "a dark photo of the {}.",
    "a drawing of a {}.",
    "a photo of my {}.",
    "the plastic {}.",
    "a photo of the cool {}.",
    "a close-up photo of a {}.",
    "a black and white photo of the {}.",
    "a painting of the {}.",
    "a painting of a {}.",
    "a pixelated photo of the {}.",
    "a sculpture of the {}.",
    "a bright photo of the {}.",
    "a cropped photo of a {}.",
    "a plastic {}.",
    "a photo of the dirty {}.",
    "a jpeg corrupted photo of a {}.",
    "a blurry photo of the {}.",
    "a photo of the {}.",
    "a good photo of the {}.",
    "a rendering of the {}.",
    "a {} in a video game.",
    "a photo of one {}.",
    "a doodle of a {}.",
    "a close-up photo of the {}.",
    "the origami {}.",
    "the {} in a video game.",
    "a sketch of a {}.",
    "a doodle of the {}.",
    "a origami {}.",
    "a low resolution photo of a {}.",
    "the toy {}.",
    "a rendition of the {}.",
    "a photo of the clean {}.",
    "a photo of a large {}.",
    "a rendition of a {}.",
    "a photo of a nice {}.",
    "a photo of a weird {}.",
    "a blurry photo of a {}.",
    "a cartoon {}.",
    "art of a {}.",
    "a sketch of the {}.",
    "a embroidered {}.",
    "a pixelated photo of a {}.",
    "itap of the {}.",
)
"""The sixty of CLIP's eighty ImageNet templates that PromptSRC's teacher averages (openai/CLIP,
prompt engineering notebook; the choice is PromptSRC's)."""


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
