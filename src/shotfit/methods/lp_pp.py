"""LP++: a linear probe with a trained multiple of the class embedding in each row.

Paper: Huang et al., LP++: A Surprisingly Strong Linear Probe for Few-Shot CLIP, CVPR 2024,
https://arxiv.org/abs/2404.02285.

Equation: logits(x, c) = f w_c + b_c + alpha_c f t_c, without a temperature; w, b and alpha are
solved by full-batch gradient descent with rates that follow from the data: lr_w = 4 N / largest
eigenvalue of F^T F, lr_alpha = N / (4 max_c sum_i (f_i t_c)^2).

Deviations: like the official code, not the paper, there is a bias and momentum 0.9 on w and b, w
starts at the sum of a class's features, and the gradient of alpha is never zeroed: the step at
every tenth epoch uses the sum of all gradients so far. The published numbers were made that way, so
it is the default; `accumulate=False` takes the current gradient. The epoch is chosen on validation
images only, without any the last is taken; they are at most four of a class (published: as many as
shots). fp32 (published: fp16). Templates are the published ones: seven on ImageNet, one of its own
for each of the other benchmarks; other data takes the task's.

Novel categories: cannot be scored: a row belongs to one trained class.

When to prefer it: all classes known, no training of encoders, nothing to tune.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shotfit.config import Count
from shotfit.data.support_set import SupportSet
from shotfit.data.template import Template
from shotfit.methods.base import ClassEmbeddings, Method
from shotfit.methods.published import TaskFacts, published_templates

_MOMENTUM = 0.9
_ALPHA_EVERY = 10


@dataclass(frozen=True)
class LPPlusPlusConfig:
    """Options of LP++."""

    epochs: Count = 300
    """Full-batch steps on w and b; alpha moves at every tenth."""
    accumulate: bool = True
    """Never zero the gradient of alpha, as the official code does."""
    init_alpha: float = 250.0
    """Factor of the mean similarity of images and their class, where alpha starts."""
    templates: tuple[Template, ...] = ()
    """Prompt templates to average; none means the task's own."""


class LPPlusPlus(Method):
    """LP++ (see the module's docstring)."""

    Config = LPPlusPlusConfig
    starts_at_zero_shot = False
    open_vocabulary = False
    first_fraction = None
    selects_on = "validation shots"
    crop_scale = (0.5, 1.0)

    @torch.no_grad()
    def prepare(self, support: SupportSet) -> None:
        """Encodes each image once, augmented, and sets the start that the data gives."""
        device = self.backbone.device
        self._features = self.encode_pass(support.augmented_once(crop_scale=self.crops))
        one_hot = F.one_hot(support.labels.to(device), len(self.trained_names))
        self._targets = one_hot.to(self._features.dtype)
        text = self.prompt_ensemble(self.trained_names, self.config.templates)
        self.class_weight = nn.Buffer(text)
        counts = self._targets.sum(dim=0)
        similar = (self._targets * (self._features @ self.class_weight.T)).sum(dim=0) / counts
        start = self.config.init_alpha * similar.mean()
        bound = 1 / math.sqrt(self.backbone.dim)
        bias = torch.empty(len(counts)).uniform_(-bound, bound, generator=self.generator)
        self.weight = nn.Parameter(self._targets.T @ self._features)
        self.bias = nn.Parameter(bias.to(device))
        self.alpha = nn.Parameter(start.expand(len(counts)).clone())

    @torch.no_grad()
    def finish(self, support: SupportSet, validation: SupportSet | None) -> None:
        """Solves; keeps the epoch with the best validation accuracy, of equals the last."""
        held_out = labels = None
        self.selects_on = "nothing"
        if validation is not None and len(validation):
            self.selects_on = "validation shots"
            held_out = self.encode_pass(validation.plain())
            labels = validation.labels.to(held_out.device)
        best, chosen, hits = -1, None, 0
        for solution in self._descend():
            if held_out is not None:
                answers = _logits(held_out, self.class_weight, *solution).argmax(dim=1)
                hits = int((answers == labels).sum())
            if hits >= best:
                best, chosen = hits, solution
        assert chosen is not None
        for parameter, value in zip((self.weight, self.bias, self.alpha), chosen, strict=True):
            parameter.copy_(value)

    def encode_classes(self, names: Sequence[str]) -> ClassEmbeddings:
        """Class embeddings t of trained classes.

        Raises:
            UsageError: for a class that was not trained.
        """
        return self.class_embeddings(names, self.class_weight[self.seen_rows(names)])

    def forward(self, pixels: Tensor, classes: ClassEmbeddings) -> Tensor:
        """Logits (batch, classes) of the probe."""
        rows = list(classes.rows)
        solution = self.weight[rows], self.bias[rows], self.alpha[rows]
        return _logits(self.encode_images(pixels), classes.weight, *solution)

    def score_rows(self, classes: ClassEmbeddings) -> tuple[Tensor, Tensor]:
        """w + alpha t, and b."""
        rows = list(classes.rows)
        return self.weight[rows] + self.alpha[rows, None] * classes.weight, self.bias[rows]

    @classmethod
    def published_config(cls, facts: TaskFacts) -> LPPlusPlusConfig:
        """Seven templates on ImageNet, CoOp's on other benchmarks."""
        return LPPlusPlusConfig(templates=published_templates(facts))

    def _descend(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """(w, b, alpha) after every epoch."""
        features, targets = self._features, self._targets
        similar = features @ self.class_weight.T
        count = len(features)
        lr = 4 * count / torch.linalg.eigvalsh(features.T @ features)[-1]
        lr_alpha = count / (4 * similar.square().sum(dim=0).max())
        w, b, alpha = (p.detach().clone() for p in (self.weight, self.bias, self.alpha))
        moving_w, moving_b, gradient = (torch.zeros_like(x) for x in (w, b, alpha))
        for epoch in range(1, self.config.epochs + 1):
            share = (features @ w.T + b + alpha * similar).softmax(dim=-1)
            error = (share - targets) / count
            moving_w = _MOMENTUM * moving_w + error.T @ features
            moving_b = _MOMENTUM * moving_b + error.sum(dim=0)
            current = (error * similar).sum(dim=0)
            gradient = gradient + current if self.config.accumulate else current
            w, b = w - lr * moving_w, b - lr * moving_b
            if epoch % _ALPHA_EVERY == 0:
                alpha = alpha - lr_alpha * gradient
            yield w, b, alpha


def _logits(embeds: Tensor, text: Tensor, weight: Tensor, bias: Tensor, alpha: Tensor) -> Tensor:
    return embeds @ weight.T + bias + alpha * (embeds @ text.T)
