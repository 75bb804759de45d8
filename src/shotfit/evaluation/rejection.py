"""None of these: whether an image is of any class that a classifier knows.

The score of an image is the calibrated logit of its answer plus `NEARNESS` times its scaled
similarity to the nearest class's mean image. A softmax only says which class fits better than the
others; these two say how well it fits. The threshold is a quantile of the scores of shots that the
rows never saw, so that it refuses a chosen rate of trained images; for answers that are names it is
one of the scores of classes left out.
"""

import math

import numpy as np
from numpy.typing import NDArray

from shotfit.errors import UsageError
from shotfit.evaluation.calibration import Array

NEARNESS = 0.5


def familiarity(logits: NDArray, images: Array, means: Array, scale: float) -> NDArray:
    """The score of each answer, the largest of calibrated `logits` (images, classes); `images` (N,
    dim) are unit embeddings, `means` (classes, dim) the mean images of classes that have some."""
    return logits.max(axis=1) + NEARNESS * scale * (images @ means.T).max(axis=1)


def threshold(scores: NDArray, rate: float) -> float:
    """The score under which at most a share `rate` of images like these lie, on average.

    Raises:
        UsageError: for a rate outside (0, 1), or one too small for so few scores.
    """
    if not 0 < rate < 1:
        raise UsageError(f"The rate of images to refuse lies between 0 and 1, got {rate}.")
    place = math.floor(rate * (len(scores) + 1))
    if place < 1:
        least = 1 / (len(scores) + 1)
        raise UsageError(
            f"{len(scores)} held-out images cannot tell which {rate:.1%} to refuse: the smallest "
            f"rate they can is {math.ceil(1000 * least) / 10:.1f}%."
        )
    return float(np.sort(scores)[place - 1])


def refused(
    scores: NDArray, of_trained: NDArray[np.bool_], trained: NDArray, named: NDArray, rate: float
) -> NDArray[np.bool_]:
    """Which images are refused, (images,).

    `scores` are theirs and `of_trained` says whose answer is a trained class; `trained` and `named`
    are the scores of held-out images of either kind. Without any of the second, names are held to
    the threshold of trained classes.
    """
    low = threshold(trained, rate)
    low_named = threshold(named, rate) if len(named) else low
    return scores < np.where(of_trained, low, low_named)
