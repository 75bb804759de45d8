"""Images that Python has at hand, labelled or not: lists, arrays, pairs and generators, pandas and
polars data frames, Hugging Face and torch datasets."""

import dataclasses
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
from PIL import Image

from shotfit.data.addresses import is_address
from shotfit.data.dataset import Dataset, Example
from shotfit.data.image_files import list_images
from shotfit.data.images import ImageSource
from shotfit.data.sources import huggingface
from shotfit.data.web import fetch
from shotfit.errors import DataError, UsageError, unknown_name

IMAGE_COLUMNS = ("image", "images", "img", "path", "file", "filename", "file_name", "filepath")
LABEL_COLUMNS = ("label", "labels", "class", "target", "category", "name")

LABELLED = (
    "a folder, a manifest or the name of a task; images and labels, as fit(X, y); pairs of (image, "
    "label); a pandas or polars DataFrame; a Hugging Face Dataset or DatasetDict; or a torch "
    "Dataset of such pairs"
)


@dataclass(frozen=True)
class Naming:
    """What to call what the data does not name itself."""

    classnames: Sequence[str] | Mapping[Any, str] | None = None
    """Names of integer labels, by their number; of labels that are text, their order."""
    image_column: str | None = None
    label_column: str | None = None


@runtime_checkable
class Readable(Protocol):
    """A file object."""

    def read(self) -> bytes:
        """Its content."""
        ...


def labelled_images(data: Any, labels: Any = None, naming: Naming | None = None) -> Dataset:
    """A dataset of what `fit` takes besides files: see `LABELLED`.

    Classes are in the order of `classnames`, or of their first appearance. Images are opened when
    they are used; those of a torch dataset are asked for again then.

    Raises:
        UsageError: for what is none of these, or numbers as labels without names.
        DataError: for an image without a label, a label without a name, or no images at all.
    """
    naming = naming or Naming()
    if isinstance(labels, str) and labels:
        naming, labels = dataclasses.replace(naming, label_column=labels), None
    if _is(data, "datasets", "Dataset") or _is(data, "datasets", "DatasetDict"):
        if labels is not None:
            raise UsageError("A Hugging Face dataset has its labels: name their column.")
        splits = data if _is(data, "datasets", "DatasetDict") else {"train": data}
        return huggingface.from_splits(
            dict(splits),
            name="images",
            image_column=naming.image_column,
            label_column=naming.label_column,
            classnames=_sequence(naming.classnames),
        )
    if _is_frame(data):
        images = _column(data, naming.image_column, IMAGE_COLUMNS, "image")
        if labels is None:
            labels = _column(data, naming.label_column, LABEL_COLUMNS, "label")
    elif labels is None and _is_torch_dataset(data):
        images, labels, naming = _of_torch(data, naming)
    elif labels is None:
        images, labels = _pairs(data)
    else:
        images = list(items_of(data))
    return _dataset(list(images), labels_of(labels), naming)


def images_of(
    images: Any, column: str | None = None, *, fetch_urls: bool = False
) -> tuple[Iterator[ImageSource], bool]:
    """The images that are meant, one by one, and whether a single one was given as such.

    A folder or pattern means the images in it; pairs and datasets with labels mean their images.
    With `fetch_urls`, addresses on the web mean the images that are there.

    Raises:
        UsageError: for what holds no images.
    """
    found, single = _unfetched(images, column)
    if not fetch_urls:
        return found, single
    return (fetch(str(item)) if is_address(item) else item for item in found), single


def _unfetched(images: Any, column: str | None) -> tuple[Iterator[ImageSource], bool]:
    if isinstance(images, str | Path) and (found := list_images(images)) is not None:
        return iter(found), False
    if _is(images, "datasets", "DatasetDict"):
        splits = list(cast(Mapping[str, Any], images))
        raise UsageError(f"Choose one of the splits {', '.join(splits)}: data[{splits[0]!r}].")
    if _is(images, "datasets", "Dataset"):
        return huggingface.images_in(images, column), False
    if _is_frame(images):
        return map(image_source, _column(images, column, IMAGE_COLUMNS, "image")), False
    if isinstance(images, str | Path | bytes | Image.Image | Readable) or _is_one_picture(images):
        return iter([image_source(images)]), True
    if _is_torch_dataset(images):
        return (image_source(_first(images[index])) for index in range(len(images))), False
    return (image_source(_first(item)) for item in items_of(images)), False


def image_source(item: Any) -> ImageSource:
    """One image of a collection, in a form that `open_image` takes.

    Raises:
        UsageError: for an object that is no image.
    """
    if isinstance(item, Path | bytes | Image.Image | np.ndarray):
        return item
    if isinstance(item, str):
        return item if is_address(item) else Path(item)
    if isinstance(item, bytearray | memoryview):
        return bytes(item)
    if isinstance(item, Readable):
        content = item.read()
        if not isinstance(content, bytes):
            raise UsageError("A file object must be opened in binary mode: open(path, 'rb').")
        return content
    if _is(item, "torch", "Tensor"):
        return _picture_of_tensor(item)
    if isinstance(item, Mapping) and set(item) >= {"bytes", "path"}:
        return item["bytes"] or Path(item["path"])  # an undecoded image of Hugging Face
    if callable(item):
        return cast(Callable[[], ImageSource], item)
    raise UsageError(
        f"An image must be a path, bytes, a file object, a PIL image or an array, got "
        f"{type(item).__name__}."
    )


def items_of(values: Any) -> Iterable[Any]:
    """The items of an array, a tensor, a column, a list or a generator.

    Raises:
        UsageError: for what cannot be gone through.
    """
    if _is(values, "torch", "Tensor"):
        return list(values) if values.ndim > 1 else values.tolist()
    if isinstance(values, np.ndarray):
        return list(values) if values.ndim > 1 else values.tolist()
    if isinstance(values, Mapping) or not isinstance(values, Iterable):
        raise UsageError(f"{type(values).__name__} is not understood: give {LABELLED}.")
    return values


def labels_of(labels: Any) -> list[Any]:
    """Labels as text or whole numbers.

    Raises:
        UsageError: for what is neither; DataError: for one that is missing.
    """
    found = []
    for place, label in enumerate(items_of(labels)):
        if isinstance(label, np.generic) or _is(label, "torch", "Tensor"):
            label = label.item()
        if label is None or (isinstance(label, float) and math.isnan(label)):
            raise DataError(f"Image {place} has no label.")
        if isinstance(label, float) and label.is_integer():
            label = int(label)
        if not isinstance(label, str | int):
            raise UsageError(
                f"A label is a class name or a whole number, got {label!r} for image {place}."
            )
        found.append(label)
    return found


def _dataset(images: list[Any], labels: list[Any], naming: Naming) -> Dataset:
    if len(images) != len(labels):
        raise UsageError(f"There are {len(images):,} images and {len(labels):,} labels.")
    if not images:
        raise DataError("There are no images to learn from.")
    names, label_of = _classes(labels, naming.classnames)
    examples = []
    for place, (item, label) in enumerate(zip(images, labels, strict=True)):
        if label not in label_of:
            raise DataError(
                f"Image {place} has the label {label!r}, which is none of the given class names."
            )
        image = image_source(item)
        # The number is the name: a file may be given twice.
        key = f"{image} (number {place})" if isinstance(image, Path) else f"image {place}"
        examples.append(Example(key, label_of[label], image))
    return Dataset("images", names, tuple(examples))


def _classes(
    labels: list[Any], classnames: Sequence[str] | Mapping[Any, str] | None
) -> tuple[tuple[str, ...], dict[Any, int]]:
    """Class names in order, and their index by label."""
    numbers = any(isinstance(label, int) for label in labels)
    if numbers and any(isinstance(label, str) for label in labels):
        raise UsageError("Labels must be all names or all numbers.")
    if isinstance(classnames, str):
        raise UsageError(f"Class names are a list, not the one string {classnames!r}.")
    if isinstance(classnames, Mapping):
        return tuple(classnames.values()), {key: n for n, key in enumerate(classnames)}
    if classnames is not None:
        names = tuple(classnames)
        return names, {label if numbers else name: label for label, name in enumerate(names)}
    if numbers:
        raise UsageError(
            "Labels are numbers, and a class needs a name that the model has read about: give "
            'classnames=["cat", "dog", …] in the order of the numbers, or a mapping.'
        )
    names = tuple(dict.fromkeys(labels))
    return names, {name: label for label, name in enumerate(names)}


def _pairs(data: Any) -> tuple[list[Any], list[Any]]:
    images, labels = [], []
    for place, pair in enumerate(items_of(data)):
        if isinstance(pair, str | bytes) or not isinstance(pair, Sequence) or len(pair) != 2:
            raise UsageError(
                f"Item {place} is {type(pair).__name__} and no pair of (image, label): "
                f"fit takes {LABELLED}."
            )
        images.append(pair[0])
        labels.append(pair[1])
    return images, labels


def _of_torch(data: Any, naming: Naming) -> tuple[list[Any], Any, Naming]:
    """Functions that ask a torch dataset for images, its labels, and torchvision's class names."""
    labels = getattr(data, "targets", None)
    if labels is None:
        labels = [_labelled(data, index)[1] for index in range(len(data))]
    if naming.classnames is None:
        naming = dataclasses.replace(naming, classnames=getattr(data, "classes", None))
    lock = Lock()  # nothing says that a dataset may be asked by several threads

    def opened(index: int) -> Any:
        def image() -> ImageSource:
            with lock:
                return image_source(_labelled(data, index)[0])

        return image

    return [opened(index) for index in range(len(data))], labels, naming


def _labelled(data: Any, index: int) -> tuple[Any, Any]:
    item = data[index]
    if isinstance(item, str | bytes) or not isinstance(item, Sequence) or len(item) != 2:
        raise UsageError(
            f"A torch Dataset must give (image, label), {type(data).__name__} gives "
            f"{type(item).__name__}."
        )
    return item[0], item[1]


def _first(item: Any) -> Any:
    """The image of a pair, or the image itself."""
    return item[0] if isinstance(item, tuple | list) and len(item) == 2 else item


def _column(frame: Any, named: str | None, usual: Sequence[str], what: str) -> list[Any]:
    """The values of the column that is named, or of the one with a usual name."""
    columns = [str(column) for column in frame.columns]
    if named is not None and named not in columns:
        raise unknown_name(f"{what} column", named, columns)
    found = [column for column in columns if column.lower() in usual]
    if named is None and len(found) != 1:
        raise UsageError(
            f"Which column is the {what}? There are {', '.join(columns)}: say {what}_column=…"
        )
    series = frame[named or found[0]]
    return list(series)


def _picture_of_tensor(tensor: Any) -> np.ndarray:
    """torchvision's order, (channels, height, width), as Pillow's."""
    array = tensor.detach().cpu().numpy()
    if array.dtype != np.uint8:
        raise UsageError(
            f"A tensor of {array.dtype} is an image that was prepared for some model: give the "
            "images as they were before (uint8, or PIL images), without that transform."
        )
    return array.transpose(1, 2, 0) if array.ndim == 3 and array.shape[0] in (1, 3) else array


def _is_one_picture(array: Any) -> bool:
    if _is(array, "torch", "Tensor"):
        return array.ndim in (2, 3)
    if not isinstance(array, np.ndarray):
        return False
    return array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (1, 3, 4))


def _sequence(names: Sequence[str] | Mapping[Any, str] | None) -> list[str] | None:
    if isinstance(names, Mapping):
        return [names[number] for number in sorted(names)]
    return None if names is None else list(names)


def _is_frame(data: Any) -> bool:
    if _is(data, "polars", "LazyFrame"):
        raise UsageError("A polars LazyFrame holds no rows yet: give lazy.collect().")
    return _is(data, "pandas", "DataFrame") or _is(data, "polars", "DataFrame")


def _is_torch_dataset(data: Any) -> bool:
    if _is(data, "datasets", "IterableDataset"):
        raise UsageError(
            "A streamed Hugging Face dataset has no length: give pairs, such as "
            '((row["image"], row["label"]) for row in stream.take(1000)).'
        )
    if _is(data, "torch.utils.data", "IterableDataset"):
        return False
    return _is(data, "torch.utils.data", "Dataset")


def _is(data: Any, module: str, name: str) -> bool:
    """Whether it is of a library's class; a library that is not loaded has made none."""
    if module not in sys.modules:
        return False
    return isinstance(data, getattr(sys.modules[module], name))
