"""One run of the study: a classifier of four shots, and all that can be asked of its answers."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from shotfit.backbone import Backbone
from shotfit.config import to_dict
from shotfit.data.dataset import Example, Split
from shotfit.data.prefetch import plain_batches
from shotfit.data.sources import load_dataset
from shotfit.data.sources.demo import list_tasks
from shotfit.data.support_set import SupportSet
from shotfit.errors import UsageError
from shotfit.evaluation.assessment import FOLDS, PARTS, Assessment
from shotfit.evaluation.calibration import Array
from shotfit.evaluation.conformal import limit, prediction_sets
from shotfit.evaluation.cross_fitting import HeldOut, cross_fit, leave_classes_out
from shotfit.evaluation.rejection import familiarity, threshold
from shotfit.evaluation.reliability import (
    BINS,
    calibration_error,
    chance_error,
    confidences,
    softmax,
)
from shotfit.experiment import Experiment, environment, run, task_facts, task_of
from shotfit.methods.base import Method
from shotfit.methods.linear import LinearClassifier
from shotfit.plan import plan
from shotfit.recipe import Overrides, two_stage
from shotfit.shots_assessment import Inspection, shot_features, vocabulary_embeddings
from trust import rules
from trust.rules import Scores, Trained

COVERAGES = (0.8, 0.9, 0.95)
UNRELATED, DRAWS = 100, 3
OTHERS = 40
"""Images of each other task, which are none of a classifier's classes."""


class Seen(Inspection):
    """Keeps what the rules are fitted on, beside the assessment that ships."""

    trained: Trained
    episodes: list[HeldOut]

    def __call__(self, method: Method, support: SupportSet, updates: int) -> None:
        """Trains the second stages without some classes once more, for the other rules."""
        super().__call__(method, support, updates)
        assert isinstance(method, LinearClassifier)
        scale = method.backbone.hints.classifier_lr_scale
        facts = replace(self.facts, classifier_lr_scale=scale)
        training = plan(self.recipe, facts)[-1].trainings[0]
        training = replace(training, iterations=updates, epochs=None, precision="fp32")
        features = shot_features(method.inner, support)
        self.trained = Trained(
            rows=torch.nn.functional.normalize(method.weight, dim=-1).detach().numpy(),
            text=features.names.numpy(),
            words=vocabulary_embeddings(method.inner, support.classnames).numpy(),
            features=features,
            training=training,
            seed=self.seed,
        )
        labels = features.labels.numpy()
        folds = leave_classes_out(labels, PARTS, min(FOLDS, max(features.shots)), self.seed)
        self.episodes = cross_fit(features, folds, training, self.seed)


def cell(name: str, seed: int, options: dict[str, Any]) -> dict[str, Any]:
    """The record of a task and a seed; `options` are shots, iters_per_shot, precision, backbone."""
    recipe = Overrides(options={"training.precision": options["precision"]}).applied(
        two_stage(iters_per_shot=options["iters_per_shot"])
    )
    experiment = Experiment(
        data={"name": name},
        shots=options["shots"],
        seed=seed,
        backbone=options["backbone"],
        recipe=recipe,
    )
    dataset = load_dataset("demo", name=name)
    task = task_of(experiment, dataset)
    seen = Seen(recipe, task_facts(task), seed)
    backbone = Backbone.from_pretrained(options["backbone"])
    _, method = run(
        experiment, dataset=dataset, backbone=backbone, inspect=seen, device="cpu", measured=False
    )
    assert seen.assessment is not None
    base, novel = task.tests["base"], task.tests["novel"]
    images = Images(method, base, novel, name)
    made = {
        "published": rules.published(seen.trained),
        "constant": rules.constant(seen.trained, seen.episodes),
        "scale and constant": rules.scale_and_constant(seen.trained, seen.episodes),
        "vocabulary rows": rules.vocabulary_rows(seen.trained),
        "rank fusion": rules.rank_fusion(seen.trained, seen.episodes),
        "interpolation": rules.interpolation(seen.trained, seen.episodes),
        "fitted": rules.fitted(seen.trained, seen.assessment),
    }
    rng = np.random.default_rng(seed)
    draws = [images.unrelated(rng) for _ in range(DRAWS)]
    return {
        "task": name,
        "seed": seed,
        "options": options,
        "classes": [len(base.classnames), len(novel.classnames)],
        "images": [len(base.examples), len(novel.examples), len(images.others)],
        "rules": {key: _rule(images, scores, draws) for key, scores in made.items()},
        "hindsight": _hindsight(images, made["published"]),
        "refusal": _refusal(images, made, seen),
        "sets": _sets(images, made["fitted"], seen.assessment),
        "expected": _expected(images, made["fitted"], seen.assessment),
        "calibration": to_dict(seen.assessment.calibration),
        "environment": environment(),
    }


class Images:
    """Test images of a task and of the others, and names, as the method embeds them."""

    def __init__(self, method: Method, base: Split, novel: Split, task: str) -> None:
        self.method = method
        self.base, self.novel = _encoded(method, base), _encoded(method, novel)
        self.base_labels, self.novel_labels = np.array(base.labels), np.array(novel.labels)
        self.names = _names(method, novel.classnames)
        taken = {*base.classnames, *novel.classnames}
        names: list[str] = []
        examples: list[Example] = []
        for other in list_tasks():
            if other != task:
                dataset = load_dataset("demo", name=other)
                names += [one for one in dataset.classnames if one not in taken]
                examples += dataset.test[:: max(1, len(dataset.test) // OTHERS)][:OTHERS]
        self.others = _encoded(method, replace(base, examples=tuple(examples)))
        self.other_names = _names(method, tuple(dict.fromkeys(names)))

    def unrelated(self, rng: np.random.Generator) -> Array:
        """Names of other tasks, as many as `UNRELATED`."""
        chosen = rng.permutation(len(self.other_names))[:UNRELATED]
        return self.other_names[chosen]


@torch.no_grad()
def _encoded(method: Method, split: Split) -> Array:
    batches = plain_batches(split, method.backbone.image_spec, 128)
    return torch.cat([method.encode_images(pixels) for pixels, _ in batches]).float().numpy()


@torch.no_grad()
def _names(method: Method, names: Sequence[str]) -> Array:
    return method.encode_classes(names).weight.float().numpy()


def _all(scores: Scores, images: Array, names: Array) -> NDArray:
    return np.concatenate(scores(images, names), axis=1)


def _right(logits: NDArray, labels: NDArray) -> float:
    return 100 * float((logits.argmax(axis=1) == labels).mean())


def _rule(images: Images, scores: Scores, draws: Sequence[Array]) -> dict[str, Any]:
    known = scores(images.base, images.names[:0])[0].shape[1]
    of_base = _all(scores, images.base, images.names)
    of_novel = _all(scores, images.novel, images.names)
    labels = np.concatenate([images.base_labels, images.novel_labels + known])
    alone = scores(images.base, images.names[:0])[0]
    beside = [_right(_all(scores, images.base, names), images.base_labels) for names in draws]
    answers = {
        "base": confidences(of_base, images.base_labels),
        "novel": confidences(of_novel[:, known:], images.novel_labels),
        "joint": confidences(np.concatenate([of_base, of_novel]), labels),
    }
    closed = _right(alone, images.base_labels)
    return {
        "base": _right(of_base, images.base_labels),
        "novel": _right(of_novel, images.novel_labels + known),
        "joint": _right(np.concatenate([of_base, of_novel]), labels),
        "closed_base": closed,
        "closed_novel": _right(of_novel[:, known:], images.novel_labels),
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
        base = _right(joined[0], images.base_labels)
        novel = _right(joined[1], images.novel_labels + known)
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


def _refusal(images: Images, made: dict[str, Scores], seen: Seen) -> dict[str, Any]:
    assert seen.assessment is not None
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
    found = _right(scores(images.base, images.names[:0])[0], images.base_labels)
    low, high = expected.interval(images=len(images.base))
    return {
        **expected.plain(),
        "test_accuracy": found,
        "interval_with_test_noise": [low, high],
        "held": bool(low <= found <= high),
    }
