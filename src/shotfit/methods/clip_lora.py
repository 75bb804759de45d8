"""CLIP-LoRA: low-rank updates of queries, keys and values, alone and with a longer training.

Paper: Zanella and Ben Ayed, Low-Rank Few-Shot Adaptation of Vision-Language Models, CVPR Workshops
2024, https://arxiv.org/abs/2405.18541.

Equation: W x + b + gamma B A dropout(x) in place of W x + b, gamma = alpha / sqrt(r); A and B
train.

Deviations: the official code trains with a fixed scale of 100, which is what OpenAI's checkpoints
have; here it is the checkpoint's own. It merges B A into W for evaluation, which changes rounding
only. Its learning rate also falls on updates that an overflow in fp16 skips; here not. fp32
(published: mixed precision). The words that all prompts begin with pass the text encoder once, so
that their dropout mask is one for all classes, where the official code draws one for each.

Novel categories: embedded by the adapted text encoder.

When to prefer it: alone, with all classes known and 8 or 16 shots; novel ones suffer sooner.
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
class CLIPLoRAConfig:
    """Options of CLIP-LoRA."""

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


class CLIPLoRA(Method):
    """CLIP-LoRA (see the module's docstring)."""

    Config = CLIPLoRAConfig
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
        """AdamW at 2e-4 with decay 1e-2 over 500 x shots iterations, for all datasets."""
        return (TrainConfig(iterations=500 * facts.shots),)
