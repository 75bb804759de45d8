"""ProGrad: CoOp that never steps against what zero-shot CLIP knows.

Paper: Zhu et al., Prompt-aligned Gradient for Prompt Tuning, ICCV 2023,
https://arxiv.org/abs/2205.14865.

Equation: with g the gradient of the cross-entropy and u the unit gradient of the divergence from
zero-shot CLIP's predictions, the update is g where g.u >= 0 and g - lambda (g.u) u elsewhere
(eq. 5). One dot product over the whole context. The divergence itself is never minimised; the loss
returned here has the cross-entropy's value and this gradient, exactly.

Deviations: fp32 student (published fp16). The released start puts zeros before the reversed
template ("a type of pet, a photo of a"), one learned token for each of its *words*: a comma leaves
the template's last token fixed. That is reproduced here. Datasets without a published template
start from what the task's template says before the name. Its ViT settings were never published;
these are RN50's, and epochs by shots in both settings, where its base-to-novel scripts are for four
shots alone.

Novel categories: embedded behind the same learned words.

When to prefer it: few shots, where CoOp overfits; every step costs a second backward pass through
the text encoder.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from shotfit.config import NotNegative, Positive, Size
from shotfit.data.benchmark.templates import dataset_templates
from shotfit.data.support_set import SupportSet
from shotfit.data.template import Template
from shotfit.errors import UsageError
from shotfit.layers.prompt_tokens import TextContext, phrase_embeddings, placeholders
from shotfit.methods.base import ClassEmbeddings, Method, StepOutput
from shotfit.methods.published import TaskFacts, TrainConfig, coop_epochs, dassl

SOFTER = ("oxford_flowers", "dtd", "eurosat")


@dataclass(frozen=True)
class ProGradConfig:
    """Options of ProGrad."""

    n_ctx: Size = 16
    """Learned tokens, those that start at zero included."""
    teacher_template: Template | None = None
    """The zero-shot teacher's prompt; what stands before the name starts the context. None takes
    the task's template."""
    strength: NotNegative = 1.0
    """Lambda: how much of a conflicting direction is removed."""
    temperature: Positive = 1.0
    """Temperature of teacher and student in the divergence."""


class ProGrad(Method):
    """ProGrad (see the module's docstring)."""

    Config = ProGradConfig
    reads = "template"
    # Which part of the gradient is kept depends on the whole batch, and the loss takes gradients.
    additive_loss = False
    starts_at_zero_shot = False
    first_fraction = 0.3

    def __init__(self, *args, **options) -> None:
        super().__init__(*args, **options)
        self._template = self.config.teacher_template or self.template
        phrase = self._template.split("{}")[0].strip()
        words, n_ctx = len(phrase.split()), self.config.n_ctx
        if n_ctx < max(1, words):
            raise UsageError(f"ProGrad starts from {phrase!r}: n_ctx must be at least {words}.")
        zeros = torch.zeros(n_ctx - words, self.backbone.text.width, device=self.backbone.device)
        ctx = torch.cat([zeros, phrase_embeddings(self.backbone, phrase)[:words]])
        prefix = f"{placeholders(self.backbone, n_ctx - words)} {phrase}".strip()
        self.context = TextContext(prefix, ctx)
        self.starts_at_zero_shot = self.context.starts_as(self.template)
        # Only training needs the teacher: not registered, so not saved.
        self._teacher: Tensor | None = None

    @torch.no_grad()
    def prepare(self, support: SupportSet) -> None:
        """Embeds the teacher's prompts once."""
        texts = [self._template.format(name.replace("_", " ")) for name in support.classnames]
        self._teacher = F.normalize(self.backbone.encode_text(texts), dim=-1)

    def encode_classes(self, names: Sequence[str]) -> ClassEmbeddings:
        """Embeds class names behind the learned context."""
        embeds = self.backbone.encode_text(self.context.texts(names), self.context.ctx)
        return self.class_embeddings(names, F.normalize(embeds, dim=-1))

    def loss(self, inputs: Tensor, labels: Tensor, names: Sequence[str]) -> StepOutput:
        """The value of the cross-entropy, with the prompt-aligned gradient."""
        assert self._teacher is not None, "setup comes before training"
        images = self.encode_images(inputs)
        logits = self.logits(images, self.encode_classes(names).weight)
        temperature = self.config.temperature
        target = (self.logits(images, self._teacher) / temperature).softmax(dim=-1)
        # As a cross-entropy: the gradient of the Kullback-Leibler divergence is the same.
        divergence = temperature**2 * F.cross_entropy(logits / temperature, target)
        ce = F.cross_entropy(logits, labels)
        ctx = self.context.ctx
        (general,) = torch.autograd.grad(divergence, ctx, retain_graph=True)
        (special,) = torch.autograd.grad(ce, ctx)
        aligned = align(special, general, self.config.strength)
        # A linear function of the context: its gradient is `aligned`.
        linear = (ctx * aligned).sum()
        return StepOutput(ce.detach() + linear - linear.detach(), logits)

    @classmethod
    def published_config(cls, facts: TaskFacts) -> ProGradConfig:
        """Lambda 1, or 0.8 with 8 or more shots on Flowers, DTD and EuroSAT (its README)."""
        templates = dataset_templates(facts.dataset)
        softer = facts.benchmark in SOFTER and facts.shots >= 8
        return ProGradConfig(
            teacher_template=templates.prograd if templates else None,
            strength=0.8 if softer else 1.0,
        )

    @classmethod
    def published_training(cls, facts: TaskFacts) -> tuple[TrainConfig, ...]:
        """SGD at 2e-3, batches of 32; 50, 100 or 200 epochs by shots, ImageNet 50."""
        return (dassl(lr=2e-3, batch_size=32, epochs=coop_epochs(facts)),)


def align(special: Tensor, general: Tensor, strength: float) -> Tensor:
    """`special` without its part against `general`, both seen as one vector (eq. 5)."""
    unit = general / general.norm().clamp_min(1e-30)
    against = (special * unit).sum().clamp(max=0)
    return special - strength * against * unit
