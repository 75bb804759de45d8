"""When to leave the first stage, from the support set alone: `first_fraction="auto"`.

Paper: Farina et al., CVPR 2025, names this as its open problem (appendix, Limitations):
https://arxiv.org/abs/2503.11609. A rule sees the support set, the backbone and the run itself; no
validation image, no name of a novel class, and no test data has a way in. `docs/stopping.md` has
the comparison that decided which rule is `AUTO`.

A rule answers one of two questions. Before the run: which share of the budget to plan. The first
stage is then exactly that of a fixed fraction, its cosine ending where the stage ends. Or during
the run: whether to stop now. The cosine is then laid over the longest first stage, so that the
learning rate has not reached its end when the rule fires, and training costs nothing more.
"""

import copy
import dataclasses
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from shotfit.backbone import Backbone
from shotfit.data.dataset import Split, select_classes
from shotfit.data.support_set import SupportSet
from shotfit.errors import UsageError
from shotfit.methods import get_method
from shotfit.methods.base import Method
from shotfit.methods.published import TrainConfig
from shotfit.training.loop import TrainStep, total_iterations, train

MIN_FRACTION = 0.1
MAX_FRACTION = 0.8
"""Bounds of what a rule may choose; the paper's search goes from 0.2 to 0.8, LoRA's value is 0.3
and its break may come earlier."""


@dataclass(frozen=True)
class FirstStage:
    """A first stage that has not begun: all that a rule may know beforehand."""

    method: str
    config: Any
    training: TrainConfig
    """Its training if it were given `MAX_FRACTION` of the budget."""
    backbone: Backbone
    """Untouched; a rule trains copies of it."""
    support: SupportSet

    @property
    def seed(self) -> int:
        """A seed that follows from the run's, drawn without moving the run's own stream."""
        stream = random.Random()
        stream.setstate(self.support.stream.getstate())
        return stream.getrandbits(48)

    def fresh(self, split: Split, seed: int) -> tuple[Method, SupportSet]:
        """The method on a copy of the backbone, set up for a split, with the split as support."""
        support = self.support.part(split, random.Random(f"stopping {seed}"))
        method = get_method(self.method)(
            copy.deepcopy(self.backbone),
            self.config,
            split.template,
            torch.Generator().manual_seed(seed),
        )
        method.setup(support)
        return method, support


class StoppingRule(Protocol):
    """Decides how long the first stage is; made anew for every run."""

    def fraction(self, stage: FirstStage) -> float:
        """The share of the budget to plan for, called once before the run."""
        ...

    def stop(self, method: Method, step: TrainStep) -> bool:
        """Whether to leave the first stage after this update."""
        ...


class LeaveClassesOut:
    """Trains on a half of the classes, and takes the fraction that served the other half best.

    The mean probability of the right class on the support images of the classes left out, among
    their own names, stands for novel accuracy; probabilities, not accuracy, since these are a
    handful of images. A trial has half the batch size, so that it costs about half of the longest
    first stage. With `trials=2` the halves change places and their curves are averaged.
    """

    def __init__(self, trials: int = 1, checks: int = 16) -> None:
        self.trials = trials
        self.checks = checks
        self.curve: list[tuple[float, float]] = []
        """(fraction, mean probability of held-out classes), the first at fraction 0."""

    def fraction(self, stage: FirstStage) -> float:
        """The fraction at the maximum of the held-out curve, within the bounds.

        Raises:
            UsageError: with fewer than four classes, of which none can be spared.
        """
        classes = len(stage.support.classnames)
        if classes < 4:
            raise UsageError(
                f"first_fraction='auto' holds classes out and needs at least four, got {classes}. "
                "Give a number instead."
            )
        held_out = halves(classes, random.Random(f"halves {stage.seed}"))
        curves = [self._trial(stage, held) for held in held_out[: self.trials]]
        mean = [sum(values) / len(values) for values in zip(*curves, strict=True)]
        last = len(mean) - 1
        self.curve = [(MAX_FRACTION * i / last, value) for i, value in enumerate(mean)]
        return best_fraction(self.curve)

    def stop(self, method: Method, step: TrainStep) -> bool:
        """Never: the fraction was decided before."""
        return False

    def _trial(self, stage: FirstStage, held: list[int]) -> list[float]:
        """Scores of the held-out classes along a training without them, at `checks` + 1 times."""
        split = stage.support.split
        kept = [label for label in range(len(split.classnames)) if label not in held]
        method, support = stage.fresh(select_classes(split.examples, split, kept), stage.seed)
        outside = select_classes(split.examples, split, held)
        unseen = support.part(outside, support.stream)
        pixels = torch.cat([batch for batch, _ in unseen.plain()]).to(method.backbone.device)
        labels = unseen.labels.to(pixels.device)
        total = total_iterations(stage.training, len(stage.support))
        checks = {max(1, round(total * (i + 1) / self.checks)) for i in range(self.checks)}
        training = dataclasses.replace(
            stage.training,
            iterations=total,
            epochs=None,
            batch_size=max(1, stage.training.batch_size // 2),
        )
        scores = [_right(method, pixels, labels, outside.classnames)]
        for step in train(method, support, training):
            if step.iteration in checks:
                scores.append(_right(method, pixels, labels, outside.classnames))
        return scores


def halves(classes: int, stream: random.Random) -> tuple[list[int], list[int]]:
    """Labels of so many classes in two halves, drawn; of an odd number the second has one more."""
    order = list(range(classes))
    stream.shuffle(order)
    return sorted(order[: classes // 2]), sorted(order[classes // 2 :])


def best_fraction(curve: Sequence[tuple[float, float]]) -> float:
    """The fraction at the maximum of (fraction, score) smoothed over three points, in bounds."""
    scores = [score for _, score in curve]
    around = [scores[max(0, i - 1) : i + 2] for i in range(len(scores))]
    best = max(range(len(scores)), key=lambda i: sum(around[i]) / len(around[i]))
    return min(MAX_FRACTION, max(MIN_FRACTION, curve[best][0]))


AUTO: Callable[[], StoppingRule] = LeaveClassesOut
"""The rule behind `first_fraction="auto"`: level with the published alpha on both embedded suites
(+0.1 and +0.4 points of harmonic mean, 95 % intervals 0.3 and 0.7 to each side), of which one wants
a short first stage and the other a long one; the only rule without a threshold to choose. Its
advantage over the fixed alpha is not certain, so it is not the default."""


@torch.no_grad()
def _right(method: Method, pixels: Tensor, labels: Tensor, names: tuple[str, ...]) -> float:
    """Mean probability of the right class; leaves the method's mode as it was."""
    training = method.training
    method.eval()
    logits = method(pixels, method.encode_classes(names)).float()
    method.train(training)
    return logits.softmax(dim=-1).gather(1, labels[:, None]).mean().item()
