"""LayerNorm: scale and shift of the transformer blocks' norms, in both encoders.

Paper: Kim et al., How to Adapt Your Large-Scale Vision-and-Language Model, 2022; the first stage
of 2SFS, Farina et al., CVPR 2025, section 4.1, https://arxiv.org/abs/2503.11609.

Equation: LayerNorm(a) = gamma (a - mean(a)) / std(a) + beta (2SFS, eq. 4); gamma and beta train.

Deviations: fp32 (published: mixed precision). The 2SFS paper says that all LayerNorms train; its
released code switches the gradients of the three outer ones (ln_pre, ln_post, ln_final) off again,
and the paper's 61k parameters are those of the blocks alone. `norms="all"` trains all of them.

`anchor`, which nobody published for it, adds CLIPFit's term to the loss: anchor (1 - mean_c
cos(t_c, t0_c)), t0_c the frozen embedding of the name of c.

Novel categories: embedded by the tuned text encoder.

When to prefer it: the default first stage; the slowest to give up novel classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shotfit.config import NotNegative
from shotfit.data.support_set import SupportSet
from shotfit.layers.anchors import cosine_distance
from shotfit.methods.base import Method, StepOutput
from shotfit.methods.published import TaskFacts, TrainConfig


@dataclass(frozen=True)
class LayerNormConfig:
    """Options of LayerNorm tuning."""

    norms: Literal["blocks", "all"] = "blocks"
    """Which norms train: those of the blocks (61,440 parameters on ViT-B/16) or all (65,536)."""
    anchor: NotNegative = 0.0
    """How strongly class embeddings are held to the frozen ones; 0, as published, is not at all."""


class LayerNorm(Method):
    """LayerNorm tuning (see the module's docstring)."""

    Config = LayerNormConfig

    def __init__(self, *args, **options) -> None:
        super().__init__(*args, **options)
        for tower in (self.backbone.vision, self.backbone.text):
            scope = tower if self.config.norms == "all" else tower.blocks
            for module in scope.modules():
                if isinstance(module, nn.LayerNorm):
                    module.requires_grad_(True)
        # Only training needs the anchors: not registered, so not saved.
        self._anchors: Tensor | None = None

    @torch.no_grad()
    def prepare(self, support: SupportSet) -> None:
        """Embeds the class names once, before anything is tuned, where they are to be held."""
        if self.config.anchor:
            self._anchors = self.encode_classes(support.classnames).weight

    def loss(self, inputs: Tensor, labels: Tensor, names: Sequence[str]) -> StepOutput:
        """Cross-entropy, and what holds the class embeddings to the frozen ones."""
        if self._anchors is None:
            return super().loss(inputs, labels, names)
        classes = self.encode_classes(names)
        logits = self(inputs, classes)
        distance = cosine_distance(classes.weight, self._anchors)
        return StepOutput(F.cross_entropy(logits, labels) + self.config.anchor * distance, logits)

    @classmethod
    def published_training(cls, facts: TaskFacts) -> tuple[TrainConfig, ...]:
        """AdamW at 2e-4 over 300 x shots iterations (2SFS, section 5.1)."""
        return (TrainConfig(iterations=300 * facts.shots),)
