"""What follows from the scores of an image: an answer or none of these, and prediction sets."""

import numpy as np
from numpy.typing import NDArray

from shotfit.errors import UsageError
from shotfit.evaluation.assessment import Assessment, Scores
from shotfit.evaluation.conformal import limit, prediction_sets
from shotfit.evaluation.inference import PredictedBatch
from shotfit.evaluation.rejection import refused, threshold
from shotfit.evaluation.scoring import Scorer


class Refusal:
    """Images that are none of the classes, at a chosen rate of trained images refused by mistake.

    Raises:
        UsageError: when the scores are not fitted, or the shots are too few for the rate.
    """

    def __init__(self, scorer: Scorer, rate: float) -> None:
        self.scores = _scores(scorer)
        self.trained = np.array(scorer.trained, np.bool_)
        self.rate = rate
        threshold(self.scores.familiarity, rate)  # before any image is read

    def __call__(self, batch: PredictedBatch) -> NDArray[np.bool_]:
        """Which of a batch's readable images are refused, (images,)."""
        if batch.familiarity is None:
            return np.zeros(len(batch.logits), np.bool_)
        return refused(
            batch.familiarity.numpy(),
            self.trained[batch.logits.numpy().argmax(axis=1)],
            self.scores.familiarity,
            self.scores.familiarity_named,
            self.rate,
        )


class Sets:
    """Prediction sets that hold the right class with a chosen probability.

    Raises:
        UsageError: when the scores are not fitted, no trained class is among the classes, or the
            shots are too few for the coverage.
    """

    def __init__(self, scorer: Scorer, coverage: float) -> None:
        scores = _scores(scorer)
        trained = np.array(scorer.trained, np.bool_)
        if not trained.any():
            raise UsageError("Prediction sets need a trained class among the names.")
        self.limit_trained = limit(scores.nonconformity, coverage)
        self.limit_named = self.limit_trained
        if not trained.all():
            self.limit_named = limit(scores.nonconformity_named, coverage)
        # Trained classes first, as `prediction_sets` has them.
        self.order = np.argsort(~trained, kind="stable")
        self.count = int(trained.sum())

    def __call__(self, batch: PredictedBatch) -> NDArray[np.bool_]:
        """Which classes are in the set of each readable image, (images, classes)."""
        logits = batch.logits.numpy()
        inside = np.zeros(logits.shape, np.bool_)
        if len(logits):
            inside[:, self.order] = prediction_sets(
                logits[:, self.order], self.count, self.limit_trained, self.limit_named
            )
        return inside


def _scores(scorer: Scorer) -> Scores:
    assessment: Assessment | None = scorer.assessment
    if assessment is None:
        raise UsageError(
            "This needs what held-out shots say, which a classifier of two stages keeps when it is "
            "fitted (not with --published-scores, and not by earlier versions): fit it again."
        )
    if not len(assessment.scores.familiarity):
        raise UsageError(
            "No shot could be held out of so few, so that nothing can be promised: fit with two "
            "shots of each class or more."
        )
    return assessment.scores
