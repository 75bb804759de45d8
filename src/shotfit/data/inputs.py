"""What a user may give as data: a name, a place, or the images themselves."""

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shotfit.data.benchmark.facts import benchmarks, find_benchmark
from shotfit.data.dataset import Dataset, Example
from shotfit.data.image_files import list_images
from shotfit.data.images import ImageSource, open_image
from shotfit.data.sources import load_dataset
from shotfit.data.sources.demo import is_task, list_tasks
from shotfit.errors import DataError, UsageError

Images = ImageSource | Sequence[ImageSource]
"""What may be predicted: an image, several, or the name of a file, folder or pattern."""

SourceOptions = tuple[str, dict[str, Any]]
"""A source and what its `load` takes."""


def single_images(images: Images) -> tuple[list[ImageSource], bool]:
    """The single images that are meant, and whether one image was given as such."""
    if isinstance(images, str | Path):
        found = list_images(images)
        return (list(found), False) if found is not None else ([images], True)
    if isinstance(images, Sequence) and not isinstance(images, bytes):
        return list(images), False
    return [images], True


def known_names() -> list[str]:
    """The embedded tasks and the benchmarks, which are meant by their names alone."""
    return [*list_tasks(), *benchmarks()]


def locate_name(name: str) -> SourceOptions | None:
    """The source of an embedded task, or of a benchmark by any of its names; None for others."""
    if is_task(name):
        return "demo", {"name": name}
    try:
        return "coop", {"name": find_benchmark(name).key}
    except UsageError:
        return None


def locate(data: str) -> SourceOptions:
    """The source and its options that a user means by one word.

    A folder, a manifest file (.csv, .jsonl), or the name of an embedded task or of a benchmark.

    Raises:
        DataError: when it is none of these.
    """
    path = Path(data).expanduser()
    if path.is_dir():
        return "folder", {"path": str(path)}
    if path.suffix.lower() in (".csv", ".jsonl"):
        return "csv", {"path": str(path)}
    found = locate_name(data)
    if found is not None:
        return found
    known = known_names()
    near = difflib.get_close_matches(data, known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise DataError(
        f"{data!r} is no folder, no manifest (.csv, .jsonl), no embedded task and no benchmark."
        f"{hint} Known: {', '.join(known)}."
    )


def place_of(data: Any, dataset: Dataset) -> SourceOptions:
    """The source and its options of what `as_dataset` made this of; of what was given as it is,
    no source and the dataset's name."""
    given = isinstance(data, str | Path)
    source, options = locate(str(data)) if given else ("", {"name": dataset.name})
    return source, {**options, "reduced": True} if dataset.reduced else options


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
