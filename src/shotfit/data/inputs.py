"""What a user may give as data: a name, a place, or what Python has at hand."""

import difflib
from pathlib import Path
from typing import Any

from shotfit.data.benchmark.facts import benchmarks, find_benchmark
from shotfit.data.dataset import Dataset
from shotfit.data.python_data import Naming, labelled_images
from shotfit.data.sources import load_dataset
from shotfit.data.sources.demo import is_task, list_tasks
from shotfit.data.sources.folder import has_folders
from shotfit.data.sources.imagenet_variants import list_variants
from shotfit.data.template import Words
from shotfit.errors import DataError, UsageError

SourceOptions = tuple[str, dict[str, Any]]
"""A source and what its `load` takes."""


def known_names() -> list[str]:
    """The embedded tasks and the benchmarks, which are meant by their names alone."""
    return [*list_tasks(), *benchmarks()]


def locate_name(name: str) -> SourceOptions | None:
    """The source of an embedded task, of a benchmark by any of its names, or of a variant of
    ImageNet; None for others."""
    if is_task(name):
        return "demo", {"name": name}
    if name in list_variants():
        return "imagenet_variants", {"name": name}
    try:
        return "coop", {"name": find_benchmark(name).key}
    except UsageError:
        return None


def locate(data: str) -> SourceOptions:
    """The source and its options that a user means by one word.

    A folder, a manifest file (.csv, .jsonl), or the name of an embedded task or of a benchmark; the
    name, too, where a folder of that name holds no folders of images: a fit of the task, perhaps.

    Raises:
        DataError: when it is none of these.
    """
    path = Path(data).expanduser()
    found = locate_name(data)
    if path.is_dir() and (found is None or has_folders(path)):
        return "folder", {"path": str(path)}
    if path.suffix.lower() in (".csv", ".jsonl"):
        return "csv", {"path": str(path)}
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
    if isinstance(dataset.template, Words):
        options = {**options, "words": dataset.template.plain()}
    return source, {**options, "reduced": True} if dataset.reduced else options


def as_dataset(
    data: Any, labels: Any = None, *, naming: Naming | None = None, root: str | None = None
) -> Dataset:
    """What `fit` and `evaluate` accept, as a dataset: `python_data.LABELLED` says what that is.

    Raises:
        DataError: when it cannot be found or read.
        UsageError: for what is none of these.
    """
    if isinstance(data, str | Path) and labels is None:
        source, options = locate(str(data))
        data = load_dataset(source, root=root, **options)
    if isinstance(data, Dataset):
        if labels is not None or naming not in (None, Naming()):
            raise UsageError("A folder, a manifest or a task has labels and names of its own.")
        return data
    return labelled_images(data, labels, naming)
