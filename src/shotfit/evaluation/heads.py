"""Every kind of class under the fitted rule, as one affine map; numpy alone."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shotfit.evaluation.calibration import (
    Array,
    Calibration,
    Head,
    crowd,
    illustrated_head,
    named_head,
    trained_head,
)


@dataclass(frozen=True)
class KnownAs:
    """Classes to choose among: unit embeddings (classes, dim) of their rows or names; the trained
    class that each is, -1 for none; the images it was given (`counts`), 0 for none, and their unit
    means (classes, dim), zeros for none."""

    embeds: Array
    rows: NDArray[np.int64]
    counts: NDArray[np.int64]
    means: Array


def class_head(
    calibration: Calibration,
    scale: float,
    means: Array,
    classes: KnownAs,
    gaussians: Head | None = None,
) -> Head:
    """The classes on one scale: trained rows, names with images, and names; `means` (trained, dim)
    are the mean images of all trained classes, `gaussians` what theirs say, where they have any."""
    embeds, trained = classes.embeds, classes.rows >= 0
    shown = ~trained & (classes.counts > 0)
    named = ~trained & ~shown
    own, of_given = means[classes.rows[trained]], classes.means[shown]
    center, many = means.mean(axis=0), classes.counts[shown].tolist()
    theirs = None if gaussians is None else gaussians.of(classes.rows[trained])
    heads = (
        (trained, trained_head(calibration, scale, embeds[trained], own, theirs)),
        (shown, illustrated_head(calibration, scale, embeds[shown], of_given, many)),
        (named, named_head(calibration, scale, embeds[named], center)),
    )
    weight, bias = np.zeros_like(embeds), np.zeros(len(embeds), np.float32)
    for places, head in heads:
        weight[places], bias[places] = head.weight, head.bias
    bias[named] -= crowd(int(trained.sum()), int(named.sum()))
    factor = np.float32(calibration.sharpness if trained.any() else 1.0)
    return Head(factor * weight, factor * bias)
