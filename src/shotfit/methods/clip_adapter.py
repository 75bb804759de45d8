"""CLIP-Adapter: a bottleneck on the image embedding, mixed with the embedding itself.

Paper: Gao et al., CLIP-Adapter: Better Vision-Language Models with Feature Adapters, IJCV 2024,
https://arxiv.org/abs/2110.04544.

Equation: f' = r relu(W_2 relu(W_1 f)) + (1 - r) f, logits = s cos(f', t), f not normalised; W_1
(dim / 4 x dim) and W_2 train (section 3.2).

Deviations: as in the official code the text embedding has no adapter, though the paper describes
one, and the ratio is 0.2 everywhere, though the paper searches it. The code fixes the width to that
of one ResNet; here it is the model's. It has no training script of its own and runs in CoOp's
trainer, whose settings are the published training here, with a template of its own for each
benchmark dataset; other data takes the task's.

Novel categories: scored against their text embeddings, since the adapter knows no classes. The
2SFS paper calls the method inapplicable to them and prints no number.

When to prefer it: as a baseline; image features that a linear map corrects, little else.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from shotfit.data.benchmark.templates import specific_templates
from shotfit.data.template import Template
from shotfit.errors import UsageError
from shotfit.layers.adapters import Bottleneck
from shotfit.methods.base import ClassEmbeddings, Method, StepOutput
from shotfit.methods.published import TaskFacts, TrainConfig, coop_epochs, dassl


@dataclass(frozen=True)
class CLIPAdapterConfig:
    """Options of CLIP-Adapter."""

    ratio: float = 0.2
    """Share r of the adapter in the mixture, between 0 and 1."""
    reduction: int = 4
    """How many times narrower than the embedding the bottleneck is."""
    template: Template | None = None
    """Prompt template; none means the task's own."""


class CLIPAdapter(Method):
    """CLIP-Adapter (see the module's docstring)."""

    Config = CLIPAdapterConfig
    starts_at_zero_shot = False

    def __init__(self, *args, **options) -> None:
        super().__init__(*args, **options)
        self.template = self.config.template or self.template
        dim, reduction = self.backbone.dim, self.config.reduction
        if not 0 < self.config.ratio <= 1 or not 1 <= reduction <= dim:
            raise UsageError(f"CLIP-Adapter needs 0 < ratio <= 1 and 1 <= reduction <= {dim}.")
        adapter = Bottleneck(dim, dim // reduction, self.generator)
        self.adapter = adapter.to(self.backbone.device)
        self._classes: ClassEmbeddings | None = None

    def encode_images(self, pixels: Tensor) -> Tensor:
        """Unit-norm mixture of the image embedding and its adapted form."""
        embeds = self.backbone.encode_image(pixels)
        ratio = self.config.ratio
        return F.normalize(ratio * self.adapter(embeds) + (1 - ratio) * embeds, dim=-1)

    def loss(self, inputs: Tensor, labels: Tensor, names: Sequence[str]) -> StepOutput:
        """Cross-entropy; the text encoder is frozen, so class names are embedded once."""
        if self._classes is None or self._classes.names != tuple(names):
            with torch.no_grad():
                self._classes = self.encode_classes(names)
        logits = self(inputs, self._classes)
        return StepOutput(F.cross_entropy(logits, labels), logits)

    @classmethod
    def published_config(cls, facts: TaskFacts) -> CLIPAdapterConfig:
        """CoOp's prompt of a benchmark dataset."""
        return CLIPAdapterConfig(template=next(iter(specific_templates(facts.dataset)), None))

    @classmethod
    def published_training(cls, facts: TaskFacts) -> tuple[TrainConfig, ...]:
        """CoOp's: SGD at 2e-3, batches of 32, 50 to 200 epochs by shots, ImageNet 50."""
        return (dassl(epochs=coop_epochs(facts)),)
