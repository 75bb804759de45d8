"""LoRA: low-rank updates of the attention's projections, as the first stage of 2SFS has them.

Paper: Hu et al., LoRA: Low-Rank Adaptation of Large Language Models, ICLR 2022,
https://arxiv.org/abs/2106.09685; as 2SFS's first stage in Farina et al., CVPR 2025, section 4.1.

Equation: W x + b + gamma B A dropout(x) in place of W x + b, gamma = alpha / sqrt(r); A and B
train.

Deviations: fp32 (published: mixed precision). 2SFS writes that every linear projection is adapted;
its code adapts queries, keys and values only (184,320 parameters on ViT-B/16), and so does this.
That code leaves dropout on in the second stage: the linear classifier's option `inner_dropout` does
so. Weights are not merged for evaluation: the product is the same without the rounding. The words
that all prompts begin with pass the text encoder once, so that their dropout mask is one for all
classes, where that code draws one for each.

Novel categories: embedded by the adapted text encoder.

When to prefer it: as a first stage where LayerNorm's shift is not enough, with 8 shots or more.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from shotfit.config import Count
from shotfit.layers.lora import SeededDropout, add_lora
from shotfit.methods.base import ClassEmbeddings, Method
from shotfit.methods.published import TaskFacts, TrainConfig


@dataclass(frozen=True)
class LoRAConfig:
    """Options of LoRA."""

    rank: Count = 2
    """Rank r of the update of each layer."""
    alpha: float = 1.0
    """Numerator of the scaling."""
    scaling: Literal["rslora", "standard"] = "rslora"
    """"rslora" divides alpha by the square root of the rank, as published; "standard" by it."""
    dropout: float = 0.25
    """Share of the input of the low-rank product that is zeroed in training."""
    target_modules: tuple[str, ...] = ("q_proj", "k_proj", "v_proj")
    """Adapted layers of a block; out_proj, fc1 and fc2 are the others that there are."""
    towers: Literal["both", "vision", "text"] = "both"
    """Which encoders are adapted."""
    blocks: tuple[int, ...] | None = None
    """First and last adapted block, counted from 1; None adapts all."""


class LoRA(Method):
    """LoRA (see the module's docstring)."""

    Config = LoRAConfig
    first_fraction = 0.3

    def __init__(self, *args, **options) -> None:
        super().__init__(*args, **options)
        config = self.config
        names = ("vision", "text") if config.towers == "both" else (config.towers,)
        self._dropout = {
            name: SeededDropout(config.dropout, self.generator) for name in ("vision", "text")
        }
        for name in names:
            add_lora(
                getattr(self.backbone, name).blocks,
                target_modules=config.target_modules,
                blocks=config.blocks,
                rank=config.rank,
                alpha=config.alpha,
                scaling=config.scaling,
                dropout=self._dropout[name],
            )

    def encode_images(self, pixels: Tensor) -> Tensor:
        """As `Method.encode_images`, in training with fresh dropout masks."""
        if self.training:
            self._dropout["vision"].renew()
        return super().encode_images(pixels)

    def encode_classes(self, names: Sequence[str]) -> ClassEmbeddings:
        """As `Method.encode_classes`, in training with fresh dropout masks."""
        if self.training:
            self._dropout["text"].renew()
        return super().encode_classes(names)

    @classmethod
    def published_training(cls, facts: TaskFacts) -> tuple[TrainConfig, ...]:
        """AdamW at 2e-4 with decay 1e-2 over 300 x shots iterations (2SFS, section 5.1)."""
        return (TrainConfig(iterations=300 * facts.shots),)
