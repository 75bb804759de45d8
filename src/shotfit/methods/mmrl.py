"""MMRL: tokens shared by the upper blocks of both encoders, with an image embedding of their own.

Paper: Guo and Gu, MMRL: Multi-Modal Representation Learning for Vision-Language Models, CVPR 2025,
https://arxiv.org/abs/2503.08497.

Equation: tokens R enter blocks 6 to 12 as R V_j and R T_j; f is the class token's embedding, g that
of the mean of the image encoder's shared tokens under a second projection. L = a CE(s f t) +
(1 - a) CE(s g t) + w (1 - cos(f, f0)) + w (1 - cos(t, t0)), means over images and classes, f0 and
t0 frozen CLIP's. Trained classes are answered by a s f t + (1 - a) s g t, others by s f t alone.

Deviations: fp32 (published: mixed precision). The official code scales by 100 whatever the model;
here it is the checkpoint's scale. It is told whether trained or novel classes are asked for; a
question here may mix them: f then says which kind, and both say which trained class. Image tokens
come last in the sequence, not second, which attention does not see. As there, the second projection
starts at random, and so its logits as noise, and the projections to one encoder start as copies of
one. w was published for each dataset, from 0.01 to 7, presumably chosen on test images; other data
takes 1. Towers of fewer than 12 blocks have the tokens in the same share of their depth.

Novel categories: embedded with the same tokens, and compared with f.

When to prefer it: novel accuracy without a second stage, for five million parameters. A second
stage takes f, whose space class embeddings share, and leaves g behind.
"""

from dataclasses import dataclass

from shotfit.config import NotNegative, Share, Size
from shotfit.data.benchmark.templates import specific_templates
from shotfit.data.template import Template
from shotfit.layers.representation import (
    CopiedProjections,
    FreeProjection,
    RepresentationSpace,
)
from shotfit.methods.published import TaskFacts, TrainConfig, dassl
from shotfit.methods.shared_representation import SharedRepresentation

WEIGHTS = {
    "imagenet": 0.5,
    "caltech101": 0.5,
    "oxford_pets": 0.2,
    "stanford_cars": 7.0,
    "oxford_flowers": 4.0,
    "food101": 5.0,
    "fgvc_aircraft": 6.0,
    "sun397": 6.0,
    "dtd": 6.0,
    "eurosat": 0.01,
    "ucf101": 3.0,
}


@dataclass(frozen=True)
class MMRLConfig:
    """Options of MMRL."""

    n_tokens: Size = 5
    """Shared tokens."""
    rep_dim: Size = 512
    """Their dimension; on EuroSAT 2048."""
    alpha: Share = 0.7
    """Weight a of the class token beside the shared ones."""
    weight: NotNegative = 1.0
    """Weight w of the distances from frozen CLIP."""
    template: Template | None = None
    """Prompt template; None means the task's own."""


class MMRL(SharedRepresentation):
    """MMRL (see the module's docstring)."""

    Config = MMRLConfig

    def __init__(self, *args, **options) -> None:
        super().__init__(*args, **options)
        config, generator = self.config, self.generator
        projection = FreeProjection(self.backbone.vision.width, self.backbone.dim, generator)
        shape = (config.n_tokens, config.rep_dim)
        self.space = RepresentationSpace(
            self.backbone, shape, CopiedProjections, projection, generator
        )

    @classmethod
    def published_config(cls, facts: TaskFacts) -> MMRLConfig:
        """CoOp's prompts and the dataset's own weight; wider tokens on EuroSAT."""
        return MMRLConfig(
            rep_dim=2048 if facts.benchmark == "eurosat" else 512,
            weight=WEIGHTS.get(facts.benchmark, 1.0),
            template=next(iter(specific_templates(facts.dataset)), None),
        )

    @classmethod
    def published_training(cls, facts: TaskFacts) -> tuple[TrainConfig, ...]:
        """AdamW at 1e-3; base-to-novel 10 epochs in batches of 4, few-shot 50 of 32, ImageNet 5."""
        batch, epochs = (4, 10) if facts.setting == "base_to_novel" else (32, 50)
        if facts.benchmark == "imagenet":
            batch, epochs = 32, 5
        return (dassl(optimizer="adamw", lr=1e-3, batch_size=batch, epochs=epochs),)
