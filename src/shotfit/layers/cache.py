"""A cache of labelled features, and the search for what it counts and how sharp it is.

Zhang et al., Tip-Adapter: Training-free Adaption of CLIP for Few-shot Classification, ECCV 2022,
equation 5, and section 3.3 for the search.
"""

import torch
from torch import Tensor

SEARCHES = {
    "imagenet": (1.17, 7, 3),
    "caltech101": (3, 12, 5),
    "dtd": (2, 13, 13),
    "eurosat": (2, 12, 10),
    "fgvc_aircraft": (5, 30, 30),
    "food101": (1.17, 10, 10),
    "oxford_flowers": (10, 50, 50),
    "oxford_pets": (1.17, 7, 3),
    "stanford_cars": (3, 20, 10),
    "sun397": (1.17, 12, 10),
    "ucf101": (3, 7, 3),
}
"""Alpha before the search, and the bounds of the search for beta and alpha, by benchmark (the
official configs)."""


def affinity(cosines: Tensor, beta: Tensor | float) -> Tensor:
    """exp(-beta (1 - cosine)) of images and cached images, both (batch, cached)."""
    return torch.exp(-beta * (1 - cosines))


def cache_logits(cosines: Tensor, labels: Tensor, classes: int, beta: Tensor | float) -> Tensor:
    """Affinities to cached images of these labels, summed by class: (batch, classes)."""
    weights = affinity(cosines, beta)
    return weights.new_zeros(len(weights), classes).index_add(1, labels, weights)


def best_beta_and_alpha(
    text: Tensor,
    cosines: Tensor,
    cached: Tensor,
    labels: Tensor,
    *,
    beta_max: float,
    alpha_max: float,
) -> tuple[float, float]:
    """The first beta and alpha with which text + alpha cache is right most often.

    `text` are logits (batch, classes) and `labels` (batch,) the answers; `cosines` (batch, cached)
    those to cached images with labels `cached`. Tried are 200 values of beta and 20 of alpha, from
    0.1 up to their bounds, which are left out.
    """
    best, found = -1.0, (0.0, 0.0)
    for beta in _grid(beta_max, 200):
        cache = cache_logits(cosines, cached, text.shape[1], beta)
        for alpha in _grid(alpha_max, 20):
            right = float(((text + alpha * cache).argmax(dim=-1) == labels).float().mean())
            if right > best:
                best, found = right, (beta, alpha)
    return found


def _grid(bound: float, steps: int) -> list[float]:
    return [0.1 + step * (bound - 0.1) / steps for step in range(steps)]
