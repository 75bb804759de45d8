"""Second stages trained again without some images or classes: honest scores of the shots.

A row scores the images that trained it too well, so nothing may be fitted on those scores. Here
every shot is scored by rows that never saw it (cross-fitting; Stone, Cross-validatory choice and
assessment of statistical predictions, 1974), and, in an episode, classes left out stand for the
classes that will be added by name. Only the second stage is trained again, on the features of the
first, all trainings at once as one batch of matrices: a small share of a fit's cost.

What that leaves in: the first stage has seen every shot.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from shotfit.evaluation.calibration import Head
from shotfit.evaluation.folds import image_folds
from shotfit.evaluation.gaussians import gaussian_head
from shotfit.methods.published import TrainConfig
from shotfit.training.loop import learning_rate, make_optimizer, total_iterations, updates_per_epoch

Array = NDArray[np.float32]
# A logit that no softmax notices.
NEVER = -1e4
VIEWS = 4
"""Augmented views of each shot to train on. On the suite, 16 change no figure by more than its
noise."""
UPDATE_COST = 8
"""An update of an assessment's twenty trainings, over an update of one: 2.6 to 9.5 on a CPU, of 10
classes in 256 dimensions and of 100 in 512."""


@dataclass(frozen=True)
class ShotFeatures:
    """The shots as a first stage embeds them.

    `views` (V, N, dim) are augmented, as training sees them; `clean` (N, dim) are as a prediction
    sees them; `labels` (N,) index the rows of `names` (K, dim), the embedded class names. All
    embeddings have unit norm; `scale` is the factor from cosines to logits.
    """

    views: Tensor
    clean: Tensor
    labels: Tensor
    names: Tensor
    scale: float

    @property
    def shots(self) -> tuple[int, ...]:
        """The number of images of each class."""
        return tuple(torch.bincount(self.labels, minlength=len(self.names)).tolist())


@dataclass(frozen=True)
class Fold:
    """What one training sees: `images` (N,) and `classes` (K,), True where it is used."""

    images: NDArray[np.bool_]
    classes: NDArray[np.bool_]


@dataclass(frozen=True)
class HeldOut:
    """Images that a training did not see, and the classes that they can be compared with.

    The classes are numbered anew: first those with `rows` and `means` (kept, dim), the unit rows
    and the mean image embeddings of the training images, then those left out; `names` (K, dim) are
    the embedded names of all. `images` (n, dim) are embeddings, `labels` (n,) number their classes,
    `index` (n,) says which shots they are, and `classes` (K,) which classes of the task. What the
    Gaussians of the training images say of kept classes is in `gaussians` where that was asked for.
    """

    images: Array
    labels: NDArray[np.int64]
    index: NDArray[np.int64]
    rows: Array
    means: Array
    names: Array
    classes: NDArray[np.int64]
    gaussians: Head | None = None

    @property
    def of_kept(self) -> NDArray[np.bool_]:
        """Which images belong to classes with rows, (n,)."""
        return self.labels < len(self.rows)

    @property
    def left_names(self) -> Array:
        """The embedded names of the classes left out, (left, dim)."""
        return self.names[len(self.rows) :]


def leave_images_out(
    labels: Sequence[int] | NDArray[np.int64], folds: int, trained: int | None = None, seed: int = 0
) -> list[Fold]:
    """`folds` trainings on all classes, each on `trained` of the folds; by default on all but one.

    Every image is then left out by `folds` less `trained` of them.
    """
    trained = folds - 1 if trained is None else trained
    of_image = image_folds(labels, folds, seed)
    everything = np.ones(int(max(labels)) + 1, dtype=np.bool_)
    return [Fold((of_image - first) % folds < trained, everything) for first in range(folds)]


def leave_classes_out(
    labels: Sequence[int] | NDArray[np.int64], parts: int, folds: int, seed: int = 0
) -> list[Fold]:
    """`parts` times `folds` trainings, each without one part of the classes and one fold of the
    other classes' images."""
    array = np.asarray(labels)
    classes = int(array.max()) + 1
    generator = np.random.default_rng(seed)
    part = np.empty(classes, dtype=np.int64)
    part[generator.permutation(classes)] = np.arange(classes) % parts
    of_image = image_folds(labels, folds, seed)
    found = []
    for left in range(parts):
        kept = part != left
        found += [Fold(kept[array] & (of_image != fold), kept) for fold in range(folds)]
    return found


def cross_fit(
    features: ShotFeatures,
    folds: Sequence[Fold],
    training: TrainConfig | None,
    seed: int = 0,
    *,
    gaussians: bool = False,
) -> list[HeldOut]:
    """The images that each fold leaves out, with the rows of its training; without `training` the
    rows stay what they start at, the names. With `gaussians` those of the classes are solved anew.

    Left-out images are all of the classes left out, and those of the others that the fold does not
    see. A fold that would train on nothing is skipped.
    """
    usable = [fold for fold in folds if fold.images.any()]
    if not usable:
        return []
    if training is None:
        rows = np.tile(features.names.float().cpu().numpy(), (len(usable), 1, 1))
    else:
        rows = _train(features, usable, training, seed).cpu().numpy()
    clean = features.clean.float().cpu().numpy()
    names = features.names.float().cpu().numpy()
    labels = features.labels.cpu().numpy()
    held = [
        _held_out(fold, row, clean, names, labels) for fold, row in zip(usable, rows, strict=True)
    ]
    if not gaussians:
        return held
    return [
        replace(one, gaussians=_gaussians(features.views, labels, fold, one.classes))
        for fold, one in zip(usable, held, strict=True)
    ]


def _gaussians(
    views: Tensor, labels: NDArray[np.int64], fold: Fold, classes: NDArray[np.int64]
) -> Head:
    """What the images of a fold say of its classes, in the order of `classes`."""
    used = fold.images
    number = np.argsort(classes)
    seen = torch.from_numpy(used).to(views.device)
    kept = int(fold.classes.sum())
    return gaussian_head(views[:, seen], number[labels[used]], kept, float(used.mean()))


def _held_out(fold: Fold, rows: Array, clean: Array, names: Array, labels: NDArray) -> HeldOut:
    kept, left = np.flatnonzero(fold.classes), np.flatnonzero(~fold.classes)
    classes = np.concatenate([kept, left])
    number = np.argsort(classes)
    seen = np.isin(labels, labels[fold.images])
    # An image whose class has rows, and in this fold no image to train them, says nothing.
    index = np.flatnonzero(~fold.images & (seen | ~fold.classes[labels]))
    return HeldOut(
        images=clean[index],
        labels=number[labels[index]],
        index=index,
        rows=rows[kept],
        means=mean_images(clean[fold.images], number[labels[fold.images]], len(kept)),
        names=names[classes],
        classes=classes,
    )


def mean_images(embeds: Array, labels: NDArray[np.int64], classes: int) -> Array:
    """The unit mean embedding of each class's images, (classes, dim); of a class without images
    that of all."""
    means = np.tile(embeds.mean(axis=0), (classes, 1))
    for label in np.unique(labels):
        means[label] = embeds[labels == label].mean(axis=0)
    return unit(means)


def unit(vectors: NDArray) -> NDArray:
    """Vectors (..., dim) scaled to unit norm."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


def _train(
    features: ShotFeatures, folds: Sequence[Fold], training: TrainConfig, seed: int
) -> Tensor:
    """Unit rows (folds, K, dim) of the second stage's loss, every fold on its own images."""
    device = features.views.device
    views, labels = features.views.float(), features.labels.to(device)
    start = features.names.float()
    rows = nn.Parameter(start.expand(len(folds), *start.shape).clone())
    left = ~torch.from_numpy(np.stack([fold.classes for fold in folds]))
    never = (NEVER * left.float()).unsqueeze(1).to(device)
    generator = torch.Generator().manual_seed(seed)
    draws = [_Draws(fold, training.batch_size, generator) for fold in folds]
    total = total_iterations(training, len(labels))
    per_epoch = updates_per_epoch(training, len(labels))
    optimizer = make_optimizer([rows], replace(training, precision="fp32"))
    for iteration in range(total):
        batch = torch.tensor([draw.next() for draw in draws])
        used = (batch >= 0).float().to(device)
        batch = batch.clamp_min(0)
        view = torch.randint(len(views), batch.shape, generator=generator)
        images, answers = views[view, batch], labels[batch]
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(training, iteration, total, per_epoch)
        logits = features.scale * images @ F.normalize(rows, dim=-1).transpose(1, 2) + never
        losses = F.cross_entropy(logits.flatten(0, 1), answers.flatten(), reduction="none")
        losses = losses.view(used.shape) * used
        optimizer.zero_grad(set_to_none=True)
        # A sum over folds: no fold's gradient knows of another.
        (losses.sum(dim=1) / used.sum(dim=1)).sum().backward()
        optimizer.step()
    return F.normalize(rows.detach(), dim=-1)


class _Draws:
    """A fold's batches: shuffled passes over its images, one behind the other."""

    def __init__(self, fold: Fold, size: int, generator: torch.Generator) -> None:
        self._images = torch.from_numpy(np.flatnonzero(fold.images))
        self._size = size
        self._generator = generator
        self._waiting: list[int] = []

    def next(self) -> list[int]:
        """`size` numbers of images; behind them -1 where a fold has fewer images than a batch."""
        count = min(self._size, len(self._images))
        while len(self._waiting) < count:
            order = torch.randperm(len(self._images), generator=self._generator)
            self._waiting += self._images[order].tolist()
        drawn, self._waiting = self._waiting[:count], self._waiting[count:]
        return drawn + [-1] * (self._size - count)
