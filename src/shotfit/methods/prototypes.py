"""Prototypes: the mean of a class's image features beside its text embedding, nothing trained.

Paper: Snell et al., Prototypical Networks for Few-shot Learning, NeurIPS 2017,
https://arxiv.org/abs/1703.05175; mixed with class names as in Xing et al., Adaptive Cross-Modal
Few-shot Learning, NeurIPS 2019, https://arxiv.org/abs/1902.07104.

Equation: logits(x, c) = s f (t_c + w (p_c - p)), with f the unit image embedding, t_c the unit text
embedding, p_c the mean of a class's unit features, of unit norm, and p the mean of all p_c. What is
subtracted is the same for every class with images, so that their order is that of t_c + w p_c.

Deviations: the papers train the embedding, and a mixture for each class; here the one is CLIP's and
the other a number, w = sqrt(shots) / 2: of 0.2, 0.5, 1 and 2 the best on embedded tasks at 1 shot
and, within noise, at 4 and 16. Taking off p is ours too: images are more alike than an image and a
text, so that without it every class with images would be ahead of every class without.

Novel categories: their text embedding alone.

When to prefer it: an answer for the cost of looking at each image once; the line that anything else
with images must beat. In a list of both, smaller weights leave novel classes more of a chance.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shotfit.config import NotNegative, NotNegativeInt
from shotfit.data.support_set import SupportSet
from shotfit.data.template import Template
from shotfit.layers.class_means import class_means
from shotfit.methods.base import ClassEmbeddings, Method
from shotfit.methods.published import TaskFacts, published_templates


@dataclass(frozen=True)
class PrototypesConfig:
    """Options of prototypes."""

    weight: NotNegative = 1.0
    """Weight w of the images beside the text; 0 is zero-shot CLIP."""
    passes: NotNegativeInt = 0
    """Augmented views of each image to average; 0 takes each as it is, once."""
    templates: tuple[Template, ...] = ()
    """Prompt templates to average; none means the task's own."""


class Prototypes(Method):
    """Image prototypes and text (see the module's docstring)."""

    Config = PrototypesConfig
    starts_at_zero_shot = False
    first_fraction = None
    crop_scale = (0.5, 1.0)

    @torch.no_grad()
    def prepare(self, support: SupportSet) -> None:
        """Averages the images of each class."""
        if self.config.passes:
            features = self.encode_views(support, self.config.passes).mean(dim=0)
        else:
            features = self.encode_pass(support.plain())
        labels = support.labels.to(features.device)
        means = class_means(features, labels, len(self.trained_names))
        prototypes = F.normalize(means, dim=-1)
        self.prototypes = nn.Buffer(prototypes - prototypes.mean(dim=0))

    def encode_classes(self, names: Sequence[str]) -> ClassEmbeddings:
        """Text embeddings; as `per_prompt` (1, classes, dim) the same with their prototypes."""
        text = self.prompt_ensemble(names, self.config.templates)

        def none(novel: Sequence[str]) -> Tensor:
            return self.prototypes.new_zeros(len(novel), self.prototypes.shape[1])

        rows = text + self.config.weight * self.rows_or(names, self.prototypes, none)
        return self.class_embeddings(names, text, rows[None])

    def forward(self, pixels: Tensor, classes: ClassEmbeddings) -> Tensor:
        """Logits (batch, classes)."""
        assert classes.per_prompt is not None
        return self.logits(self.encode_images(pixels), classes.per_prompt[0])

    def score_rows(self, classes: ClassEmbeddings) -> tuple[Tensor, Tensor]:
        """The rows themselves, scaled."""
        assert classes.per_prompt is not None
        return self.scaled_rows(classes.per_prompt[0])

    @classmethod
    def published_config(cls, facts: TaskFacts) -> PrototypesConfig:
        """w = sqrt(shots) / 2, and probes' templates."""
        return PrototypesConfig(facts.shots**0.5 / 2, templates=published_templates(facts))
