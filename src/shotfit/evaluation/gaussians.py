"""Each class's Gaussian, all of one covariance, as an affine map that names have no part in.

GDA (Wang et al., A Hard-to-Beat Baseline for Training-free CLIP-based Adaptation, ICLR 2024) adds
alpha (x P mu_c - mu_c P mu_c / 2) to the logit of a class, with mu_c the mean of its features and P
the inverse of the covariance that classes share. Less the same of the mean m of all mu_c, which
stands for a class without images, that is

    (mu_c - m) P (x - (mu_c + m) / 2)

and 0 for a name. Solved on some of the shots, P is scaled to what all of them would give, so that
the weight that held-out shots choose for it is right for the whole.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shotfit.evaluation.calibration import Head, single_precision
from shotfit.layers.class_means import class_means
from shotfit.layers.gaussians import ridged_inverse


def gaussian_head(
    views: Tensor, labels: NDArray[np.int64], classes: int, share: float = 1.0
) -> Head:
    """The map of `classes` from features `views` (V, images, dim) of images with `labels`, which
    are a `share` of all shots. A class without images gets nothing, nor does any class where each
    has a single view, which has no spread."""
    known, answers = np.unique(labels, return_inverse=True)
    features = views.double().cpu().flatten(0, 1)
    answer = torch.from_numpy(answers).repeat(len(views))
    means = class_means(features, answer, len(known))
    residuals = features - means[answer]
    weight, bias = np.zeros((classes, features.shape[1])), np.zeros(classes)
    if residuals.norm() <= 1e-6 * features.norm():
        return single_precision(weight, bias)
    precision = ridged_inverse(residuals, share)
    middle = means.mean(dim=0)
    half = ((means + middle) @ precision * (means - middle)).sum(dim=1) / 2
    weight[known], bias[known] = ((means - middle) @ precision).numpy(), -half.numpy()
    return single_precision(weight, bias)
