"""LoRA: low-rank updates of the attention's projections, as the first stage of 2SFS has them.

Paper: Hu et al., LoRA: Low-Rank Adaptation of Large Language Models, ICLR 2022,
https://arxiv.org/abs/2106.09685; as 2SFS's first stage in Farina et al., CVPR 2025, section 4.1.

Equation: W x + b + gamma B A dropout(x) in place of W x + b, gamma = alpha / sqrt(r); A and B
train.

Deviations: fp32 (published: mixed precision). The 2SFS paper says that every linear projection is
adapted; its released code adapts queries, keys and values only (184,320 parameters on ViT-B/16),
and so does this. That code leaves dropout on in the second stage: the linear classifier's option
`inner_dropout` does so. Weights are not merged for evaluation: the product is the same without the
rounding. The words that all prompts begin with pass the text encoder once, so that their dropout
mask is one for all classes, where that code draws one for each.

Novel categories: embedded by the adapted text encoder.

When to prefer it: as a first stage where LayerNorm's shift is not enough, with 8 shots or more.
"""

from shotfit.layers.lora import LoRAConfig, add_lora
from shotfit.methods.base import Method
from shotfit.methods.published import TaskFacts, TrainConfig


class LoRA(Method):
    """LoRA (see the module's docstring)."""

    Config = LoRAConfig
    first_fraction = 0.3

    def __init__(self, *args, **options) -> None:
        super().__init__(*args, **options)
        add_lora(self.backbone, self.config, self.generator)

    @classmethod
    def published_training(cls, facts: TaskFacts) -> tuple[TrainConfig, ...]:
        """AdamW at 2e-4 with decay 1e-2 over 300 x shots iterations (2SFS, section 5.1)."""
        return (TrainConfig(iterations=300 * facts.shots),)
