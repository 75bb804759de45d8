"""Rules that watch the run: compared in the study, none of them better than the one that ships."""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from shotfit.evaluation.vocabulary import VOCABULARY
from shotfit.methods import get_method
from shotfit.methods.base import Method
from shotfit.training.loop import TrainStep
from shotfit.training.stopping import MAX_FRACTION, MIN_FRACTION, FirstStage


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


@torch.no_grad()
def _pairwise(method: Method) -> Tensor:
    """Cosines of all pairs of the vocabulary's embeddings; leaves the method's mode as it was."""
    training = method.training
    method.eval()
    weight = method.encode_classes(VOCABULARY).weight.float()
    method.train(training)
    rows, columns = torch.triu_indices(len(weight), len(weight), offset=1, device=weight.device)
    return (weight @ weight.T)[rows, columns].cpu()
