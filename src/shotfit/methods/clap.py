"""CLAP: a linear probe over frozen features, each row held to its text embedding.

Paper: Silva-Rodriguez et al., A Closer Look at the Few-Shot Adaptation of Large Vision-Language
Models, CVPR 2024, https://arxiv.org/abs/2312.12730.

Equation: logits(x, c) = s cos(f, w_c), w_c starting at the text embedding t_c, not normalised; loss
= cross-entropy + mean_c alpha_c |w_c - t_c|^2, alpha_c the mean zero-shot probability of class c
over its own views. Without the second term (`anchored=False`) it is the paper's ZS-LP.

Deviations: the paper's augmented Lagrangian moves alpha after every epoch; the official commands do
not, and alpha stays at its first value here too. fp32 (published: text in fp16). The official code
leaves the underscores of folder names in class names; here names come without them, unless the
benchmark's option `keep_underscores` says otherwise. There is no selection on validation images, as
published.

Novel categories: their text embedding, beside the trained rows, which are of the same kind; the
paper has no such setting.

When to prefer it: a probe that cannot fall far below zero-shot CLIP, nothing to tune.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shotfit.config import Count
from shotfit.data.prefetch import Batch
from shotfit.data.support_set import SupportSet
from shotfit.data.template import Template
from shotfit.layers.anchors import Leash
from shotfit.layers.ensembles import mean_embeddings
from shotfit.layers.shuffling import shuffled
from shotfit.methods.base import ClassEmbeddings, Method, StepOutput
from shotfit.methods.published import TaskFacts, TrainConfig, dassl, published_templates

FORMS = {"ZS-LP": {"anchored": False}}
"""Published names of this method with other options."""


@dataclass(frozen=True)
class CLAPConfig:
    """Options of CLAP."""

    anchored: bool = True
    """Hold each row to its text embedding; without it, the method is ZS-LP."""
    views: Count = 20
    """Augmented views of each image, each encoded once and a sample of its own."""
    templates: tuple[Template, ...] = ()
    """Prompt templates to average; none means the task's own."""


class CLAP(Method):
    """CLAP and ZS-LP (see the module's docstring)."""

    Config = CLAPConfig
    reads = "template"
    first_fraction = None

    @torch.no_grad()
    def prepare(self, support: SupportSet) -> None:
        """Encodes the views, starts the rows at the text, and weighs how it holds each of them."""
        self._features = self.encode_views(support, self.config.views).flatten(0, 1)
        self._labels = support.labels.to(self._features.device).repeat(self.config.views)
        text = self._embed(self.trained_names)
        self.weight = nn.Parameter(text.clone())
        logits = self.logits(self._features, F.normalize(text, dim=-1))
        self._leash = Leash.of(text, logits, self._labels)

    def encode_classes(self, names: Sequence[str]) -> ClassEmbeddings:
        """Rows of trained names, text embeddings of the others."""
        rows = self.rows_or(names, self.weight, self._embed)
        return self.class_embeddings(names, F.normalize(rows, dim=-1))

    def loss(self, inputs: Tensor, labels: Tensor, names: Sequence[str]) -> StepOutput:
        """Cross-entropy, and the constraint; `inputs` are cached features."""
        logits = self.logits(inputs, self.encode_classes(names).weight)
        loss = F.cross_entropy(logits, labels)
        if self.config.anchored:
            loss = loss + self._leash.pull(self.weight)
        return StepOutput(loss, logits)

    def batches(self, support: SupportSet, batch_size: int, drop_last: bool) -> Iterator[Batch]:
        """Cached features, shuffled; an epoch is as many batches as the images alone would fill."""
        images = len(support)
        count = max(1, images // batch_size if drop_last else math.ceil(images / batch_size))
        generator = torch.Generator().manual_seed(support.stream.getrandbits(62))
        yield from shuffled(self._features, self._labels, batch_size, generator, batches=count)

    def finish(self, support: SupportSet, validation: SupportSet | None) -> None:
        """Lets go of the views, which only training reads."""
        del self._features

    @classmethod
    def published_config(cls, facts: TaskFacts) -> CLAPConfig:
        """Eight templates on ImageNet, CoOp's on other benchmarks."""
        return CLAPConfig(templates=published_templates(facts, generic=True))

    @classmethod
    def published_training(cls, facts: TaskFacts) -> tuple[TrainConfig, ...]:
        """SGD at 0.1, batches of 256, 300 epochs, for every dataset and number of shots."""
        return (dassl(lr=0.1, weight_decay=0.0, batch_size=256, epochs=300),)

    def _embed(self, names: Sequence[str]) -> Tensor:
        templates = self.config.templates or (self.template,)
        return mean_embeddings(self.backbone.encode_text, names, templates, unit=False)
