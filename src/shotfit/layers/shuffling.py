"""Batches of features that a frozen encoder has given once."""

from collections.abc import Iterator

import torch
from torch import Tensor


def shuffled(
    features: Tensor,
    labels: Tensor,
    size: int,
    generator: torch.Generator,
    *,
    batches: int | None = None,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Endless batches of features (size, ...) and labels (size,), drawn without replacement; where
    there are fewer than `size`, a batch is all of them.

    Every pass has a new order, of which the first `batches` are taken; None means those that are
    complete.
    """
    size = max(1, min(size, len(labels)))
    count = len(labels) // size if batches is None else batches
    while True:
        order = torch.randperm(len(labels), generator=generator)
        for rows in order.split(size)[:count]:
            yield features[rows], labels[rows]
