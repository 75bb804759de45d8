"""A rule that watches whether what serves some classes serves the others: gradients of two halves.

Leaving classes out, to first order: a small step on the loss of one half of the classes, each half
told apart from its own names alone, changes the other half's loss by minus the step times the inner
product of their gradients. While features of the task are learned the two agree; what is learned of
single classes has nothing to say to others.
"""

import itertools
import random
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from shotfit.data.dataset import select_classes
from shotfit.methods.base import Method
from shotfit.training.loop import TrainStep
from shotfit.training.stopping import FirstStage, halves
from stopping.signals import Signal

IMAGES = 16
"""Of either half, whenever the gradients are taken."""
SMOOTHED = 3
"""Cosines that a value is the mean of: one alone is of 32 images."""

Half = tuple[tuple[str, ...], Iterator[tuple[Tensor, Tensor]]]
"""Names, and draws of their plain images with labels, over and over."""


class ClassAgreement(Signal):
    """Stops where the gradients of two halves of the classes no longer agree.

    The signal is the cosine between the gradients of the halves' losses, on images that are not
    augmented and without dropout, over all that is trained, averaged over the last `SMOOTHED`.

    Similar: gradient coherence between examples, Chatterjee, Coherent Gradients, ICLR 2020,
    https://arxiv.org/abs/2002.10657; here it is between classes.
    """

    direction = -1

    def __init__(self, threshold: float = 0.0, every: int = 10) -> None:
        super().__init__(threshold, every)
        self._halves: list[Half] = []
        self._recent: list[float] = []

    def fraction(self, stage: FirstStage) -> float:
        """Draws the halves; keeps their images."""
        stream = random.Random(f"agreement {stage.seed}")
        parts = halves(len(stage.support.classnames), stream)
        self._halves = [half(stage, part, stream) for part in parts]
        return super().fraction(stage)

    def measure(self, method: Method, step: TrainStep) -> float | None:
        """The smoothed cosine, every `every` updates."""
        if step.iteration % self.every:
            return None
        assert self.stage is not None
        bf16 = self.stage.training.precision == "bf16"
        one, other = (gradient(method, *part, bf16=bf16) for part in self._halves)
        self._recent = [*self._recent, F.cosine_similarity(one, other, dim=0).item()][-SMOOTHED:]
        return sum(self._recent) / len(self._recent)


def half(stage: FirstStage, labels: Sequence[int], stream: random.Random) -> Half:
    """Some of the classes, with their images."""
    split = select_classes(stage.support.split.examples, stage.support.split, labels)
    support = stage.support.part(split, stream)
    pixels = torch.cat([batch for batch, _ in support.plain()])
    return split.classnames, draws(pixels, support.labels, stream.getrandbits(48))


def draws(pixels: Tensor, labels: Tensor, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """At most `IMAGES` at a time, each as often as the others."""
    generator = torch.Generator().manual_seed(seed)
    count = min(IMAGES, len(labels))
    orders = (torch.randperm(len(labels), generator=generator) for _ in itertools.count())
    places = itertools.chain.from_iterable(order.tolist() for order in orders)
    while True:
        chosen = list(itertools.islice(places, count))
        yield pixels[chosen], labels[chosen]


def gradient(
    method: Method, names: Sequence[str], images: Iterator[tuple[Tensor, Tensor]], bf16: bool
) -> Tensor:
    """Of the cross-entropy of the next images among `names`, over all that is trained, flat;
    leaves gradients and the method's mode as they were."""
    device = method.backbone.device
    pixels, labels = (x.to(device) for x in next(images))
    training = method.training
    method.eval()
    trained = [p for p in method.parameters() if p.requires_grad]
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=bf16):
        logits = method(pixels, method.encode_classes(names))
    found = torch.autograd.grad(F.cross_entropy(logits.float(), labels), trained)
    method.train(training)
    return torch.cat([g.flatten().float() for g in found])
