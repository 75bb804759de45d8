"""Means over the images of each class."""

import torch
from torch import Tensor


def class_means(values: Tensor, labels: Tensor, classes: int) -> Tensor:
    """The mean of the rows of `values` (n, ...) that have each label: (classes, ...).

    `labels` (n,) has every class at least once.
    """
    sums = values.new_zeros(classes, *values.shape[1:]).index_add(0, labels, values)
    counts = torch.bincount(labels, minlength=classes)
    return sums / counts.view(-1, *[1] * (values.dim() - 1))
