"""The vectors that captions have while the vision tower learns."""

from __future__ import annotations

from collections import Counter

import torch
from iconclip import DIM
from teacher import whitening
from torch import nn
from torch.nn.functional import embedding_bag, normalize


def vocabulary(captions: list[str]) -> list[str]:
    """Words of at least two captions, in a fixed order."""
    counts = Counter(word for text in captions for word in set(text.split()))
    return sorted(word for word, count in counts.items() if count >= 2)


class CaptionVectors(nn.Module):
    """Unit vectors of captions: projected sentence embedding plus the mean of word vectors.

    A rare caption shares what its words, and sentences near it, learned elsewhere.
    """

    mean: torch.Tensor
    embeddings: torch.Tensor

    def __init__(self, embeddings: torch.Tensor, captions: list[str], words: list[str]) -> None:
        super().__init__()
        mean, axes = whitening(embeddings, DIM)
        centred = embeddings - mean
        self.register_buffer("mean", mean)
        self.register_buffer("embeddings", centred, persistent=False)
        self.projection = nn.Parameter(axes / (centred @ axes).norm(dim=-1).mean())
        self.words = nn.Parameter(torch.zeros(len(words), DIM))
        self.index = {word: number for number, word in enumerate(words)}
        self.bags = [self.bag(text) for text in captions]

    def bag(self, text: str) -> list[int]:
        """Indices of the known words of a caption."""
        return [self.index[word] for word in text.split() if word in self.index]

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Unit vectors of the captions numbered ``rows``."""
        return self.vectors(self.embeddings[rows], [self.bags[row] for row in rows.tolist()])

    def vectors(self, centred: torch.Tensor, bags: list[list[int]]) -> torch.Tensor:
        """Unit vectors from centred sentence embeddings and word indices."""
        lengths = torch.tensor([len(bag) for bag in bags])
        flat = torch.tensor([word for bag in bags for word in bag])
        words = embedding_bag(flat, self.words, lengths.cumsum(0) - lengths, mode="mean")
        return normalize(centred @ self.projection + words, dim=-1)
