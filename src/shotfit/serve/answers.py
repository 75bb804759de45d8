"""What is answered to a question about images, by one version of the classes."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from shotfit.evaluation.decisions import Refusal, Sets
from shotfit.runtime.class_matrix import ClassMatrix


@dataclass(frozen=True)
class Question:
    """What a request wants to know of each image."""

    top: int = 1
    """Answers."""
    coverage: float | None = None
    """The probability with which a set of classes holds the right one; None asks for no set."""
    reject: float | None = None
    """The share of trained images that may be refused as none of the classes; None refuses none."""


def answered(matrix: ClassMatrix, features: np.ndarray, question: Question) -> list[dict[str, Any]]:
    """For each of the images with features (images, f): `answers`, most likely first, and as far as
    they were asked for `set` and `refused`.

    Raises:
        UsageError: when the held-out shots cannot tell sets or refusals, or not at such a rate.
    """
    logits, known = matrix.scores(features), (matrix.held_out, matrix.trained)
    rows: list[dict[str, Any]] = [{} for _ in logits]
    probabilities = matrix.probabilities(features)
    order = np.argsort(-logits, axis=1, kind="stable")

    def named(image: int, places: np.ndarray) -> list[dict[str, Any]]:
        return [
            {"class": matrix.names[place], "probability": float(probabilities[image, place])}
            for place in places
        ]

    for image, row in enumerate(rows):
        row["answers"] = named(image, order[image, : question.top])
    if question.coverage is not None:
        inside = Sets(*known, question.coverage)(logits)
        for image, row in enumerate(rows):
            row["set"] = named(image, order[image][inside[image, order[image]]])
    if question.reject is not None:
        refused = Refusal(*known, question.reject)(logits, matrix.familiarity(features))
        for row, none in zip(rows, refused, strict=True):
            row["refused"] = bool(none)
    return rows
