"""The images of examples as what they are, pictures that were drawn or files; and written out."""

from collections.abc import Iterable
from pathlib import Path

from PIL import Image

from shotfit.data.dataset import Example


def picture(example: Example) -> Image.Image:
    """The picture of an example that was drawn, not read."""
    assert isinstance(example.image, Image.Image)
    return example.image


def image_file(example: Example) -> Path:
    """The file of an example of a folder."""
    assert isinstance(example.image, Path)
    return example.image


def write_images(folder: Path, examples: Iterable[Example]) -> Path:
    """The folder, with the drawn pictures under their keys, such as train/red/0.png."""
    for example in examples:
        path = folder / example.key
        path.parent.mkdir(parents=True, exist_ok=True)
        picture(example).save(path)
    return folder
