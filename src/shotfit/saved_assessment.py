"""An assessment as what a saved folder holds: plain numbers for its config, and tensors."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from shotfit.config import from_dict, to_dict
from shotfit.errors import DataError, UsageError
from shotfit.evaluation.assessment import Assessment
from shotfit.evaluation.calibration import Calibration, Head
from shotfit.evaluation.decisions import Scores
from shotfit.evaluation.expected import Expected

_PREFIX = "assessment."
_GAUSSIANS = "gaussian_"
SCORES = tuple(field.name for field in dataclasses.fields(Scores))


@dataclass(frozen=True)
class Numbers:
    """The part of an assessment that people may read."""

    calibration: Calibration
    expected: Expected | None = None


def assessment_numbers(assessment: Assessment | None) -> dict[str, Any] | None:
    """What the config of a saved classifier says."""
    if assessment is None:
        return None
    return to_dict(Numbers(assessment.calibration, assessment.expected))


def assessment_tensors(assessment: Assessment | None) -> dict[str, Tensor]:
    """The arrays that go with it: mean images (classes, dim), scores of held-out shots, and what
    Gaussians say where classes have any."""
    if assessment is None:
        return {}
    arrays = {"means": assessment.means}
    arrays |= {name: getattr(assessment.scores, name) for name in SCORES}
    if assessment.gaussians is not None:
        arrays |= {_GAUSSIANS + key: array for key, array in vars(assessment.gaussians).items()}
    return {_PREFIX + name: torch.from_numpy(array).float() for name, array in arrays.items()}


def read_assessment(
    numbers: Any, tensors: Mapping[str, Tensor], shape: tuple[int, int]
) -> Assessment | None:
    """The assessment of a folder, None where it has none (it was saved by an earlier version, or
    without); its mean images have this `shape` (trained classes, dim).

    Raises:
        DataError: for numbers or tensors that belong to no assessment.
    """
    if numbers is None:
        return None
    try:
        found = from_dict(Numbers, numbers)
        means, *scores = (tensors[_PREFIX + name].float().numpy() for name in ("means", *SCORES))
        gaussians = _gaussians(tensors, shape)
    except (UsageError, KeyError, TypeError) as error:
        raise DataError(f"The assessment that was saved cannot be read: {error}") from error
    if means.shape != shape or any(array.ndim != 1 for array in scores):
        raise DataError(f"The assessment that was saved has means of shape {means.shape}.")
    return Assessment(found.calibration, means, found.expected, Scores(*scores), gaussians)


def _gaussians(tensors: Mapping[str, Tensor], shape: tuple[int, int]) -> Head | None:
    """What the classes' Gaussians say, None where none were saved."""
    names = [_PREFIX + _GAUSSIANS + key for key in ("weight", "bias")]
    if not any(name in tensors for name in names):
        return None
    weight, bias = (tensors[name].float().numpy() for name in names)
    if weight.shape != shape or bias.shape != shape[:1]:
        raise UsageError(f"its Gaussians have the shapes {weight.shape} and {bias.shape}.")
    return Head(weight, bias)
