"""CLIP-LoRA: low-rank updates of queries, keys and values, alone and with a longer training.

Paper: Zanella and Ben Ayed, Low-Rank Few-Shot Adaptation of Vision-Language Models, CVPR Workshops
2024, https://arxiv.org/abs/2405.18541.

Equation: W x + b + gamma B A dropout(x) in place of W x + b, gamma = alpha / sqrt(r); A and B
train.

Deviations: the official code trains with a fixed scale of 100, which is what OpenAI's checkpoints
have; here it is the checkpoint's own. It merges B A into W for evaluation, which changes rounding
only. Its learning rate also falls on updates that an overflow in fp16 skips; here it does not. fp32
(published: mixed precision). The words that all prompts begin with pass the text encoder once, so
that their dropout mask is one for all classes, where the official code draws one for each.

Novel categories: embedded by the adapted text encoder.

When to prefer it: alone, with all classes known and 8 or 16 shots; novel ones suffer sooner.
"""

from shotfit.layers.lora import LoRAConfig, add_lora
from shotfit.methods.base import Method
from shotfit.methods.published import TaskFacts, TrainConfig


class CLIPLoRA(Method):
    """CLIP-LoRA (see the module's docstring)."""

    Config = LoRAConfig
    first_fraction = 0.3

    def __init__(self, *args, **options) -> None:
        super().__init__(*args, **options)
        add_lora(self.backbone, self.config, self.generator)

    @classmethod
    def published_training(cls, facts: TaskFacts) -> tuple[TrainConfig, ...]:
        """AdamW at 2e-4 with decay 1e-2 over 500 x shots iterations, for all datasets."""
        return (TrainConfig(iterations=500 * facts.shots),)
