"""Do probabilities mean what they say? Calibration error and the reliability diagram's numbers.

Guo et al., On calibration of modern neural networks, ICML 2017. The error of a finite test set is
never zero, however good the probabilities: `chance_error` says what it would be then (consistency
resampling; Broecker and Smith, Increasing the reliability of reliability diagrams, 2007).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BINS = 15


@dataclass(frozen=True)
class Bin:
    """Answers of similar confidence: how many, how sure they were, how many were right."""

    count: int
    confidence: float
    accuracy: float


def softmax(logits: NDArray) -> NDArray[np.float64]:
    """Probabilities (images, classes) of logits."""
    powers = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def confidences(
    logits: NDArray, labels: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """How sure each answer is and whether it is right, (images,) each."""
    probabilities = softmax(logits)
    return probabilities.max(axis=1), probabilities.argmax(axis=1) == labels


def reliability(
    confidence: NDArray[np.float64], correct: NDArray[np.bool_], bins: int = BINS
) -> tuple[Bin, ...]:
    """The bins of a reliability diagram, of equal width; empty ones are left out."""
    place = np.minimum((confidence * bins).astype(np.int64), bins - 1)
    return tuple(
        Bin(int(inside.sum()), float(confidence[inside].mean()), float(correct[inside].mean()))
        for inside in (place == number for number in np.unique(place))
    )


def calibration_error(
    confidence: NDArray[np.float64], correct: NDArray[np.bool_], bins: int = BINS
) -> float:
    """Expected calibration error in percent."""
    found = reliability(confidence, correct, bins)
    total = sum(part.count for part in found)
    gaps = sum(part.count * abs(part.confidence - part.accuracy) for part in found)
    return 100 * gaps / total if total else 0.0


def chance_error(
    confidence: NDArray[np.float64], bins: int = BINS, repeats: int = 100, seed: int = 0
) -> float:
    """The error in percent that these confidences would show on average if each were exact."""
    generator = np.random.default_rng(seed)
    draws = generator.random((repeats, len(confidence))) < confidence
    return float(np.mean([calibration_error(confidence, draw, bins) for draw in draws]))
