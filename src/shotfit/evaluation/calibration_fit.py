"""Fits a `Calibration` to the shots: maximum likelihood where some classes stand for new ones.

In every episode some classes are left out of the second stage and are known by name alone, as
classes are that a user adds; the others are scored on images that their rows never saw. Taken are
the numbers under which the right classes are likeliest, every class counting the same, once among
the episode's classes and once with words of a general vocabulary among the names, which are never
right. A weak prior keeps a handful of shots from saying too much.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from shotfit.evaluation.calibration import (
    Array,
    Calibration,
    NameWithImages,
    crowd,
    trained_head,
    typical_image,
    typical_name,
)
from shotfit.evaluation.cross_fitting import HeldOut, mean_images

WORDS = 0.5
"""Words of the vocabulary beside the names left out, as a share of the classes that are kept."""
STRENGTH = 0.002
"""Of the prior, against the mean loss of an image."""
GAUSSIAN = 0.3
"""Where the weight of Gaussians starts: the embedded tasks choose some 0.1 to 0.5, published is 10
for CLIP."""
WIDTHS = {"row": 0.5, "name": 0.5, "image": 0.5, "level": 3.0, "attraction": 0.5, "gaussian": 2.5}
"""Of the prior, around the defaults of `Calibration`. `row`, `name` and `gaussian` are factors:
these are the widths of their logarithms."""

Loss = Callable[[Mapping[str, Tensor]], Tensor]


def fit_calibration(
    episodes: Sequence[HeldOut], words: Array, scale: float, seed: int = 0
) -> Calibration:
    """The calibration of episodes that leave classes out; `words` (V, dim) embed the vocabulary."""
    start = replace(
        Calibration(),
        typical_image=_mean(typical_image(e.images, e.labels, e.means) for e in episodes),
        typical_name=_mean(typical_name(e.names[: len(e.rows)], e.means) for e in episodes),
    )
    generator = np.random.default_rng(seed)
    losses = []
    for episode in episodes:
        count = min(len(words), round(WORDS * len(episode.rows)))
        chosen = words[generator.permutation(len(words))[:count]]
        for names in (episode.left_names, np.concatenate([episode.left_names, chosen])):
            losses.append(_loss_of_names(episode, names, start, scale))
    numbers = ("row", "image", "level", "name", "attraction")
    guess = {key: getattr(start, key) for key in numbers}
    if any(episode.gaussians is not None for episode in episodes):
        guess["gaussian"] = GAUSSIAN
    found = _maximise(losses, guess)
    return replace(start, **found)


def fit_names_with_images(
    episodes: Sequence[HeldOut], calibration: Calibration, scale: float, images: int
) -> NameWithImages | None:
    """How to answer with names that so many images were given for; None when no class left out has
    more images than that, to be scored."""
    losses = []
    for episode in episodes:
        for first in range(2):
            loss = _loss_with_images(episode, calibration, scale, images, first)
            if loss is not None:
                losses.append(loss)
    if not losses:
        return None
    start = replace(Calibration(), with_images=Calibration().with_images).of_images(images)
    found = _maximise(losses, {key: getattr(start, key) for key in ("name", "image", "level")})
    return NameWithImages(images, **found)


def _loss_of_names(episode: HeldOut, names: Array, start: Calibration, scale: float) -> Loss:
    """The loss of an episode by the numbers of `Calibration`."""
    rows = _tensor(scale * episode.images @ episode.rows.T)
    means = _tensor(scale * (episode.images @ episode.means.T - start.typical_image))
    named = _tensor(scale * episode.images @ names.T)
    center = episode.means.mean(axis=0)
    drawn = _tensor(scale * np.maximum(0.0, names @ center - start.typical_name))
    crowded = crowd(len(episode.rows), len(names))
    entropy = _entropy(episode.labels)
    gaussians = None
    if episode.gaussians is not None:
        gaussians = _tensor(episode.gaussians.logits(episode.images))

    def loss(free: Mapping[str, Tensor]) -> Tensor:
        trained = free["row"] * rows + free["image"] * means + free["level"]
        if gaussians is not None:
            trained = trained + free["gaussian"] * gaussians
        others = free["name"] * named - free["attraction"] * drawn - crowded
        return entropy(torch.cat([trained, others], dim=1))

    return loss


def _loss_with_images(
    episode: HeldOut, calibration: Calibration, scale: float, images: int, first: int
) -> Loss | None:
    """The loss of an episode by the numbers of `NameWithImages`, of every class left out so many
    images being given, from its image number `first` times `images` on, and the others scored."""
    kept = len(episode.rows)
    given = np.zeros(len(episode.labels), dtype=np.bool_)
    for label in range(kept, len(episode.names)):
        places = np.flatnonzero(episode.labels == label)
        given[np.roll(places, -first * images)[:images]] = True
    scored = ~given
    if len(np.unique(episode.labels[scored])) < len(np.unique(episode.labels)):
        return None
    embeds = episode.images[scored]
    means = mean_images(
        episode.images[given], episode.labels[given] - kept, len(episode.left_names)
    )
    head = trained_head(calibration, scale, episode.rows, episode.means, episode.gaussians)
    trained = _tensor(head.logits(embeds))
    named = _tensor(scale * embeds @ episode.left_names.T)
    with_images = _tensor(scale * (embeds @ means.T - calibration.typical_image))
    entropy = _entropy(episode.labels[scored])

    def loss(free: Mapping[str, Tensor]) -> Tensor:
        others = free["name"] * named + free["image"] * with_images + free["level"]
        return entropy(torch.cat([trained, others], dim=1))

    return loss


def _entropy(labels: np.ndarray) -> Callable[[Tensor], Tensor]:
    """Cross-entropy of logits (images, classes) in which every class of `labels` counts alike."""
    _, place, counts = np.unique(labels, return_inverse=True, return_counts=True)
    weights = _tensor(1 / (len(counts) * counts[place]))
    answers = torch.from_numpy(labels)
    return lambda logits: (weights * F.cross_entropy(logits, answers, reduction="none")).sum()


def _maximise(losses: Sequence[Loss], start: Mapping[str, float]) -> dict[str, float]:
    """The numbers under which the mean loss and the distance from `start` are least."""
    prior = {key: _inside(key, value) for key, value in start.items()}
    free = {
        key: torch.tensor(value, dtype=torch.float64, requires_grad=True)
        for key, value in prior.items()
    }
    optimizer = torch.optim.LBFGS(list(free.values()), max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        numbers = {key: value.exp() if key in FACTORS else value for key, value in free.items()}
        loss = torch.stack([loss(numbers) for loss in losses]).mean()
        for key, value in free.items():
            loss = loss + STRENGTH * ((value - prior[key]) / WIDTHS[key]) ** 2
        loss.backward()
        return loss

    optimizer.step(closure)
    found = {key: value.item() for key, value in free.items()}
    return {key: math.exp(value) if key in FACTORS else value for key, value in found.items()}


FACTORS = ("row", "name", "gaussian")


def _inside(key: str, value: float) -> float:
    return math.log(value) if key in FACTORS else value


def _mean(values) -> float:
    return float(np.mean(list(values)))


def _tensor(values: np.ndarray) -> Tensor:
    return torch.from_numpy(np.asarray(values, dtype=np.float64))
