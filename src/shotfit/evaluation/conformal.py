"""Prediction sets that hold the right class with a chosen probability.

Split conformal prediction (Vovk et al., 2005; Sadinle et al., Least ambiguous set-valued
classifiers with bounded error levels, JASA 2019) on cross-fitted scores (Vovk, Cross-conformal
predictors, 2015): the scores that set the size come from shots that the rows never saw. The rows
that answer were trained on more shots than those, so that coverage errs on the high side.

A class's score is -log of its probability among the trained classes. Names do not change it: a
trained image keeps its coverage whatever names are added.
"""

import math

import numpy as np
from numpy.typing import NDArray

from shotfit.errors import UsageError


def nonconformity(logits: NDArray, trained: int) -> NDArray:
    """Scores (images, classes) of calibrated logits of which the first `trained` columns are the
    trained classes: how much less likely a class is than all of these together."""
    inside = logits[:, :trained].astype(np.float64)
    top = inside.max(axis=1, keepdims=True)
    total = top + np.log(np.exp(inside - top).sum(axis=1, keepdims=True))
    return total - logits


def limit(scores: NDArray, coverage: float) -> float:
    """The score up to which classes are in the set; `scores` are those of the right classes of
    held-out images.

    Raises:
        UsageError: for a coverage outside (0, 1), or one that so few images cannot promise.
    """
    if not 0 < coverage < 1:
        raise UsageError(f"The coverage of a set lies between 0 and 1, got {coverage}.")
    count = len(scores)
    place = math.ceil((count + 1) * coverage)
    if place > count:
        raise UsageError(
            f"{count} held-out images cannot promise {coverage:.0%}: the most they can is "
            f"{count / (count + 1):.1%}, and {coverage:.0%} takes "
            f"{math.ceil(coverage / (1 - coverage) - 1e-9)} images."
        )
    return float(np.sort(scores)[place - 1])


def prediction_sets(
    logits: NDArray, trained: int, limit_trained: float, limit_named: float
) -> NDArray[np.bool_]:
    """Which classes are in each image's set, (images, classes); never none."""
    scores = nonconformity(logits, trained)
    limits = np.full(logits.shape[1], limit_named, dtype=np.float64)
    limits[:trained] = limit_trained
    inside = scores <= limits
    inside[np.arange(len(logits)), logits.argmax(axis=1)] = True
    return inside
