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
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from shotfit.backbone import Backbone
from shotfit.data.dataset import Example, Split
from shotfit.data.loading import SupportSet
from shotfit.errors import UsageError
from shotfit.methods import get_method
from shotfit.methods.base import Method
from shotfit.methods.published import TrainConfig
from shotfit.training.loop import TrainStep, total_iterations, train
from shotfit.vocabulary import VOCABULARY

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
        support = SupportSet(
            split,
            self.support.spec,
            random.Random(f"stopping {seed}"),
            self.support.loading,
        )
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


class Signal(ABC):
    """The rules that watch one number along the run and stop where it passes `threshold`.

    `history` keeps (iteration, value); `direction` is 1 to stop above, -1 to stop below.
    """

    direction: ClassVar[int] = 1

    def __init__(self, threshold: float, every: int) -> None:
        self.threshold = threshold
        self.every = every
        self.history: list[tuple[int, float]] = []
        self.stage: FirstStage | None = None

    def fraction(self, stage: FirstStage) -> float:
        """The most that is allowed; the run decides."""
        self.stage = stage
        return MAX_FRACTION

    def stop(self, method: Method, step: TrainStep) -> bool:
        """True once the signal has passed the threshold, not before `MIN_FRACTION`."""
        value = self.measure(method, step)
        if value is None:
            return False
        self.history.append((step.iteration, value))
        beyond = self.direction * (value - self.threshold) > 0
        return beyond and step.iteration >= step.total * MIN_FRACTION / MAX_FRACTION

    @abstractmethod
    def measure(self, method: Method, step: TrainStep) -> float | None:
        """The signal after this update, None where it is not taken."""


class GradientEvidence(Signal):
    """Stops where the gradients are what a zero mean and their own noise would give.

    Mahsereci et al., Early Stopping without a Validation Set, 2017, eq. 8,
    https://arxiv.org/abs/1703.09580: 1 - (B / D) sum_k (g_k^2 / S_k) > 0, with g the gradient over
    B examples, S_k the variance of single ones, D the number of parameters.

    Deviation: mean and variance are those of the gradients of `every` consecutive updates, read
    after the optimiser has used them. That costs nothing, where gradients of single examples would
    double the run, and takes the parameters as fixed for so many updates.
    """

    def __init__(self, threshold: float = 0.0, every: int = 20) -> None:
        super().__init__(threshold, every)
        self._sums: dict[str, tuple[Tensor, Tensor]] = {}
        self._count = 0

    @torch.no_grad()
    def measure(self, method: Method, step: TrainStep) -> float | None:
        """The criterion over the last `every` updates, at their end."""
        for name, parameter in method.named_parameters():
            if parameter.requires_grad and parameter.grad is not None:
                grad = parameter.grad.double()
                total, squares = self._sums.get(name, (0.0, 0.0))
                self._sums[name] = (total + grad, squares + grad**2)
        self._count += 1
        if self._count < self.every:
            return None
        n = self._count
        ratio, count = 0.0, 0
        for total, squares in self._sums.values():
            mean = total / n
            variance = (squares / n - mean**2).clamp_min(0) * n / (n - 1)
            known = variance > 0
            ratio += (n * mean[known] ** 2 / variance[known]).sum().item()
            count += int(known.sum())
        self._sums, self._count = {}, 0
        # Under the null hypothesis the ratio is F(1, n - 1), whose mean is (n - 1) / (n - 3).
        return 1 - ratio / max(1, count) * (n - 3) / (n - 1)


class TextDrift(Signal):
    """Stops where a generic vocabulary's geometry has left its zero-shot state too far.

    The signal is 1 - r, with r the correlation of the words' pairwise cosines now with those of
    zero-shot CLIP: what the text encoder knew of classes that the task never names.
    """

    def __init__(self, threshold: float = 0.1, every: int = 10) -> None:
        super().__init__(threshold, every)
        self._before: Tensor | None = None

    def fraction(self, stage: FirstStage) -> float:
        """Embeds the vocabulary as the backbone does before any training."""
        zero_shot = get_method("zero_shot")(stage.backbone, template=stage.support.split.template)
        self._before = _pairwise(zero_shot)
        return super().fraction(stage)

    def measure(self, method: Method, step: TrainStep) -> float | None:
        """The drift, every `every` updates."""
        if step.iteration % self.every:
            return None
        assert self._before is not None
        pairs = torch.stack([self._before, _pairwise(method)])
        return 1 - torch.corrcoef(pairs)[0, 1].item()


class TrainingFit(Signal):
    """Stops where the training batches are classified well enough: nothing left to learn there.

    The signal is the batch accuracy in percent over the last `every` updates.
    """

    def __init__(self, threshold: float = 90.0, every: int = 20) -> None:
        super().__init__(threshold, every)
        self._recent: list[float] = []

    def measure(self, method: Method, step: TrainStep) -> float | None:
        """The mean of the last batches, at their end."""
        self._recent.append(step.accuracy)
        if len(self._recent) < self.every:
            return None
        mean = sum(self._recent) / len(self._recent)
        self._recent.clear()
        return mean


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
        order = list(range(classes))
        random.Random(f"halves {stage.seed}").shuffle(order)
        halves = (sorted(order[: classes // 2]), sorted(order[classes // 2 :]))
        curves = [self._trial(stage, held) for held in halves[: self.trials]]
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
        method, support = stage.fresh(subset(split, kept), stage.seed)
        outside = subset(split, held)
        unseen = SupportSet(outside, support.spec, support.stream, support.loading)
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


def best_fraction(curve: Sequence[tuple[float, float]]) -> float:
    """The fraction at the maximum of (fraction, score) smoothed over three points, in bounds."""
    scores = [score for _, score in curve]
    around = [scores[max(0, i - 1) : i + 2] for i in range(len(scores))]
    best = max(range(len(scores)), key=lambda i: sum(around[i]) / len(around[i]))
    return min(MAX_FRACTION, max(MIN_FRACTION, curve[best][0]))


AUTO: Callable[[], StoppingRule] = LeaveClassesOut
"""The rule behind `first_fraction="auto"`: on the embedded suite level with the best rule compared
(+0.8 points of harmonic mean on the published alpha, 95 % interval 1.4 to each side), and the only
one of those that has no threshold to choose. Not better than the fixed alpha beyond doubt, so no
default."""


def subset(split: Split, labels: list[int]) -> Split:
    """The examples of some classes, relabelled by their place in `labels`."""
    place = {label: index for index, label in enumerate(labels)}
    examples = tuple(
        Example(example.key, place[example.label], example.image)
        for example in split.examples
        if example.label in place
    )
    names = tuple(split.classnames[label] for label in labels)
    return Split(names, examples, split.template, draft=split.draft)


@torch.no_grad()
def _right(method: Method, pixels: Tensor, labels: Tensor, names: tuple[str, ...]) -> float:
    """Mean probability of the right class; leaves the method's mode as it was."""
    training = method.training
    method.eval()
    logits = method(pixels, method.encode_classes(names)).float()
    method.train(training)
    return logits.softmax(dim=-1).gather(1, labels[:, None]).mean().item()


@torch.no_grad()
def _pairwise(method: Method) -> Tensor:
    """Cosines of all pairs of the vocabulary's embeddings; leaves the method's mode as it was."""
    training = method.training
    method.eval()
    weight = method.encode_classes(VOCABULARY).weight.float()
    method.train(training)
    rows, columns = torch.triu_indices(len(weight), len(weight), offset=1, device=weight.device)
    return (weight @ weight.T)[rows, columns].cpu()
