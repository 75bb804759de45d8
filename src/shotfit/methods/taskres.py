"""TaskRes: a trained residual on each class embedding.

Paper: Yu et al., Task Residual for Tuning Vision-Language Models, CVPR 2023,
https://arxiv.org/abs/2211.10277.

Equation: t'_c = t_c + a x_c, logits = s cos(f, t'_c), with t_c not normalised; x, zero at first,
trains (section 3.3).

Deviations: none in the regular form; the enhanced one starts from tuned classifiers that have to be
downloaded, and is left out. The official code leaves the underscores of folder names in class
names; here names come without them, unless the benchmark's option `keep_underscores` says
otherwise. Templates are the published ones: seven and the generic one on ImageNet, one of its own
for each of the other benchmarks; other data takes the task's.

Novel categories: cannot be scored, since a residual belongs to one trained class.

When to prefer it: all classes known, some shots of each, and no wish to touch the encoders.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from shotfit.data.support_set import SupportSet
from shotfit.data.template import Template
from shotfit.layers.ensembles import mean_embeddings
from shotfit.methods.base import ClassEmbeddings, Method
from shotfit.methods.published import TaskFacts, TrainConfig, dassl, published_templates


@dataclass(frozen=True)
class TaskResConfig:
    """Options of TaskRes."""

    alpha: float = 0.5
    """Weight a of the residual; 1 on Oxford Flowers."""
    templates: tuple[Template, ...] = ()
    """Prompt templates to average; none means the task's own."""


class TaskRes(Method):
    """TaskRes (see the module's docstring)."""

    Config = TaskResConfig
    reads = "template"
    open_vocabulary = False
    first_fraction = None

    @torch.no_grad()
    def prepare(self, support: SupportSet) -> None:
        """Embeds the class names, which stay as they are, and starts the residuals at zero."""
        templates = self.config.templates or (self.template,)
        base = mean_embeddings(self.backbone.encode_text, self.trained_names, templates, unit=False)
        self.base = nn.Buffer(base)
        self.residual = nn.Parameter(torch.zeros_like(base))

    def encode_classes(self, names: Sequence[str]) -> ClassEmbeddings:
        """Class embeddings with their residuals.

        Raises:
            UsageError: for a class that was not trained.
        """
        rows = self.seen_rows(names)
        shifted = self.base[rows] + self.config.alpha * self.residual[rows]
        return self.class_embeddings(names, F.normalize(shifted, dim=-1))

    @classmethod
    def published_config(cls, facts: TaskFacts) -> TaskResConfig:
        """a = 1 on Oxford Flowers; eight templates on ImageNet, CoOp's on other benchmarks."""
        alpha = 1.0 if facts.benchmark == "oxford_flowers" else 0.5
        return TaskResConfig(alpha, published_templates(facts, generic=True))

    @classmethod
    def published_training(cls, facts: TaskFacts) -> tuple[TrainConfig, ...]:
        """Adam at 2e-3 (ImageNet 2e-4), batches of 256, 100 epochs up to 4 shots, then 200."""
        return (
            dassl(
                optimizer="adam",
                lr=2e-4 if facts.benchmark == "imagenet" else 2e-3,
                batch_size=256,
                epochs=100 if facts.shots <= 4 else 200,
            ),
        )
