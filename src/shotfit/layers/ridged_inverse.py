"""The inverse of a covariance that few samples make, held off singularity by their mean size."""

import torch
from torch import Tensor


def ridged_inverse(residuals: Tensor, share: float = 1.0) -> Tensor:
    """dim (R^T R + tr(R^T R) / (n - 1) I)^-1 of residuals R (n, dim); Kubokawa and Srivastava.

    Where R is a `share` of the samples, it counts for all of them, so that the inverse is of the
    size that all would give: the larger n, the less weighs the ridge.
    """
    scatter = residuals.T @ residuals / share
    ridge = scatter.trace() / max(1, len(residuals) / share - 1)
    return len(scatter) * torch.linalg.inv(scatter + ridge * torch.eye(len(scatter)).to(scatter))
