"""KgCoOp: CoOp held near the embeddings of hand-written prompts.

Paper: Yao et al., Visual-Language Prompt Tuning with Knowledge-guided Context Optimization,
CVPR 2023, https://arxiv.org/abs/2303.13283.

Equation: L = CE + W (1 - mean_c cos(t_c, w_c)), with t_c the embedding of the learned prompt of a
class and w_c that of its hand-written one.

Deviations: as the code, not the paper, whose regulariser is lambda ||t - w||^2; on unit vectors
that is 2 lambda (1 - cos), so the code's W = 8 is a lambda of 4. fp32 instead of fp16. The frozen
modules that the code creates and never uses are left out.

Novel categories: embedded behind the same learned words.

When to prefer it: over CoOp when novel classes matter and the prompt must stay a prompt.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from shotfit.config import NotNegative
from shotfit.data.benchmark.templates import dataset_templates
from shotfit.data.support_set import SupportSet
from shotfit.data.template import Template
from shotfit.layers.anchors import cosine_distance
from shotfit.layers.prompt_tokens import text_context
from shotfit.methods.base import ClassEmbeddings, Method, StepOutput
from shotfit.methods.published import TaskFacts, TrainConfig, dassl


@dataclass(frozen=True)
class KgCoOpConfig:
    """Options of KgCoOp."""

    ctx_init: str = "a photo of a"
    """The phrase that the learned tokens start from, one for each of its tokens."""
    weight: NotNegative = 8.0
    """The regulariser's weight W."""
    target_template: Template | None = None
    """The hand-written prompt of the frozen targets; None takes the task's template."""


class KgCoOp(Method):
    """KgCoOp (see the module's docstring)."""

    Config = KgCoOpConfig
    reads = "template"
    starts_at_zero_shot = False
    first_fraction = 0.3

    def __init__(self, *args, **options) -> None:
        super().__init__(*args, **options)
        self.context = text_context(self.backbone, self.config.ctx_init, None, self.generator)
        self.starts_at_zero_shot = self.context.starts_as(self.template)
        # Only training needs the targets: not registered, so not saved.
        self._targets: Tensor | None = None

    @torch.no_grad()
    def prepare(self, support: SupportSet) -> None:
        """Embeds the hand-written prompts once; they stay as they are."""
        template = self.config.target_template or self.template
        texts = [template.format(name.replace("_", " ")) for name in support.classnames]
        self._targets = F.normalize(self.backbone.encode_text(texts), dim=-1)

    def encode_classes(self, names: Sequence[str]) -> ClassEmbeddings:
        """Embeds class names behind the learned context."""
        embeds = self.backbone.encode_text(self.context.texts(names), self.context.ctx)
        return self.class_embeddings(names, F.normalize(embeds, dim=-1))

    def loss(self, inputs: Tensor, labels: Tensor, names: Sequence[str]) -> StepOutput:
        """Cross-entropy and the distance from the hand-written prompts (section 3.2)."""
        assert self._targets is not None, "setup comes before training"
        classes = self.encode_classes(names)
        logits = self(inputs, classes)
        distance = cosine_distance(classes.weight, self._targets)
        loss = F.cross_entropy(logits, labels) + self.config.weight * distance
        return StepOutput(loss, logits)

    @classmethod
    def published_config(cls, facts: TaskFacts) -> KgCoOpConfig:
        """W = 8, and on the benchmark datasets their hand-written targets."""
        templates = dataset_templates(facts.dataset)
        return KgCoOpConfig(target_template=templates.kgcoop if templates else None)

    @classmethod
    def published_training(cls, facts: TaskFacts) -> tuple[TrainConfig, ...]:
        """SGD at 2e-3, batches of 128, 100 epochs, for all datasets and both settings."""
        return (dassl(lr=2e-3, batch_size=128, epochs=100),)
