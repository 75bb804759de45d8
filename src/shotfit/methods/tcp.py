"""TCP: prompt tokens made from the class itself enter the text encoder half-way up.

Paper: Yao et al., TCP: Textual-based Class-aware Prompt Tuning for Visual-Language Model,
CVPR 2024, https://arxiv.org/abs/2311.18231.

Equation: P_c = W_2 a(W_1 w_c), with w_c frozen CLIP's embedding of the class and a(x) = x
sigmoid(1.702 x), n tokens that take the places of the learned ones before the ninth text block;
L = CE + 8 (1 - mean_c cos(t_c, w_c)). The first n tokens, W_1 and W_2 train.

Deviations: fp32 (published: fp16, for which its README raises Adam's eps to 1e-3; that eps makes
steps nearly proportional to the gradient, so that it is part of the method and kept). All datasets
train for 50 epochs; its script tests novel classes of SUN397 and ImageNet after 25, a state that
is not the one whose base accuracy it prints. Text encoders of fewer than twelve blocks, for which
nothing is published, take the tokens at the same share of their depth. The learned tokens start at
random, as configured there, and lead the prompts of UCF101 and ImageNet like any others.

Novel categories: embedded with tokens made from their own names; nothing is kept per class.

When to prefer it: when image embeddings must stay frozen CLIP's, as they do: a step has no backward
pass through the image encoder, and images that are embedded already can be scored. As a first stage
it tunes class embeddings only: the second stage is then a linear classifier on zero-shot features.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shotfit.backbone import DeepPrompts
from shotfit.backbone.activation import quick_gelu
from shotfit.config import Count, NotNegative, Size
from shotfit.data.benchmark.templates import dataset_templates
from shotfit.data.support_set import SupportSet
from shotfit.data.template import Template
from shotfit.layers.anchors import cosine_distance
from shotfit.layers.depth import scaled_block
from shotfit.layers.prompt_tokens import placeholders, random_linear, random_prompts
from shotfit.methods.base import ClassEmbeddings, Method, StepOutput
from shotfit.methods.published import TaskFacts, TrainConfig, dassl

BLOCK = 9


@dataclass(frozen=True)
class TCPConfig:
    """Options of TCP."""

    n_ctx: Size = 4
    """Learned tokens in front of the name, and tokens that a class makes for itself."""
    reduction: Count = 4
    """The joint dimension over the width of the hidden layer."""
    weight: NotNegative = 8.0
    """Weight of the distance from the frozen class embeddings."""
    tail: Template = "{}."
    """What follows the learned tokens."""
    teacher_template: Template | None = None
    """The prompt of the frozen class embeddings; None takes the task's template."""


class TCP(Method):
    """TCP (see the module's docstring)."""

    Config = TCPConfig
    reads = "template"
    starts_at_zero_shot = False
    first_fraction = 0.3

    def __init__(self, *args, **options) -> None:
        super().__init__(*args, **options)
        config, text, device = self.config, self.backbone.text, self.backbone.device
        self.template = config.teacher_template or self.template
        self.ctx = nn.Parameter(random_prompts((config.n_ctx, text.width), self.generator, device))
        hidden = max(1, self.backbone.dim // config.reduction)
        self.down = random_linear(self.backbone.dim, hidden, self.generator, device)
        self.up = random_linear(hidden, config.n_ctx * text.width, self.generator, device)
        self._prompt = f"{placeholders(self.backbone, config.n_ctx)} {config.tail}"
        self._block = scaled_block(BLOCK, len(text.blocks)) - 1
        # Follows from the names, so it is not registered and not saved.
        self._trained: ClassEmbeddings | None = None

    @torch.no_grad()
    def prepare(self, support: SupportSet) -> None:
        """Embeds the class names with frozen CLIP, once."""
        self._trained = super().encode_classes(support.classnames)

    def encode_classes(self, names: Sequence[str]) -> ClassEmbeddings:
        """Embeds class names behind the learned tokens, with tokens of their own further up."""
        hidden = quick_gelu(self.down(self._frozen(names)))
        own = self.up(hidden).unflatten(-1, (self.config.n_ctx, -1))
        texts = [self._prompt.format(name.replace("_", " ")) for name in names]
        embeds = self.backbone.encode_text(texts, self.ctx, DeepPrompts((own,), self._block))
        return self.class_embeddings(names, F.normalize(embeds, dim=-1))

    def loss(self, inputs: Tensor, labels: Tensor, names: Sequence[str]) -> StepOutput:
        """Cross-entropy and the distance of the class embeddings from the frozen ones."""
        classes = self.encode_classes(names)
        logits = self(inputs, classes)
        distance = cosine_distance(classes.weight, self._frozen(names))
        return StepOutput(F.cross_entropy(logits, labels) + self.config.weight * distance, logits)

    @torch.no_grad()
    def _frozen(self, names: Sequence[str]) -> Tensor:
        if self._trained is not None and self._trained.names == tuple(names):
            return self._trained.weight
        return super().encode_classes(names).weight

    @classmethod
    def published_config(cls, facts: TaskFacts) -> TCPConfig:
        """The dataset's own prompts, of either kind."""
        templates = dataset_templates(facts.dataset)
        if templates is None:
            return TCPConfig()
        return TCPConfig(tail=templates.tcp, teacher_template=templates.tcp_teacher)

    @classmethod
    def published_training(cls, facts: TaskFacts) -> tuple[TrainConfig, ...]:
        """Adam at 2e-3 with eps 1e-3, batches of 32, 50 epochs, for all datasets and settings."""
        return (dassl(optimizer="adam", lr=2e-3, eps=1e-3, batch_size=32, epochs=50),)
