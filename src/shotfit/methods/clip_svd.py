"""CLIP-SVD: rescales the singular values of the weights, in both encoders.

Paper: Koleilat et al., Singular Value Few-shot Adaptation of Vision-Language Models, 2025,
https://arxiv.org/abs/2509.03740.

Equation: W = U diag(s) V' for every linear layer of a block (queries, keys, values, output, both of
the MLP); y = U (s * (V' x)) + b, and only s trains.

Deviations: fp32 (published: fp16 autocast without loss scaling, which loses small gradients). The
official code scales by 100 whatever the model; here it is the checkpoint's scale. In base-to-novel
it steps a cosine meant for epochs at every update, so that the rate falls and rises again every two
times 10 or 20 updates and ends high or low as the number of batches will have it; the published
averages were presumably made so, and so it is here (`training.cosine_iterations=none` falls once).
Weight decay pulls s towards zero, not to where it started, as there. Prompts are its own: generic
ones for DTD, EuroSAT and UCF101 in base-to-novel; data beyond the benchmark trains for 20 epochs
there. Singular vectors of nearly equal values are not unique: another processor's may be turned.

Novel categories: embedded by the adapted text encoder.

When to prefer it: 92,160 parameters on ViT-B/16, and the result is an ordinary CLIP (W multiplied
out); factorising it takes half a minute, and a step half as much arithmetic again as LayerNorm's.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shotfit.backbone.tower import LINEAR
from shotfit.data.benchmark.templates import specific_templates
from shotfit.data.template import TEMPLATE, Template
from shotfit.methods.base import Method
from shotfit.methods.published import TaskFacts, TrainConfig

GENERIC_PROMPT = ("dtd", "eurosat", "ucf101")
TWENTY_EPOCHS = ("caltech101", "dtd", "eurosat", "fgvc_aircraft", "oxford_pets", "")


@dataclass(frozen=True)
class CLIPSVDConfig:
    """Options of CLIP-SVD."""

    template: Template | None = None
    """Prompt template; None means the task's own."""


class SVDLinear(nn.Linear):
    """A frozen linear layer whose singular values train, (..., in) to (..., out)."""

    def __init__(self, base: nn.Linear) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = base.in_features, base.out_features
        self.bias = base.bias
        weight = base.weight.detach()
        # On the processor, so that a saved classifier meets the same vectors on any device; shapes
        # without values stay where they are.
        source = weight if weight.is_meta else weight.cpu()
        factors = torch.linalg.svd(source, full_matrices=False)
        left, values, right = (factor.to(weight.device) for factor in factors)
        # Not buffers: they follow from the checkpoint, and what is saved is what changed.
        self.left = nn.Parameter(left, requires_grad=False)
        self.right = nn.Parameter(right, requires_grad=False)
        self.singular_values = nn.Parameter(values)

    def forward(self, input: Tensor) -> Tensor:
        """y = U (s * (V' x)) + b."""
        return F.linear(self.singular_values * F.linear(input, self.right), self.left, self.bias)


class CLIPSVD(Method):
    """CLIP-SVD (see the module's docstring)."""

    Config = CLIPSVDConfig

    def __init__(self, *args, **options) -> None:
        super().__init__(*args, **options)
        self.template = self.config.template or self.template
        for tower in (self.backbone.vision, self.backbone.text):
            for block in tower.blocks:
                for name in LINEAR:
                    setattr(block, name, SVDLinear(getattr(block, name)))

    @classmethod
    def published_config(cls, facts: TaskFacts) -> CLIPSVDConfig:
        """CoOp's prompts; some generic ones in base-to-novel, another for Food101 otherwise."""
        template = next(iter(specific_templates(facts.dataset)), None)
        if facts.setting == "base_to_novel" and facts.benchmark in GENERIC_PROMPT:
            template = TEMPLATE
        if facts.setting == "all_to_all" and facts.benchmark == "food101":
            template = "a photo of a {}, a type of food."
        return CLIPSVDConfig(template)

    @classmethod
    def published_training(cls, facts: TaskFacts) -> tuple[TrainConfig, ...]:
        """AdamW at 4e-4 for 20 or 10 epochs; few-shot at 5e-4 for 200 x shots iterations."""
        if facts.setting == "all_to_all":
            return (TrainConfig(lr=5e-4, iterations=200 * facts.shots),)
        epochs = 20 if facts.benchmark in TWENTY_EPOCHS else 10
        return (TrainConfig(lr=4e-4, epochs=epochs, cosine_iterations=epochs),)
