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


def shuffled_views(
    views: Tensor, labels: Tensor, size: int, generator: torch.Generator, drop_last: bool
) -> Iterator[tuple[Tensor, Tensor]]:
    """Endless batches of features (size, dim) and labels (size,).

    Every pass has a new order of the images, and one of the `views` (views, images, dim) of each.
    `drop_last` leaves out an incomplete last batch, unless it is the only one.
    """
    count, images = views.shape[:2]
    while True:
        order = torch.randperm(images, generator=generator)
        view = torch.randint(count, (images,), generator=generator)
        for number, rows in enumerate(order.split(size)):
            # As in `SupportSet.batches`: never without a batch.
            if drop_last and number > 0 and len(rows) < size:
                break
            yield views[view[rows], rows], labels[rows]
