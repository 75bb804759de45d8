"""What a user may give as data: a name, a place, or the images themselves."""

from collections.abc import Sequence
from pathlib import Path

from shotfit.data import load_dataset, locate
from shotfit.data.dataset import Dataset, Example
from shotfit.data.images import ImageSource, open_image
from shotfit.errors import DataError


def as_dataset(
    data: str | Path | Dataset | Sequence[tuple[ImageSource, str]], root: str | None = None
) -> Dataset:
    """What `fit` and `evaluate` accept, as a dataset.

    Raises:
        DataError: when it cannot be found or read.
    """
    if isinstance(data, Dataset):
        return data
    if isinstance(data, str | Path):
        source, options = locate(str(data))
        return load_dataset(source, root=root, **options)
    pairs = list(data)
    if not pairs:
        raise DataError("There are no images to learn from.")
    names = tuple(dict.fromkeys(name for _, name in pairs))
    label = {name: index for index, name in enumerate(names)}
    examples = tuple(
        Example(str(number), label[name], open_image(image, f"image {number}"))
        for number, (image, name) in enumerate(pairs)
    )
    return Dataset("images", names, examples)
