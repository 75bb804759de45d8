"""Which of many unlabelled images a classifier would learn most from."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shotfit.data.images import ImageSource
from shotfit.errors import DataError
from shotfit.evaluation.active_learning import next_batch
from shotfit.evaluation.inference import image_embeddings
from shotfit.predicting import Predicting


@dataclass(frozen=True)
class Proposal:
    """An image that is worth a label: its place among the images, and the classes that it may be,
    each with its probability, the likeliest first."""

    place: int
    answers: tuple[tuple[str, float], ...]


def next_to_label(
    classifier: Predicting,
    images: Sequence[ImageSource],
    labelled: Sequence[ImageSource] = (),
    count: int = 10,
) -> list[Proposal]:
    """The (at most) `count` of the `images` to label next, the most useful first: the least certain
    and most diverse, also beside those that are `labelled` (`evaluation.active_learning`).

    Every image is encoded twice, and every labelled one once.

    Raises:
        DataError: for an image that cannot be read, or a `count` below one.
        UsageError: for a classifier that is not fitted.
    """
    if count < 1:
        raise DataError(f"At least one image is to be proposed, not {count}.")
    if not len(images):
        return []
    probabilities = classifier.predict_proba(list(images))
    places = next_batch(
        probabilities,
        image_embeddings(classifier.method, images).numpy(),
        image_embeddings(classifier.method, labelled).numpy(),
        count,
    )
    return [Proposal(int(place), _ranked(classifier, probabilities[place])) for place in places]


def _ranked(classifier: Predicting, row: np.ndarray) -> tuple[tuple[str, float], ...]:
    order = np.argsort(-row, kind="stable")
    return tuple((classifier.classes[place], float(row[place])) for place in order)
