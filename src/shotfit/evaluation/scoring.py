"""From images to logits: the one place that decides how classes are compared.

Under the published rule a method scores as its paper says: trained rows and names as they are. With
an `Assessment` of the shots, trained classes, names, and names with images stand on one scale
(`calibration`), and each image also gets a score of how well its answer fits (`rejection`).
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from shotfit.evaluation import heads
from shotfit.evaluation.assessment import Assessment
from shotfit.evaluation.calibration import Head
from shotfit.evaluation.decisions import Scores
from shotfit.evaluation.rejection import NEARNESS
from shotfit.methods.base import ClassEmbeddings, Method


@dataclass(frozen=True)
class GivenImages:
    """Images that names were given: how many for each class, 0 for none, and their unit mean
    embeddings (classes, dim), zeros for none."""

    counts: tuple[int, ...]
    means: Tensor

    @classmethod
    def none(cls, classes: ClassEmbeddings) -> "GivenImages":
        """No images for any class."""
        return cls((0,) * len(classes.names), torch.zeros_like(classes.weight))


@dataclass(frozen=True)
class Scored:
    """Logits (images, classes) and, under a fitted rule, familiarity (images,), on the CPU."""

    logits: Tensor
    familiarity: Tensor | None = None


class Scorer:
    """A method, classes to choose among, and the rule by which they are compared."""

    def __init__(
        self,
        method: Method,
        classes: ClassEmbeddings,
        given: GivenImages | None = None,
        assessment: Assessment | None = None,
    ) -> None:
        """Without an `assessment` the rule is the published one."""
        given = given or GivenImages.none(classes)
        self.method = method
        self.assessment = assessment
        self.head: Head | None = None
        """Under a fitted rule, the affine map from unit image embeddings to logits."""
        if assessment is None:
            self.classes = blended(classes, given)
        else:
            self.classes = classes
            self.head = class_head(assessment, logit_scale(method), classes, given)
            self._weight, self._bias, self._seen = (
                torch.from_numpy(part).to(classes.weight.device, torch.float32)
                for part in (self.head.weight, self.head.bias, _seen(assessment, given))
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The classes, in the order of the logits."""
        return self.classes.names

    @property
    def trained(self) -> tuple[bool, ...]:
        """Which classes are answered by rows that were trained."""
        return tuple(row >= 0 for row in self.classes.rows)

    @property
    def held_out(self) -> Scores | None:
        """Scores of held-out shots; None where the scores are not fitted."""
        return None if self.assessment is None else self.assessment.scores

    @torch.no_grad()
    def __call__(self, pixels: Tensor) -> Scored:
        """Scores prepared images (batch, 3, size, size)."""
        if self.head is None:
            return Scored(self.method(pixels, self.classes).float().cpu())
        embeds = self.method.encode_images(pixels).float()
        logits = embeds @ self._weight.T + self._bias
        nearness = NEARNESS * logit_scale(self.method) * (embeds @ self._seen.T).amax(dim=1)
        return Scored(logits.cpu(), (logits.amax(dim=1) + nearness).cpu())


def logit_scale(method: Method) -> float:
    """The factor from cosines to logits."""
    return method.backbone.logit_scale.exp().item()


def class_head(
    assessment: Assessment, scale: float, classes: ClassEmbeddings, given: GivenImages
) -> Head:
    """The classes on one scale: trained rows, names with images, and names."""
    arrays = heads.KnownAs(
        embeds=classes.weight.float().cpu().numpy(),
        rows=np.array(classes.rows, np.int64),
        counts=np.array(given.counts, np.int64),
        means=given.means.float().cpu().numpy(),
    )
    return heads.class_head(
        assessment.calibration, scale, assessment.means, arrays, assessment.gaussians
    )


def _seen(assessment: Assessment, given: GivenImages) -> np.ndarray:
    """The mean images of all classes that have any."""
    shown = np.array(given.counts, np.int64) > 0
    return np.concatenate([assessment.means, given.means.float().cpu().numpy()[shown]])


def blended(classes: ClassEmbeddings, given: GivenImages) -> ClassEmbeddings:
    """Names with images halfway between the text and the mean image."""
    shown = torch.tensor(given.counts, device=classes.weight.device) > 0
    if not shown.any():
        return classes
    means = given.means.to(classes.weight)
    weight = torch.where(
        shown[:, None], F.normalize(classes.weight + means, dim=-1), classes.weight
    )
    return ClassEmbeddings(classes.names, weight, classes.rows, classes.per_prompt)
