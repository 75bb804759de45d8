"""Class names that a model can hardly tell apart, by the cosine of their text embeddings.

Models differ in how alike all their texts are, so that no one cosine will do. What counts as alike
is asked of the model itself: pairs of everyday words that mean different things have cosines, of
which 999 in 1,000 lie below the bound. `docs/checking.md` says how much more often names above it
are taken for each other.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from shotfit.evaluation.vocabulary import VOCABULARY

SHARE = 0.999
"""The share of pairs of everyday words that are less alike."""


def pair_cosines(embeds: Tensor) -> tuple[Tensor, Tensor]:
    """Pairs (2, pairs) of places and their cosines, of unit embeddings (texts, dim)."""
    pairs = torch.triu_indices(len(embeds), len(embeds), offset=1)
    return pairs, (embeds @ embeds.T)[pairs[0], pairs[1]]


def alike_bound(encode: Callable[[Sequence[str]], Tensor], words: Sequence[str]) -> float:
    """The cosine above which two names are alike, by a model's text embeddings of prompts."""
    _, cosines = pair_cosines(F.normalize(encode(words), dim=-1))
    return float(cosines.quantile(SHARE))


def everyday_prompts(text_of: Callable[[str], str]) -> list[str]:
    """The everyday words as `text_of` makes prompts of names."""
    return [text_of(word) for word in VOCABULARY]


def confusable(embeds: Tensor, bound: float) -> list[tuple[int, int, float]]:
    """Pairs of places of names whose unit embeddings (names, dim) are more alike than `bound`, with
    their cosines, the most alike first."""
    pairs, cosines = pair_cosines(embeds)
    order = cosines.argsort(descending=True).tolist()
    return [
        (int(pairs[0, place]), int(pairs[1, place]), float(cosines[place]))
        for place in order
        if float(cosines[place]) > bound
    ]
