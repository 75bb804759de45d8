"""Images that cannot be read, left out of a dataset before anything is drawn from it."""

import dataclasses
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from shotfit.data.dataset import Dataset, Example
from shotfit.data.images import open_image
from shotfit.errors import DataError

# To read an image to its end, the smallest of a JPEG's sizes will do.
SMALL = 1


def without_broken(dataset: Dataset, workers: int = 4) -> tuple[Dataset, tuple[str, ...]]:
    """The dataset without the images that cannot be read, and why each of them cannot. Opens every
    image, a JPEG at an eighth of its size.

    Raises:
        DataError: when a class has no training images left.
    """
    parts, errors = {}, []
    for part in ("train", "val", "test"):
        examples: Sequence[Example] = getattr(dataset, part)
        with ThreadPoolExecutor(max_workers=workers) as threads:
            found = list(threads.map(_error, examples))
        errors += [error for error in found if error is not None]
        pairs = zip(examples, found, strict=True)
        parts[part] = tuple(example for example, error in pairs if error is None)
    left = {example.label for example in parts["train"]}
    gone = sorted({example.label for example in dataset.train} - left)
    if gone:
        raise DataError(
            f"No training image of class {dataset.classnames[gone[0]]!r} can be read: {errors[0]}"
        )
    return dataclasses.replace(dataset, **parts), tuple(errors)


def _error(example: Example) -> str | None:
    try:
        open_image(example.image, enough=SMALL)
    except DataError as error:
        return str(error)
    return None
