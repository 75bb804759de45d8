"""Rules that make trained classes and names comparable, each fitted on the shots alone.

A rule takes the episodes (classes left out of the second stage) and gives a function from unit
image embeddings to logits of the trained classes and of names.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from shotfit.evaluation.assessment import Assessment
from shotfit.evaluation.calibration import Array, crowd, named_head, trained_head
from shotfit.evaluation.cross_fitting import HeldOut, ShotFeatures, unit
from shotfit.evaluation.reliability import softmax
from shotfit.methods.published import TrainConfig
from shotfit.training.loop import learning_rate, make_optimizer, updates_per_epoch
from trust.fits import Fit

Logits = tuple[NDArray, NDArray]
"""Of the trained classes (images, K), and of the names (images, m)."""
Scores = Callable[[Array, Array], Logits]
"""From unit embeddings of images (N, dim) and of names (m, dim)."""
LEVELS = np.arange(-8.0, 8.01, 0.25)
FACTORS = np.exp(np.arange(-1.5, 0.51, 0.1))
SHARES = np.arange(0.0, 1.01, 0.05)


@dataclass(frozen=True)
class Trained:
    """What was trained: unit `rows` and the names that they began as, `text` (K, dim), `words` of a
    vocabulary (V, dim), the shots, and how the second stage was trained."""

    rows: Array
    text: Array
    words: Array
    features: ShotFeatures
    training: TrainConfig
    seed: int

    @classmethod
    def of(cls, fit: Fit) -> "Trained":
        """Of a fit, its second stage in full precision."""
        return cls(
            rows=fit.rows.numpy(),
            text=fit.features.names.numpy(),
            words=fit.words.numpy(),
            features=fit.features,
            training=replace(fit.training, precision="fp32"),
            seed=fit.seed,
        )

    @property
    def scale(self) -> float:
        """From cosines to logits."""
        return self.features.scale


def published(trained: Trained) -> Scores:
    """Rows and names as they are."""
    return lambda images, names: (
        trained.scale * images @ trained.rows.T,
        trained.scale * images @ names.T,
    )


def constant(trained: Trained, episodes: Sequence[HeldOut]) -> Scores:
    """A constant on trained classes: calibrated stacking, fitted by leaving classes out."""
    level = min(LEVELS, key=lambda x: _loss(trained, episodes, lambda b, n: (b + x, n)))
    plain = published(trained)
    return lambda images, names: _shifted(plain(images, names), level)


def scale_and_constant(trained: Trained, episodes: Sequence[HeldOut]) -> Scores:
    """A factor on names, too."""
    pairs = [(factor, level) for factor in FACTORS[::2] for level in LEVELS[::2]]
    factor, level = min(
        pairs, key=lambda p: _loss(trained, episodes, lambda b, n: (b + p[1], p[0] * n))
    )
    plain = published(trained)

    def scores(images: Array, names: Array) -> Logits:
        base, named = plain(images, names)
        return base + np.float32(level), np.float32(factor) * named

    return scores


def vocabulary_rows(trained: Trained) -> Scores:
    """The second stage again, with frozen rows of a vocabulary among the classes of its loss."""
    rows = _rows_beside_words(trained)
    return lambda images, names: (trained.scale * images @ rows.T, trained.scale * images @ names.T)


def rank_fusion(trained: Trained, episodes: Sequence[HeldOut]) -> Scores:
    """The kind is the one in whose held-out scores the best score of the image ranks higher; within
    a kind, logits decide."""
    kept, left = [], []
    for episode in episodes:
        base, named = _of_episode(trained, episode)
        kept.append(base.max(axis=1)[episode.of_kept])
        left.append(named.max(axis=1)[~episode.of_kept])
    of_base, of_names = np.sort(np.concatenate(kept)), np.sort(np.concatenate(left))

    def scores(images: Array, names: Array) -> Logits:
        base, named = published(trained)(images, names)
        if not len(names):
            return base, named
        rank = np.searchsorted(of_base, base.max(axis=1)) / len(of_base)
        other = np.searchsorted(of_names, named.max(axis=1)) / len(of_names)
        # Log-odds of the kinds, spread over their classes.
        odds = np.log((rank + 0.01) / (other + 0.01))[:, None]
        return _log_softmax(base) + odds, _log_softmax(named)

    return scores


def interpolation(trained: Trained, episodes: Sequence[HeldOut]) -> Scores:
    """Rows between the names and what the second stage made of them, as far as held-out shots
    favour it."""

    def loss(share: float) -> float:
        total = 0.0
        for episode in episodes:
            text = episode.names[: len(episode.rows)]
            rows = unit((1 - share) * text + share * episode.rows)
            base = trained.scale * episode.images @ rows.T
            total += _entropy(base, trained.scale * episode.images @ episode.left_names.T, episode)
        return total

    share = min(SHARES, key=loss)
    rows = unit((1 - share) * trained.text + share * trained.rows).astype(np.float32)
    return lambda images, names: (trained.scale * images @ rows.T, trained.scale * images @ names.T)


def fitted(trained: Trained, assessment: Assessment) -> Scores:
    """What ships: `shotfit.evaluation.calibration`."""
    numbers = assessment.calibration
    base = trained_head(numbers, trained.scale, trained.rows, assessment.means)
    center = assessment.means.mean(axis=0)

    def scores(images: Array, names: Array) -> Logits:
        named = named_head(numbers, trained.scale, names, center).logits(images)
        named = named - np.float32(crowd(len(trained.rows), len(names)))
        factor = np.float32(numbers.sharpness)
        return factor * base.logits(images), factor * named

    return scores


def _shifted(logits: Logits, level: float) -> Logits:
    return logits[0] + np.float32(level), logits[1]


def _of_episode(trained: Trained, episode: HeldOut) -> Logits:
    return (
        trained.scale * episode.images @ episode.rows.T,
        trained.scale * episode.images @ episode.left_names.T,
    )


def _loss(
    trained: Trained, episodes: Sequence[HeldOut], change: Callable[[NDArray, NDArray], Logits]
) -> float:
    return sum(_entropy(*change(*_of_episode(trained, one)), one) for one in episodes)


def _entropy(base: NDArray, named: NDArray, episode: HeldOut) -> float:
    """The cross-entropy of an episode, trained and left-out images counting the same."""
    logits = np.concatenate([base, named], axis=1)
    right = softmax(logits)[np.arange(len(logits)), episode.labels]
    loss = -np.log(np.maximum(right, 1e-12))
    kinds = (episode.of_kept, ~episode.of_kept)
    return float(np.mean([loss[kind].mean() for kind in kinds if kind.any()]))


def _log_softmax(logits: NDArray) -> NDArray:
    return np.log(np.maximum(softmax(logits), 1e-30))


def _rows_beside_words(trained: Trained) -> Array:
    features, training = trained.features, trained.training
    rows = torch.nn.Parameter(features.names.clone())
    words = torch.from_numpy(trained.words)
    generator = torch.Generator().manual_seed(trained.seed)
    optimizer = make_optimizer([rows], training)
    assert training.iterations is not None
    count = len(features.labels)
    waiting: list[int] = []
    for iteration in range(training.iterations):
        while len(waiting) < min(training.batch_size, count):
            waiting += torch.randperm(count, generator=generator).tolist()
        batch = torch.tensor(waiting[: training.batch_size])
        waiting = waiting[training.batch_size :]
        view = torch.randint(len(features.views), batch.shape, generator=generator)
        for group in optimizer.param_groups:
            every = updates_per_epoch(training, count)
            group["lr"] = learning_rate(training, iteration, training.iterations, every)
        classes = torch.cat([F.normalize(rows, dim=-1), words])
        logits = features.scale * features.views[view, batch] @ classes.T
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(logits, features.labels[batch]).backward()
        optimizer.step()
    return F.normalize(rows.detach(), dim=-1).numpy()
