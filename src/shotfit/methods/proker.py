"""ProKeR: kernel ridge regression on what zero-shot CLIP leaves of the labels.

Paper: Bendou et al., ProKeR: A Kernel Perspective on Few-Shot Adaptation of Large Vision-Language
Models, CVPR 2025, https://arxiv.org/abs/2501.11175.

Equation: logits(x, c) = s (f t_c + k(f, S) a_c), k(f, z) = exp(-beta (1 - f z)), over the unit
features S of every view of every image; a solves (k(S, S) / lambda + I) a = Y - S T^T, with Y the
labels one-hot. It is lambda times the textbook's kernel ridge regression.

Deviations: no temperature is published; the scale s of the checkpoint multiplies all of it, which
moves no answer and makes probabilities out of cosines. beta and lambda are those that the authors
carry over from ImageNet, by shots (of ResNet-50, the only ones there are), and there is no
selection; their main numbers rest on a grid of each dataset's own on the whole validation split.
Solved in float64 (published: fp32). ImageNet's crops are those of the other datasets.

Novel categories: their cosine, without a correction, as the base classes' residual is one of zero.

When to prefer it: few classes, features that a linear rule does not separate. Its system has a row
for each view of each image and takes 16 bytes times its square: 4 GB for 100 classes with 16 shots
and 10 views, 400 GB for ImageNet. What does not fit is refused before it is tried.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shotfit.config import Count, Positive
from shotfit.data.support_set import SupportSet
from shotfit.data.template import Template
from shotfit.errors import UsageError
from shotfit.methods.base import ClassEmbeddings, Method
from shotfit.methods.published import TaskFacts, published_templates
from shotfit.system.memory import free_memory_bytes

# beta and lambda of ImageNet by shots (the official hyperparameters.json of RN50).
_TRANSFERRED = {1: (3.0, 0.05), 2: (2.6, 0.05), 4: (1.5, 0.05), 8: (1.66, 0.07), 16: (1.7, 0.1)}
# The system and its factor, in float64.
_BYTES = 16


@dataclass(frozen=True)
class ProKeRConfig:
    """Options of ProKeR."""

    beta: Positive = 1.7
    """Sharpness of the kernel."""
    ridge: Positive = 0.1
    """lambda: the smaller, the less the labels correct zero-shot CLIP."""
    passes: Count = 10
    """Augmented views of each image, each a row of the system."""
    templates: tuple[Template, ...] = ()
    """Prompt templates to average; none means the task's own."""


class ProKeR(Method):
    """ProKeR (see the module's docstring)."""

    Config = ProKeRConfig
    starts_at_zero_shot = False
    first_fraction = None
    crop_scale = (0.5, 1.0)

    @torch.no_grad()
    def prepare(self, support: SupportSet) -> None:
        """Solves the system.

        Raises:
            UsageError: when it does not fit into the memory that is free.
        """
        rows, device = len(support) * self.config.passes, self.backbone.device
        needed, free = _BYTES * rows**2, free_memory_bytes(device)
        if needed > free:
            raise UsageError(
                f"ProKeR solves a system of {rows:,} rows here, {needed / 1e9:.1f} GB, and "
                f"{free / 1e9:.1f} GB are free: give fewer passes (now {self.config.passes})."
            )
        self.features = nn.Buffer(self.encode_views(support, self.config.passes).flatten(0, 1))
        features = self.features.double()
        labels = support.labels.to(device).repeat(self.config.passes)
        text = self.prompt_ensemble(self.trained_names, self.config.templates).double()
        residual = F.one_hot(labels, len(text)) - features @ text.T
        system = self._kernel(features, features).div_(self.config.ridge)
        system.diagonal().add_(1)
        dual = torch.cholesky_solve(residual, torch.linalg.cholesky(system))
        self.dual = nn.Buffer(dual.T.float().contiguous())

    def encode_classes(self, names: Sequence[str]) -> ClassEmbeddings:
        """Text embeddings, over all templates."""
        return self.class_embeddings(names, self.prompt_ensemble(names, self.config.templates))

    def forward(self, pixels: Tensor, classes: ClassEmbeddings) -> Tensor:
        """Logits (batch, classes): cosines and their correction, scaled."""
        embeds = self.encode_images(pixels)
        # The sum over thousands of views cancels to a number of a cosine's size.
        with torch.autocast(embeds.device.type, enabled=False):
            kernel = self._kernel(embeds.float(), self.features)
            correction = F.pad(kernel @ self.dual.T, (0, 1))[:, list(classes.rows)]
            return self.scaled(embeds.float() @ classes.weight.float().T + correction)

    def score_features(self, pixels: Tensor) -> Tensor:
        """Unit-norm embeddings, and behind them their kernel with every training view."""
        embeds = self.encode_images(pixels)
        return torch.cat([embeds, self._kernel(embeds, self.features)], dim=-1)

    def score_rows(self, classes: ClassEmbeddings) -> tuple[Tensor, Tensor]:
        """Class embeddings and dual coefficients, scaled; these are zero for novel classes."""
        dual = F.pad(self.dual, (0, 0, 0, 1))[list(classes.rows)]
        return self.scaled_rows(torch.cat([classes.weight, dual], dim=-1))

    def _kernel(self, left: Tensor, right: Tensor) -> Tensor:
        return (left @ right.T).sub_(1).mul_(self.config.beta).exp_()

    @classmethod
    def published_config(cls, facts: TaskFacts) -> ProKeRConfig:
        """beta and lambda of the nearest published number of shots, and probes' templates."""
        nearest = min(_TRANSFERRED, key=lambda shots: abs(shots - facts.shots))
        beta, ridge = _TRANSFERRED[nearest]
        return ProKeRConfig(beta, ridge, templates=published_templates(facts))
