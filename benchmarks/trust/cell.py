"""One run of the study: a classifier of four shots, and all that can be asked of its answers."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shotfit.config import to_dict
from shotfit.errors import UsageError
from shotfit.evaluation.assessment import FOLDS, PARTS, Assessment
from shotfit.evaluation.calibration import Array
from shotfit.evaluation.conformal import limit, prediction_sets
from shotfit.evaluation.cross_fitting import cross_fit, leave_classes_out
from shotfit.evaluation.rejection import familiarity, threshold
from shotfit.evaluation.reliability import (
    BINS,
    calibration_error,
    chance_error,
    confidences,
    softmax,
)
from trust import rules
from trust.fits import Fit
from trust.rules import Scores, Trained

COVERAGES = (0.8, 0.9, 0.95)
UNRELATED, DRAWS = 100, 3


class Asked:
    """A fit, what its shots say, and the episodes that the rules are fitted on."""

    def __init__(self, fit: Fit) -> None:
        self.assessment = fit.assess()
        self.trained = Trained.of(fit)
        labels = fit.features.labels.numpy()
        folds = leave_classes_out(labels, PARTS, min(FOLDS, max(fit.features.shots)), fit.seed)
        self.episodes = cross_fit(fit.features, folds, self.trained.training, fit.seed)


class Images:
    """Test images of a task and of the others, and names, as the method embeds them."""

    def __init__(self, fit: Fit) -> None:
        self.base, self.base_labels = fit.base.numpy(), fit.base_labels.numpy()
        self.novel, self.novel_labels = fit.novel.numpy(), fit.novel_labels.numpy()
        self.names = fit.names.numpy()
        self.others, self.other_names = fit.others.numpy(), fit.other_names.numpy()

    def unrelated(self, rng: np.random.Generator) -> Array:
        """Names of other tasks, as many as `UNRELATED`."""
        chosen = rng.permutation(len(self.other_names))[:UNRELATED]
        return self.other_names[chosen]


def cell(fit: Fit) -> dict[str, Any]:
    """The record of a fit, of a task and a seed."""
    seen, images = Asked(fit), Images(fit)
    made = {
        "published": rules.published(seen.trained),
        "constant": rules.constant(seen.trained, seen.episodes),
        "scale and constant": rules.scale_and_constant(seen.trained, seen.episodes),
        "vocabulary rows": rules.vocabulary_rows(seen.trained),
        "rank fusion": rules.rank_fusion(seen.trained, seen.episodes),
        "interpolation": rules.interpolation(seen.trained, seen.episodes),
        "fitted": rules.fitted(seen.trained, seen.assessment),
    }
    rng = np.random.default_rng(fit.seed)
    draws = [images.unrelated(rng) for _ in range(DRAWS)]
    return {
        "task": fit.task,
        "seed": fit.seed,
        "options": fit.options,
        "classes": [len(fit.rows), len(fit.names)],
        "images": [len(fit.base), len(fit.novel), len(fit.others)],
        "rules": {key: _rule(images, scores, draws) for key, scores in made.items()},
        "hindsight": _hindsight(images, made["published"]),
        "refusal": _refusal(images, made, seen),
        "sets": _sets(images, made["fitted"], seen.assessment),
        "expected": _expected(images, made["fitted"], seen.assessment),
        "calibration": to_dict(seen.assessment.calibration),
        "environment": fit.environment,
    }


def _all(scores: Scores, images: Array, names: Array) -> NDArray:
    return np.concatenate(scores(images, names), axis=1)


def right(logits: NDArray, labels: NDArray) -> float:
    """How many of the images (N, classes) are answered by their label, in percent."""
    return 100 * float((logits.argmax(axis=1) == labels).mean())


def _rule(images: Images, scores: Scores, draws: Sequence[Array]) -> dict[str, Any]:
    known = scores(images.base, images.names[:0])[0].shape[1]
    of_base = _all(scores, images.base, images.names)
    of_novel = _all(scores, images.novel, images.names)
    labels = np.concatenate([images.base_labels, images.novel_labels + known])
    alone = scores(images.base, images.names[:0])[0]
    beside = [right(_all(scores, images.base, names), images.base_labels) for names in draws]
    answers = {
        "base": confidences(of_base, images.base_labels),
        "novel": confidences(of_novel[:, known:], images.novel_labels),
        "joint": confidences(np.concatenate([of_base, of_novel]), labels),
    }
    closed = right(alone, images.base_labels)
    return {
        "base": right(of_base, images.base_labels),
        "novel": right(of_novel, images.novel_labels + known),
        "joint": right(np.concatenate([of_base, of_novel]), labels),
        "closed_base": closed,
        "closed_novel": right(of_novel[:, known:], images.novel_labels),
        "lost_to_unrelated": closed - float(np.mean(beside)),
        "reliability": {key: _reliability(*pair) for key, pair in answers.items()},
    }


def _reliability(confidence: NDArray, right: NDArray) -> dict[str, Any]:
    """The error of the run, what chance alone shows, and its bins, which can be pooled: their
    counts, sums of confidences, and right answers."""
    place = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    sums = [np.bincount(place, w, BINS).round(4).tolist() for w in (None, confidence, right * 1.0)]
    error, chance = calibration_error(confidence, right), chance_error(confidence)
    return {"error": error, "by_chance": chance, "bins": sums}


def _hindsight(images: Images, plain: Scores) -> dict[str, float]:
    """The constant that is best on the test images themselves: a bound, not a rule."""
    parts = [plain(side, images.names) for side in (images.base, images.novel)]
    known = parts[0][0].shape[1]

    def measured(level: float) -> dict[str, float]:
        joined = [np.concatenate([base + level, names], axis=1) for base, names in parts]
        base = right(joined[0], images.base_labels)
        novel = right(joined[1], images.novel_labels + known)
        return {"base": base, "novel": novel, "level": float(level)}

    def harmonic(found: dict[str, float]) -> float:
        both = found["base"] + found["novel"]
        return 2 * found["base"] * found["novel"] / both if both else 0.0

    return max(map(measured, rules.LEVELS), key=harmonic)


def auroc(inside: NDArray, outside: NDArray) -> float:
    """How often a score of an image that belongs is above one that does not, in percent."""
    scores = np.sort(outside)
    below = np.searchsorted(scores, inside, "left")
    equal = np.searchsorted(scores, inside, "right") - below
    return 100 * float((below + equal / 2).mean()) / len(outside)


def _refusal(images: Images, made: dict[str, Scores], seen: Asked) -> dict[str, Any]:
    means, scale = seen.assessment.means, seen.trained.scale
    none = images.names[:0]

    def fit(side: Array) -> NDArray:
        return familiarity(made["fitted"](side, none)[0], side, means, scale)

    def probability(side: Array) -> NDArray:
        return softmax(made["published"](side, none)[0]).max(axis=1)

    inside, outside = fit(images.base), fit(images.others)
    found: dict[str, Any] = {
        "auroc": auroc(inside, outside),
        "auroc_of_softmax": auroc(probability(images.base), probability(images.others)),
        "rates": {},
    }
    for rate in (0.05, 0.1):
        scores = seen.assessment.scores.familiarity
        if rate * (len(scores) + 1) >= 1:
            low = threshold(scores, rate)
            parts = [100 * float((side < low).mean()) for side in (inside, outside)]
            found["rates"][str(rate)] = {"trained": parts[0], "other": parts[1]}
    return found


def _sets(images: Images, scores: Scores, assessment: Assessment) -> dict[str, Any]:
    known = len(assessment.means)
    alone = scores(images.base, images.names[:0])[0]
    of_novel = _all(scores, images.novel, images.names)
    sides: dict[str, tuple[NDArray, NDArray]] = {
        "trained": (alone, images.base_labels),
        "trained beside names": (_all(scores, images.base, images.names), images.base_labels),
        "novel": (of_novel, images.novel_labels + known),
    }
    found: dict[str, Any] = {}
    for coverage in COVERAGES:
        limits = _limits(assessment, coverage)
        if limits is not None:
            found[str(coverage)] = {
                key: _coverage(prediction_sets(logits, known, *limits), labels)
                for key, (logits, labels) in sides.items()
            }
    return found


def _limits(assessment: Assessment, coverage: float) -> tuple[float, float] | None:
    scores = assessment.scores
    try:
        return limit(scores.nonconformity, coverage), limit(scores.nonconformity_named, coverage)
    except UsageError:
        return None


def _coverage(inside: NDArray[np.bool_], labels: NDArray) -> dict[str, float]:
    held = inside[np.arange(len(labels)), labels]
    return {"covered": 100 * float(held.mean()), "size": float(inside.sum(axis=1).mean())}


def _expected(images: Images, scores: Scores, assessment: Assessment) -> dict[str, Any] | None:
    expected = assessment.expected
    if expected is None:
        return None
    found = right(scores(images.base, images.names[:0])[0], images.base_labels)
    low, high = expected.interval(images=len(images.base))
    return {
        **expected.plain(),
        "test_accuracy": found,
        "interval_with_test_noise": [low, high],
        "held": bool(low <= found <= high),
    }
