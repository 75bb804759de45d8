"""What follows from the scores of an image: an answer or none of these, and prediction sets."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from shotfit.errors import UsageError
from shotfit.evaluation.calibration import Array
from shotfit.evaluation.conformal import limit, prediction_sets
from shotfit.evaluation.rejection import refused, threshold


@dataclass(frozen=True)
class Scores:
    """Scores of held-out shots, (images,) each: of trained classes, and of names with `_named`."""

    familiarity: Array = field(default_factory=lambda: np.zeros(0, np.float32))
    familiarity_named: Array = field(default_factory=lambda: np.zeros(0, np.float32))
    nonconformity: Array = field(default_factory=lambda: np.zeros(0, np.float32))
    nonconformity_named: Array = field(default_factory=lambda: np.zeros(0, np.float32))


class Refusal:
    """Images that are none of the classes, at a chosen rate of trained images refused by mistake.

    Raises:
        UsageError: when nothing is known of held-out shots, or they are too few for the rate.
    """

    def __init__(self, held_out: Scores | None, trained: Sequence[bool], rate: float) -> None:
        """`trained` says which classes are answered by trained rows, in the order of the logits;
        `held_out` is None for scores that were not fitted on the shots."""
        self.scores = _known(held_out)
        self.trained = np.array(trained, np.bool_)
        self.rate = rate
        threshold(self.scores.familiarity, rate)  # before any image is read

    def __call__(self, logits: NDArray, familiarity: NDArray | None) -> NDArray[np.bool_]:
        """Which images are refused, (images,), by logits (images, classes) and how well each answer
        fits, (images,); that is None only for no images."""
        if familiarity is None:
            return np.zeros(len(logits), np.bool_)
        return refused(
            familiarity,
            self.trained[logits.argmax(axis=1)],
            self.scores.familiarity,
            self.scores.familiarity_named,
            self.rate,
        )


class Sets:
    """Prediction sets that hold the right class with a chosen probability.

    Raises:
        UsageError: when nothing is known of held-out shots, no trained class is among the classes,
            or the shots are too few for the coverage.
    """

    def __init__(self, held_out: Scores | None, trained: Sequence[bool], coverage: float) -> None:
        """`held_out` and `trained` are as in `Refusal`."""
        scores, own = _known(held_out), np.array(trained, np.bool_)
        if not own.any():
            raise UsageError("Prediction sets need a trained class among the names.")
        self.limit_trained = limit(scores.nonconformity, coverage)
        self.limit_named = self.limit_trained
        if not own.all():
            self.limit_named = limit(scores.nonconformity_named, coverage)
        # Trained classes first, as `prediction_sets` has them.
        self.order = np.argsort(~own, kind="stable")
        self.count = int(own.sum())

    def __call__(self, logits: NDArray) -> NDArray[np.bool_]:
        """Which classes are in the set of each image, (images, classes)."""
        inside = np.zeros(logits.shape, np.bool_)
        if len(logits):
            inside[:, self.order] = prediction_sets(
                logits[:, self.order], self.count, self.limit_trained, self.limit_named
            )
        return inside


def _known(held_out: Scores | None) -> Scores:
    if held_out is None:
        raise UsageError(
            "This needs what held-out shots say, which a classifier of two stages keeps when it is "
            "fitted (not with --published-scores, and not by earlier versions): fit it again, and "
            "export it again where it was exported."
        )
    if not len(held_out.familiarity):
        raise UsageError(
            "No shot could be held out of so few, so that nothing can be promised: fit with two "
            "shots of each class or more."
        )
    return held_out
