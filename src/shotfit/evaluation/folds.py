"""Images spread over folds, each of which is left out once."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def image_folds(
    labels: Sequence[int] | NDArray[np.int64], folds: int, seed: int = 0
) -> NDArray[np.int64]:
    """The fold of each image: the images of a class are spread over the folds, as evenly as can be.

    Which fold gets a class's remainder is random, so that the folds are of one size.
    """
    generator = np.random.default_rng(seed)
    array = np.asarray(labels)
    chosen = np.zeros(len(array), dtype=np.int64)
    for label in np.unique(array):
        places = generator.permutation(np.flatnonzero(array == label))
        chosen[places] = (np.arange(len(places)) + generator.integers(folds)) % folds
    return chosen
