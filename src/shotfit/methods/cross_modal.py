"""Cross-modal probe: a linear probe whose every batch is half images, half class names.

Paper: Lin et al., Multimodality Helps Unimodality: Cross-Modal Few-Shot Learning with Multimodal
Models, CVPR 2023, https://arxiv.org/abs/2301.06267.

Equation: logits(z, c) = s z w_c, with z the unit embedding of an image or of a prompt, w_c a row
that is not normalised and starts at the unit text embedding; cross-entropy of both halves together.

Deviations: the official code trains with each of twelve settings of rate, decay and batch and keeps
the best on validation shots; here it is one of them, with the largest batch that it allows, and the
best checkpoint on validation shots (every 100 updates, the first of equals, as published); without
any, the last. The scale is the checkpoint's, not exp(4.60517). A half larger than its set takes all
of it (refused there). Rows start from text, as in the commands of its page; its script draws them.

Novel categories: their unit text embedding, on which the rows were trained as samples too; the
paper has no such setting.

When to prefer it: a few shots, all classes known, class names that say much.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shotfit.config import Share
from shotfit.data.prefetch import Batch
from shotfit.data.support_set import SupportSet
from shotfit.data.template import Template
from shotfit.layers.shuffling import shuffled
from shotfit.methods.base import ClassEmbeddings, Method, StepOutput
from shotfit.methods.published import TaskFacts, TrainConfig, published_templates

_CHECKPOINT_EVERY = 100


@dataclass(frozen=True)
class CrossModalConfig:
    """Options of the cross-modal probe."""

    wise_ft: Share = 0.0
    """Share of the text embeddings that is mixed into the rows at the end, as in WiSE-FT; the paper
    reports 0.5 beside 0."""
    templates: tuple[Template, ...] = ()
    """Prompt templates, each a sample of its class; none means the task's own."""


class CrossModal(Method):
    """The cross-modal probe (see the module's docstring)."""

    Config = CrossModalConfig
    reads = "template"
    first_fraction = None
    selects_on = "validation shots"

    @torch.no_grad()
    def prepare(self, support: SupportSet) -> None:
        """Encodes every image twice, as it is and mirrored, and every prompt of every class."""
        mirrored = ((pixels.flip(-1), labels) for pixels, labels in support.plain())
        embeds = [self.encode_pass(images) for images in (support.plain(), mirrored)]
        labels = support.labels.to(self.backbone.device)
        self._images = torch.cat(embeds), labels.repeat(2)
        templates = self.config.templates or (self.template,)
        prompts = [self.prompt_ensemble(self.trained_names, (one,)) for one in templates]
        classes = torch.arange(len(self.trained_names), device=labels.device)
        self._texts = torch.cat(prompts), classes.repeat(len(templates))
        self.weight = nn.Parameter(self._embed(self.trained_names))
        self._checkpoints: list[Tensor] = []

    def encode_classes(self, names: Sequence[str]) -> ClassEmbeddings:
        """Directions of the rows; the rows themselves as `per_prompt` (1, classes, dim)."""
        rows = self.rows_or(names, self.weight, self._embed)
        return self.class_embeddings(names, F.normalize(rows, dim=-1), rows[None])

    def forward(self, pixels: Tensor, classes: ClassEmbeddings) -> Tensor:
        """Logits (batch, classes)."""
        assert classes.per_prompt is not None
        return self.logits(self.encode_images(pixels), classes.per_prompt[0])

    def score_rows(self, classes: ClassEmbeddings) -> tuple[Tensor, Tensor]:
        """The rows themselves, scaled."""
        assert classes.per_prompt is not None
        return self.scaled_rows(classes.per_prompt[0])

    def loss(self, inputs: Tensor, labels: Tensor, names: Sequence[str]) -> StepOutput:
        """Cross-entropy; `inputs` are unit embeddings of images and of prompts."""
        logits = self.logits(inputs, self.weight)
        return StepOutput(F.cross_entropy(logits, labels), logits)

    def batches(self, support: SupportSet, batch_size: int, drop_last: bool) -> Iterator[Batch]:
        """Half images, half prompts, each in an endless order of its own."""
        generator = torch.Generator().manual_seed(support.stream.getrandbits(62))
        half = batch_size // 2
        images = shuffled(*self._images, batch_size - half, generator)
        texts = shuffled(*self._texts, half, generator)
        for number, parts in enumerate(zip(images, texts, strict=True)):
            # After update 0, 100 and so on: when the batch that follows is asked for.
            if number % _CHECKPOINT_EVERY == 1:
                self._checkpoints.append(self.weight.detach().cpu().clone())
            features, labels = (torch.cat(part) for part in zip(*parts, strict=True))
            yield features, labels

    def training_state(self) -> dict[str, Tensor]:
        """The checkpoints so far."""
        return {str(number): weight for number, weight in enumerate(self._checkpoints)}

    def load_training_state(self, state: dict[str, Tensor]) -> None:
        """The checkpoints, in their order."""
        self._checkpoints = [state[str(number)] for number in range(len(state))]

    @torch.no_grad()
    def finish(self, support: SupportSet, validation: SupportSet | None) -> None:
        """Keeps the best checkpoint on validation shots."""
        self.selects_on = "nothing"
        if validation is not None and len(validation) and self._checkpoints:
            self.selects_on = "validation shots"
            embeds = self.encode_pass(validation.plain()).cpu()
            found = [(embeds @ weight.T).argmax(dim=-1) for weight in self._checkpoints]
            hits = [int((classes == validation.labels).sum()) for classes in found]
            self.weight.copy_(self._checkpoints[hits.index(max(hits))])
        self.weight.lerp_(self._embed(self.trained_names), self.config.wise_ft)
        self._checkpoints = []
        del self._images, self._texts

    @classmethod
    def published_config(cls, facts: TaskFacts) -> CrossModalConfig:
        """Probes' templates."""
        return CrossModalConfig(templates=published_templates(facts))

    @classmethod
    def published_training(cls, facts: TaskFacts) -> tuple[TrainConfig, ...]:
        """AdamW at 1e-3, 12,800 updates with a linear rise before the cosine; batches of 32, or of
        8 where there are no more than 16 prompts, or images with their mirrored views."""
        prompts = facts.classes * max(1, len(published_templates(facts)))
        return (
            TrainConfig(
                lr=1e-3,
                batch_size=32 if min(prompts, 2 * facts.images) > 16 else 8,
                iterations=12_800,
                lr_min=0.0,
                warmup_iterations=50,
            ),
        )

    def _embed(self, names: Sequence[str]) -> Tensor:
        return self.prompt_ensemble(names, self.config.templates, unit=False)
