"""What can be known to be wrong before a run is found before it, not in the middle."""

import os
import warnings
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from shotfit.data.dataset import Dataset, Example, Split
from shotfit.data.names import check_names
from shotfit.data.template import Words, check_template
from shotfit.errors import DataError


def check_split(split: Split) -> None:
    """Looks at every class before a run, not during it; `SupportSet.decode` does so for images.

    Raises:
        DataError: naming the first class that cannot be used.
        UsageError: for a template without a place for the name.
    """
    check_names(split.classnames)
    for template in Words.of(split.template).templates:
        check_template(template)
    doubled = sorted({name for name in split.classnames if split.classnames.count(name) > 1})
    if doubled:
        warnings.warn(
            f"More than one class is named {', '.join(map(repr, doubled))}; they are kept apart "
            "by their position.",
            stacklevel=3,
        )
    without = set(range(len(split.classnames))) - set(split.labels)
    if without:
        raise DataError(without_images(split.classnames[min(without)]))


def without_images(name: str) -> str:
    """What is said of a class without training images."""
    return f"Class {name!r} has no training images."


def missing_files(dataset: Dataset) -> list[Path]:
    """The image files of `dataset` that are not on the disk, in order of the dataset, each once.

    Folders are listed, not files looked up: a network drive answers a listing of a thousand names
    about as fast as one look-up, and on a file system that ignores case only a listing shows a
    name that would be missing elsewhere.
    """
    folders: dict[Path, dict[str, Path]] = defaultdict(dict)
    for example in _file_examples(dataset):
        assert isinstance(example.image, Path)
        folders[example.image.parent][example.image.name] = example.image
    missing: list[Path] = []
    for folder, files in folders.items():
        there = _names_in(folder)
        missing += [path for name, path in files.items() if name not in there]
    return missing


def unreadable_files(dataset: Dataset) -> list[Path]:
    """The image files of `dataset` that are on the disk and that cannot be decoded.

    Reads every image in full: minutes on a large dataset.
    """
    from shotfit.data.images import open_image  # numpy, which listing a dataset does without

    broken = {}
    for example in _file_examples(dataset):
        assert isinstance(example.image, Path)
        if not example.image.is_file():
            continue
        try:
            open_image(example.image)
        except DataError:
            broken[example.image] = None
    return list(broken)


def check_openable(examples: Sequence[Example]) -> None:
    """Looks at the beginning of every image file, as a run that will need them at its end should:
    whether it is there, and begins as an image does.

    Raises:
        DataError: for the first file that does not; that one can be cut off is seen when it is
            decoded.
    """
    from shotfit.data.images import check_header  # numpy, which listing a dataset does without

    files = [example.image for example in examples if isinstance(example.image, Path)]
    with ThreadPoolExecutor(max_workers=8) as threads:
        for _ in threads.map(check_header, files):
            pass


def _file_examples(dataset: Dataset) -> list[Example]:
    examples = (*dataset.train, *dataset.val, *dataset.test)
    return [example for example in examples if isinstance(example.image, Path)]


def _names_in(folder: Path) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder))
    except OSError:
        return frozenset()


def check_test_images(dataset: Dataset) -> None:
    """Refuses data that nothing can be measured on, before anything is trained.

    Raises:
        DataError: when there are no test images.
    """
    if not dataset.test:
        raise DataError(
            f"{dataset.name} has no test images, so that there is nothing to measure: give it a "
            "folder `test` beside `train`, or a column `split`. `shotfit fit` trains without."
        )
