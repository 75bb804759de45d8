"""Gaussians of few samples: precisions that classes share, and those of classes without images.

Wang et al., A Hard-to-Beat Baseline for Training-free CLIP-based Adaptation, ICLR 2024; averages of
inverses and Gaussians of neighbours are of its official code for base-to-novel, not in the paper.
"""

import math

import torch
from torch import Tensor

NEIGHBOURS, TEXT_COPIES = 64, 16
ALPHAS = (1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0)
"""What the official code searches."""


def ridged_inverse(residuals: Tensor, share: float = 1.0) -> Tensor:
    """dim (R^T R + tr(R^T R) / (n - 1) I)^-1 of residuals R (n, dim); Kubokawa and Srivastava.

    Where R is a `share` of the samples, it counts for all of them, so that the inverse is of the
    size that all would give: the larger n, the less weighs the ridge.
    """
    scatter = residuals.T @ residuals / share
    ridge = scatter.trace() / max(1, len(residuals) / share - 1)
    return len(scatter) * torch.linalg.inv(scatter + ridge * torch.eye(len(scatter)).to(scatter))


def average_inverse(residuals: Tensor, labels: Tensor, classes: int) -> Tensor:
    """The pseudo-inverse (dim, dim) of the average of the classes' covariances, from residuals (n,
    dim) with `labels` (n,)."""
    share = 1 / (labels.bincount() - 1).clamp(min=1) / classes
    covariance = residuals.T @ (residuals * share[labels, None])
    # The cut-off that it has in fp32 decides what counts as rank.
    cut = len(covariance) * torch.finfo(torch.float32).eps
    return torch.linalg.pinv(covariance, rtol=cut, hermitian=True)


def gaussians_of_neighbours(text: Tensor, features: Tensor) -> Tensor:
    """Means and means times precision, (names, 2, dim), of the `features` (n, dim) that are nearest
    to each name's embedding `text` (names, dim), and of copies of that."""
    # Of fewer features all, where the official code stops.
    nearest = (text @ features.T).topk(min(NEIGHBOURS, len(features))).indices
    text, near = text.double(), features[nearest].double()
    means = (near.sum(dim=1) + TEXT_COPIES * text) / (near.shape[1] + TEXT_COPIES)
    inverses = (ridged_inverse(own - t) for own, t in zip(near, text, strict=True))
    return torch.stack([means, means @ (sum(inverses) / len(text))], dim=1)


def rows(both: Tensor | None, classes: int) -> tuple[Tensor, Tensor]:
    """P mu and log(1 / K) - mu P mu / 2 of each name, from `both` (2, names, dim), mu and P mu."""
    assert both is not None
    means, weight = both.float()
    return weight, -math.log(classes) - (means * weight).sum(dim=-1) / 2


def best_alpha(text: Tensor, evidence: Tensor, labels: Tensor) -> float:
    """The smallest alpha of those with which text + alpha evidence, logits (images, classes), is
    right most often; 0.1 where none ever is, as in the official code."""
    hits = [int(((text + alpha * evidence).argmax(dim=1) == labels).sum()) for alpha in ALPHAS]
    return ALPHAS[hits.index(max(hits))] if any(hits) else 0.1
