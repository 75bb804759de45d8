"""BitFit: trains biases and nothing else, in both encoders.

Paper: Ben Zaken et al., BitFit: Simple Parameter-efficient Fine-tuning for Transformer-based
Masked Language-models, ACL 2022, https://arxiv.org/abs/2106.10199; a first stage of 2SFS, Farina et
al., CVPR 2025, section 4.1.

Equation: W a + b with W frozen and b trained, and likewise the shift of LayerNorm.

Deviations: fp32 (published: mixed precision). The papers train all biases; 2SFS's code misses those
of queries, keys and values, because CLIP keeps them under another name, and its 125k parameters
(124,928 on ViT-B/16) are what is left. `attention_biases=True` trains them too (171,008); that of
the keys moves no output, since softmax ignores what all keys share.

Novel categories: embedded by the tuned text encoder.

When to prefer it: an alternative to LayerNorm as a first stage, with twice its parameters.
"""

from dataclasses import dataclass

from shotfit.methods.base import Method
from shotfit.methods.published import TaskFacts, TrainConfig

_ATTENTION = ("q_proj.bias", "k_proj.bias", "v_proj.bias", "in_proj_bias")


@dataclass(frozen=True)
class BitFitConfig:
    """Options of BitFit."""

    attention_biases: bool = False
    """Also train the biases of queries, keys and values, which the published runs leave frozen."""


class BitFit(Method):
    """BitFit (see the module's docstring)."""

    Config = BitFitConfig

    def __init__(self, *args, **options) -> None:
        super().__init__(*args, **options)
        for tower in (self.backbone.vision, self.backbone.text):
            for name, parameter in tower.named_parameters():
                attention = name.endswith(_ATTENTION)
                if attention or name.endswith(".bias"):
                    parameter.requires_grad_(self.config.attention_biases or not attention)

    @classmethod
    def published_training(cls, facts: TaskFacts) -> tuple[TrainConfig, ...]:
        """AdamW at 2e-4 over 300 x shots iterations (2SFS, section 5.1)."""
        return (TrainConfig(iterations=300 * facts.shots),)
