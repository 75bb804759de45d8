"""Test images of ImageNet's classes from elsewhere: ImageNetV2, -Sketch, -A and -R.

Laid out as CoOp lays them out (Zhou et al., IJCV 2022; its DATASETS.md), each beside ImageNet's
folder with a copy of its `classnames.txt`:

    imagenetv2/imagenetv2-matched-frequency-format-val/0 ... 999
    imagenet-sketch/images/n01440764 ...
    imagenet-adversarial/imagenet-a/n01498041 ...       200 of the classes
    imagenet-rendition/imagenet-r/n01443537 ...         200 of the classes

There is nothing to train on: they are what a run on ImageNet is also measured on (`--transfer`).
"""

from pathlib import Path

from shotfit.data.benchmark.raw_files import list_folders, list_images
from shotfit.data.benchmark.reading import read_imagenet_names
from shotfit.data.dataset import Dataset, Example
from shotfit.errors import DataError, UsageError, unknown_name

FOLDERS = {
    "imagenetv2": "imagenetv2/imagenetv2-matched-frequency-format-val",
    "imagenet_sketch": "imagenet-sketch/images",
    "imagenet_a": "imagenet-adversarial/imagenet-a",
    "imagenet_r": "imagenet-rendition/imagenet-r",
}


def list_variants() -> list[str]:
    """The names of the variants."""
    return list(FOLDERS)


def load(root: Path | str | None, name: str) -> Dataset:
    """A variant's classes, in ImageNet's order, and its test images.

    Raises:
        UsageError: for an unknown variant, or without a data root.
        DataError: when a folder is missing or is of no class of `classnames.txt`.
    """
    if name not in FOLDERS:
        raise unknown_name("variant of ImageNet", name, FOLDERS)
    if root is None:
        raise UsageError("The imagenet_variants source needs root.")
    folder = Path(root).expanduser()
    images = folder / FOLDERS[name]
    names = read_imagenet_names(folder / Path(FOLDERS[name]).parts[0] / "classnames.txt")
    found = list_folders(images)
    # ImageNetV2 numbers the classes of ImageNet, which are in the order of their folders' names.
    numbered = {str(number): folder for number, folder in enumerate(sorted(names))}
    classes = {folder: numbered.get(folder, folder) for folder in found}
    unknown = [folder for folder, wnid in classes.items() if wnid not in names]
    if unknown:
        raise DataError(
            f"{images} has the folder {unknown[0]}, which classnames.txt does not list."
        )
    ordered = sorted(found, key=lambda folder: classes[folder])
    return Dataset(
        name=name,
        classnames=tuple(names[classes[folder]] for folder in ordered),
        train=(),
        test=tuple(
            Example(f"{folder}/{image}", label, images / folder / image)
            for label, folder in enumerate(ordered)
            for image in list_images(images / folder)
        ),
    )
