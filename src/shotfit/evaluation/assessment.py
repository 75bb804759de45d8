"""What the shots themselves say about a classifier: levels, thresholds, sets, expected accuracy.

One batch of second stages, trained without some images or classes (`cross_fitting`), answers all
of it: `calibration_fit` makes trained classes and names comparable, `rejection` and `conformal`
take the scores of held-out shots, `expected` the accuracy on them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shotfit.evaluation.calibration import (
    Array,
    Calibration,
    Head,
    crowd,
    named_head,
    trained_head,
    typical_image,
    typical_name,
)
from shotfit.evaluation.calibration_fit import fit_calibration, fit_names_with_images
from shotfit.evaluation.conformal import nonconformity
from shotfit.evaluation.cross_fitting import (
    Fold,
    HeldOut,
    ShotFeatures,
    cross_fit,
    leave_classes_out,
    leave_images_out,
    mean_images,
)
from shotfit.evaluation.decisions import Scores
from shotfit.evaluation.expected import ClassOutlook, CurvePoint, Expected, expect
from shotfit.evaluation.gaussians import gaussian_head
from shotfit.evaluation.rejection import familiarity
from shotfit.evaluation.reliability import softmax
from shotfit.methods.published import TrainConfig

FOLDS = 4
PARTS = 2
FEWEST = 8
"""Held-out images below which nothing is fitted to them."""


@dataclass(frozen=True)
class Assessment:
    """What is kept of it: plain numbers, the classes' mean images (K, dim), scores of shots.

    `expected` is None and the scores are empty where there are too few shots to hold any out.
    `gaussians` are what the classes' Gaussians say, of GDA alone.
    """

    calibration: Calibration
    means: Array
    expected: Expected | None = None
    scores: Scores = field(default_factory=Scores)
    gaussians: Head | None = None


def assess(
    features: ShotFeatures,
    words: Tensor,
    training: TrainConfig | None,
    classnames: Sequence[str],
    seed: int = 0,
    *,
    solved: bool = False,
) -> Assessment:
    """Holds shots and classes out of the second stage and looks at what becomes of them.

    `words` (V, dim) embed a general vocabulary, `training` is that of the second stage; None where
    there is none, and trained classes are answered by their names, too. `solved` says that classes
    have Gaussians beside them (GDA).
    """
    labels = features.labels.cpu().numpy()
    folds = min(FOLDS, max(features.shots))
    clean, names = _array(features.clean), _array(features.names)
    means = mean_images(clean, labels, len(names))
    unheard = Calibration(
        typical_image=typical_image(clean, labels, means), typical_name=typical_name(names, means)
    )
    gaussians = gaussian_head(features.views, labels, len(names)) if solved else None
    nothing = Assessment(unheard, means, gaussians=gaussians)
    if folds < 2 or len(names) < 2:
        return nothing
    curve = {
        trained / folds: leave_images_out(labels, folds, trained, seed)
        for trained in range(1, folds)
    }
    designs = [leave_classes_out(labels, PARTS, folds, seed), *curve.values()]
    held = _cross_fit_all(features, designs, training, seed, solved)
    episodes, by_share = held[0], dict(zip(curve, held[1:], strict=True))
    most = by_share[max(by_share)]
    if sum(len(part.labels) for part in most) < FEWEST:
        return nothing
    calibration = _calibrate(episodes, words, features, seed)
    expected = _expected(by_share, calibration, features.scale, classnames)
    scores = _scores(episodes, most, calibration, features.scale)
    return Assessment(calibration, means, expected, scores, gaussians)


def _cross_fit_all(
    features: ShotFeatures,
    designs: Sequence[list[Fold]],
    training: TrainConfig | None,
    seed: int,
    gaussians: bool,
) -> list[list[HeldOut]]:
    """`cross_fit` of several designs, all trained at once; folds that see nothing are left out."""
    usable = [[fold for fold in design if fold.images.any()] for design in designs]
    folds = [fold for design in usable for fold in design]
    held = iter(cross_fit(features, folds, training, seed, gaussians=gaussians))
    return [[next(held) for _ in design] for design in usable]


def _calibrate(
    episodes: Sequence[HeldOut], words: Tensor, features: ShotFeatures, seed: int
) -> Calibration:
    calibration = fit_calibration(episodes, _array(words), features.scale, seed)
    given = [2**power for power in range(10) if 2**power < max(features.shots)]
    found = [fit_names_with_images(episodes, calibration, features.scale, n) for n in given]
    fitted = tuple(part for part in found if part is not None)
    return replace(calibration, with_images=fitted) if fitted else calibration


def _expected(
    by_share: dict[float, list[HeldOut]],
    calibration: Calibration,
    scale: float,
    classnames: Sequence[str],
) -> Expected:
    points = []
    for share, parts in by_share.items():
        logits, labels, index = _logits(parts, calibration, scale)
        right = logits.argmax(axis=1) == labels
        points.append(CurvePoint(share, float(right.mean()), len(np.unique(index))))
    logits, labels, _ = _logits(by_share[max(by_share)], calibration, scale)
    return expect(points, _outlooks(softmax(logits), labels, classnames))


def _outlooks(
    probabilities: NDArray, labels: NDArray[np.int64], classnames: Sequence[str]
) -> list[ClassOutlook]:
    found = []
    for label in map(int, np.unique(labels)):
        own = probabilities[labels == label]
        right = own.argmax(axis=1) == label
        elsewhere = own.sum(axis=0)
        elsewhere[label] = 0
        wrong = int(elsewhere.argmax())
        found.append(
            ClassOutlook(
                name=classnames[label],
                images=len(own),
                accuracy=float(right.mean()),
                probability=float(own[:, label].mean()),
                taken_for=None if right.all() else classnames[wrong],
            )
        )
    return found


def _scores(
    episodes: Sequence[HeldOut], parts: Sequence[HeldOut], calibration: Calibration, scale: float
) -> Scores:
    familiar, strange, familiar_named, strange_named = [], [], [], []
    for part in parts:
        logits = _trained_logits(part, calibration, scale)
        familiar.append(familiarity(logits, part.images, part.means, scale))
        right = nonconformity(logits, len(part.rows))
        strange.append(right[np.arange(len(part.labels)), part.labels])
    for part in episodes:
        new = ~part.of_kept
        named = named_head(calibration, scale, part.left_names, part.means.mean(axis=0))
        beside = named.logits(part.images) - crowd(len(part.rows), len(part.left_names))
        logits = np.concatenate([_trained_logits(part, calibration, scale), beside], axis=1)[new]
        answers = logits[:, len(part.rows) :]
        familiar_named.append(familiarity(answers, part.images[new], part.means, scale))
        right = nonconformity(logits, len(part.rows))
        strange_named.append(right[np.arange(len(right)), part.labels[new]])
    return Scores(*map(_joined, (familiar, familiar_named, strange, strange_named)))


def _joined(arrays: Sequence[NDArray]) -> Array:
    return np.concatenate([*arrays, np.zeros(0)]).astype(np.float32)


def _logits(
    parts: Sequence[HeldOut], calibration: Calibration, scale: float
) -> tuple[NDArray, NDArray[np.int64], NDArray[np.int64]]:
    """Logits (images, classes), labels and numbers of the shots, of parts that keep all classes."""
    return (
        np.concatenate([_trained_logits(part, calibration, scale) for part in parts]),
        np.concatenate([part.labels for part in parts]),
        np.concatenate([part.index for part in parts]),
    )


def _trained_logits(part: HeldOut, calibration: Calibration, scale: float) -> Array:
    head = trained_head(calibration, scale, part.rows, part.means, part.gaussians)
    return head.logits(part.images)


def _array(tensor: Tensor) -> Array:
    return tensor.detach().to(torch.float32).cpu().numpy()
