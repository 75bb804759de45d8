"""GDA: a Gaussian for each class, all of one covariance, solved and added to zero-shot CLIP.

Paper: Wang et al., A Hard-to-Beat Baseline for Training-free CLIP-based Adaptation, ICLR 2024,
https://arxiv.org/abs/2402.04087.

Equation: logits(x, c) = s f t_c + alpha (f P mu_c + log(1 / K) - mu_c P mu_c / 2), with f the unit
image embedding, mu_c the mean of a class's unit features, P the inverse of the covariance that
classes share: dim ((N - 1) S + tr(S) I)^-1 over all N residuals (Kubokawa and Srivastava).

Deviations: alpha is fixed; the official code, with its numbers, takes the best of seven on the
whole validation split (ImageNet: the test images), at ViT-B/16 within a step of 10. Its estimator
of base-to-novel, not in the paper, has mostly 0.1. Solved in float64 (published: fp32). The scale
is the checkpoint's, not 100; ImageNet's crops are the other datasets'.

Novel categories: few-shot, their text embedding and the mean of all Gaussians; base-to-novel, as
published, the Gaussian of the 64 base features nearest to it, not comparable with base classes'.

When to prefer it: the strongest answer without training from four shots on, in seconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from shotfit.config import Count, NotNegative
from shotfit.data.support_set import SupportSet
from shotfit.data.template import Template
from shotfit.errors import DataError
from shotfit.layers import gaussians
from shotfit.layers.class_means import class_means
from shotfit.methods.base import ClassEmbeddings, Method
from shotfit.methods.published import TaskFacts, published_templates


@dataclass(frozen=True)
class GDAConfig:
    """Options of GDA."""

    alpha: NotNegative = 10.0
    """Weight of the Gaussians beside zero-shot CLIP."""
    search: bool = False
    """Choose alpha, from 1e-4 to 100, on validation shots; without any it stays."""
    estimator: Literal["few_shot", "base_to_novel"] = "few_shot"
    """Of the covariance, and of classes without images. Their alphas are not comparable."""
    passes: Count = 10
    """Augmented views of each image, each a sample of its own."""
    views_per_class: Count | None = None
    """No more passes than give a class so many views on average; the first is the image itself."""
    templates: tuple[Template, ...] = ()
    """Prompt templates to average; none means the task's own."""

    def passes_over(self, images: int, classes: int) -> int:
        """How often each of so many images of so many classes is encoded."""
        if self.views_per_class is None:
            return self.passes
        return min(self.passes, -(-self.views_per_class * classes // images))


class GDA(Method):
    """GDA (see the module's docstring)."""

    Config = GDAConfig
    starts_at_zero_shot = False
    first_fraction = None
    crop_scale = (0.5, 1.0)

    @torch.no_grad()
    def prepare(self, support: SupportSet) -> None:
        """Solves for the Gaussians.

        Raises:
            DataError: when the views of each class are all alike, such as a single one.
        """
        passes = self.config.passes_over(len(support), len(self.trained_names))
        # Kept for who asks the shots when the fit is over (passes, images, dim); not saved.
        self.views = self._encode(support, passes)
        features = self.views.flatten(0, 1).double()
        labels = support.labels.to(features.device).repeat(passes)
        means = class_means(features, labels, len(self.trained_names))
        residuals = features - means[labels]
        if residuals.norm() <= 1e-6 * features.norm():
            raise DataError("GDA needs views that differ: give more shots, or more passes.")
        if self.config.estimator == "few_shot":
            precision = gaussians.ridged_inverse(residuals)
        else:
            precision = gaussians.average_inverse(residuals, labels, len(means))
            self.features = nn.Buffer(features.float())
        self.alpha = nn.Buffer(torch.tensor(self.config.alpha, device=features.device))
        self.gaussians = nn.Buffer(torch.stack([means, means @ precision], dim=1).float())

    def encode_classes(self, names: Sequence[str]) -> ClassEmbeddings:
        """Text embeddings; as `per_prompt` (2, classes, dim) means, and means times precision."""
        text = self.prompt_ensemble(names, self.config.templates)
        both = self.rows_or(names, self.gaussians, self._novel_gaussians)
        return self.class_embeddings(names, text, both.transpose(0, 1))

    def forward(self, pixels: Tensor, classes: ClassEmbeddings) -> Tensor:
        """Logits (batch, classes): zero-shot CLIP's and the Gaussians'."""
        embeds = self.encode_images(pixels)
        return self.logits(embeds, classes.weight) + self.alpha * self._evidence(embeds, classes)

    def score_rows(self, classes: ClassEmbeddings) -> tuple[Tensor, Tensor]:
        """Text embeddings, scaled, and alpha times the Gaussians' weights; their constants."""
        rows, offsets = self.scaled_rows(classes.weight)
        weight, bias = gaussians.rows(classes.per_prompt, len(self.gaussians))
        return rows + self.alpha * weight, offsets + self.alpha * bias

    @torch.no_grad()
    def finish(self, support: SupportSet, validation: SupportSet | None) -> None:
        """Searches alpha where that is asked for; the smallest of equals."""
        if not self.config.search or not validation:
            return
        self.selects_on = "validation shots"
        classes = self.encode_classes(self.trained_names)
        embeds, right = self.encode_pass(validation.plain()), validation.labels
        text, evidence = self.logits(embeds, classes.weight), self._evidence(embeds, classes)
        self.alpha.fill_(gaussians.best_alpha(text, evidence, right.to(text.device)))

    @classmethod
    def published_config(cls, facts: TaskFacts) -> GDAConfig:
        """The estimators of the setting, and probes' templates."""
        templates = published_templates(facts)
        if facts.setting == "base_to_novel":
            return GDAConfig(0.1, estimator="base_to_novel", templates=templates)
        return GDAConfig(templates=templates)

    def _encode(self, support: SupportSet, passes: int) -> Tensor:
        """Features (passes, images, dim) of the shots."""
        if self.config.views_per_class is None:
            return self.encode_views(support, passes)
        plain = self.encode_pass(support.plain()).unsqueeze(0)
        more = [self.encode_views(support, passes - 1)] if passes > 1 else []
        return torch.cat([plain, *more])

    def _evidence(self, embeds: Tensor, classes: ClassEmbeddings) -> Tensor:
        """f P mu + log(1 / K) - mu P mu / 2, (batch, classes)."""
        # The terms are hundreds, their differences are what counts: never in half precision.
        with torch.autocast(embeds.device.type, enabled=False):
            weight, bias = gaussians.rows(classes.per_prompt, len(self.gaussians))
            return embeds.float() @ weight.T + bias

    def _novel_gaussians(self, names: Sequence[str]) -> Tensor:
        """Means and means times precision (names, 2, dim) of classes without images."""
        if self.config.estimator == "few_shot":
            return self.gaussians.mean(dim=0).expand(len(names), -1, -1)
        text = self.prompt_ensemble(names, self.config.templates)
        return gaussians.gaussians_of_neighbours(text, self.features)
