"""LayerNorm: scale and shift of the transformer blocks' norms, in both encoders.

Paper: Kim et al., How to Adapt Your Large-Scale Vision-and-Language Model, 2022; the first stage
of 2SFS, Farina et al., CVPR 2025, section 4.1, https://arxiv.org/abs/2503.11609.

Equation: LayerNorm(a) = gamma (a - mean(a)) / std(a) + beta (2SFS, eq. 4); gamma and beta train.

Deviations: fp32 (published: mixed precision). The 2SFS paper says that all LayerNorms train; its
released code switches the gradients of the three outer ones (ln_pre, ln_post, ln_final) off again,
and the paper's 61k parameters are those of the blocks alone. `norms="all"` trains all of them.

Novel categories: embedded by the tuned text encoder.

When to prefer it: the default first stage; the slowest to give up novel classes.
"""

from dataclasses import dataclass
from typing import Literal

from torch import nn

from shotfit.methods.base import Method
from shotfit.methods.published import TaskFacts, TrainConfig


@dataclass(frozen=True)
class LayerNormConfig:
    """Options of LayerNorm tuning."""

    norms: Literal["blocks", "all"] = "blocks"
    """Which norms train: those of the blocks (61,440 parameters on ViT-B/16) or all (65,536)."""


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

    @classmethod
    def published_training(cls, facts: TaskFacts) -> tuple[TrainConfig, ...]:
        """AdamW at 2e-4 over 300 x shots iterations (2SFS, section 5.1)."""
        return (TrainConfig(iterations=300 * facts.shots),)
