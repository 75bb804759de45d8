"""CoCoOp: CoOp whose learned words shift with the image.

Paper: Zhou et al., Conditional Prompt Learning for Vision-Language Models, CVPR 2022,
https://arxiv.org/abs/2203.05557.

Equation: v_m(x) = v_m + h(V(x) / |V(x)|), h a linear layer to dim/16, ReLU, and one back;
logits(x, c) = s cos(V(x), T([v_1(x)] ... [v_n(x)] c.)) (section 3.2).

Deviations: fp32 (published fp16). At inference images are taken in groups, as many as keep the
image-class pairs of a pass below a bound, so that memory does not grow with images x classes; the
numbers are the same.

Novel categories: embedded behind the learned words, anew for every image.

When to prefer it: to reproduce it. Every image re-embeds every class, which makes it the slowest
method here by a wide margin, training (one text pass an image) and inference alike. As a first
stage it leaves the image's shift behind: a second stage takes `encode_classes`, the embeddings of
the unshifted context, and frozen image embeddings.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shotfit.config import Count
from shotfit.errors import UsageError
from shotfit.layers.prompt_tokens import random_linear, text_context
from shotfit.methods.base import ClassEmbeddings, Method, StepOutput
from shotfit.methods.published import TaskFacts, TrainConfig, dassl


@dataclass(frozen=True)
class CoCoOpConfig:
    """Options of CoCoOp."""

    ctx_init: str = "a photo of a"
    """The phrase that the learned tokens start from, one for each of its tokens."""
    reduction: Count = 16
    """The joint dimension over the width of the hidden layer of h."""
    pairs_at_once: Count = 2048
    """Image-class pairs embedded at once at inference: bounds memory, changes no number."""


class CoCoOp(Method):
    """CoCoOp (see the module's docstring)."""

    Config = CoCoOpConfig
    reads = "nothing"
    starts_at_zero_shot = False
    first_fraction = 0.3

    def __init__(self, *args, **options) -> None:
        super().__init__(*args, **options)
        self.context = text_context(self.backbone, self.config.ctx_init, None, self.generator)
        hidden = max(1, self.backbone.dim // self.config.reduction)
        sizes = ((self.backbone.dim, hidden), (hidden, self.backbone.text.width))
        first, second = (random_linear(*s, self.generator, self.backbone.device) for s in sizes)
        self.meta_net = nn.Sequential(first, nn.ReLU(), second)

    def encode_classes(self, names: Sequence[str]) -> ClassEmbeddings:
        """Embeds class names behind the context without an image's shift.

        For a second stage and for looking classes up by name; `forward` shifts for every image.
        """
        embeds = self.backbone.encode_text(self.context.texts(names), self.context.ctx)
        return self.class_embeddings(names, F.normalize(embeds, dim=-1))

    def forward(self, pixels: Tensor, classes: ClassEmbeddings) -> Tensor:
        """Logits (batch, classes), the names of `classes` embedded anew for every image."""
        images = self.encode_images(pixels)
        if torch.is_grad_enabled():
            return self._conditional(images, classes.names)
        chunk = max(1, self.config.pairs_at_once // max(1, len(classes.names)))
        return torch.cat([self._conditional(part, classes.names) for part in images.split(chunk)])

    def _conditional(self, images: Tensor, names: Sequence[str]) -> Tensor:
        """Logits (batch, classes) of unit-norm image embeddings (batch, dim)."""
        ctx = self.context.ctx + self.meta_net(images)[:, None]
        embeds = self.backbone.encode_text(self.context.texts(names), ctx)
        scores = torch.einsum("bd,bcd->bc", images, F.normalize(embeds, dim=-1))
        return self.scaled(scores)

    def score_rows(self, classes: ClassEmbeddings) -> tuple[Tensor, Tensor]:
        """Refuses.

        Raises:
            UsageError: always: a class has no row that would serve every image.
        """
        raise UsageError(
            "CoCoOp embeds every class anew for every image, so that there is no row for a class: "
            "as a first stage (2sfs:cocoop) it can be exported."
        )

    def loss(self, inputs: Tensor, labels: Tensor, names: Sequence[str]) -> StepOutput:
        """Cross-entropy; the unshifted embeddings, which it does not need, are not computed."""
        logits = self._conditional(self.encode_images(inputs), names)
        return StepOutput(F.cross_entropy(logits, labels), logits)

    @classmethod
    def published_training(cls, facts: TaskFacts) -> tuple[TrainConfig, ...]:
        """SGD at 2e-3, one image a batch, 10 epochs, for all datasets and both settings."""
        return (dassl(lr=2e-3, batch_size=1, epochs=10),)
