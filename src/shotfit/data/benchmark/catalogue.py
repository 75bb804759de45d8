"""What of the benchmark datasets is there: for `shotfit datasets` and `shotfit check`.

Plain functions that look at the disk and return values; nothing is downloaded or changed.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from shotfit.data.benchmark.facts import Benchmark, benchmarks, find_benchmark
from shotfit.data.benchmark.reading import load
from shotfit.data.checks import missing_files, unreadable_files
from shotfit.data.dataset import Dataset
from shotfit.errors import DataError

State = Literal["ready", "incomplete", "absent"]


@dataclass(frozen=True)
class DatasetStatus:
    """Which files and folders of one benchmark dataset are under the data root.

    `ready` says that all that loading needs is there, not that every image is: see `check`.
    """

    benchmark: Benchmark
    directory: Path
    state: State
    missing: tuple[str, ...]
    """Paths of `benchmark.layout` that loading needs and that are not there."""


@dataclass(frozen=True)
class DatasetCheck:
    """What a run on a dataset would meet."""

    name: str
    error: str = ""
    """Why it cannot be loaded; empty when it can."""
    missing: tuple[Path, ...] = ()
    """Listed images that are not on the disk."""
    unreadable: tuple[Path, ...] = ()
    """Images on the disk that cannot be decoded, when those were looked for."""
    notes: tuple[str, ...] = ()
    """Numbers that differ from the published ones."""

    @property
    def ok(self) -> bool:
        """Whether a run can start. Other numbers than the published ones do not prevent it."""
        return not (self.error or self.missing or self.unreadable)


def status(root: Path | str, name: str) -> DatasetStatus:
    """Which parts of the benchmark dataset `name` are under the data root `root`.

    Raises:
        UsageError: for an unknown dataset.
    """
    benchmark = find_benchmark(name)
    directory = benchmark.directory(Path(root).expanduser())
    missing = tuple(
        entry.path
        for entry in benchmark.layout
        if entry.required and not _is_there(directory, entry.path)
    )
    state: State = "incomplete" if missing else "ready"
    if not directory.is_dir():
        state = "absent"
    return DatasetStatus(benchmark, directory, state, missing)


def all_statuses(root: Path | str) -> tuple[DatasetStatus, ...]:
    """The status of every benchmark dataset, in the order of the paper's tables."""
    return tuple(status(root, name) for name in benchmarks())


def layout_tree(benchmark: Benchmark, present: DatasetStatus | None = None) -> str:
    """How to lay the dataset out under the data root, as a tree; with a status, what is missing."""
    lines = [f"{benchmark.folder}/"]
    width = max(len(entry.path) for entry in benchmark.layout)
    for position, entry in enumerate(benchmark.layout, start=1):
        branch = "└── " if position == len(benchmark.layout) else "├── "
        mark = "  (missing)" if present and entry.path in present.missing else ""
        lines.append(f"{branch}{entry.path:<{width}}  {entry.note}{mark}")
    return "\n".join(lines)


def how_to_get(benchmark: Benchmark) -> str:
    """Where the images and the split file come from, in words."""
    lines = [f"Images: {benchmark.source} {benchmark.homepage}"]
    if benchmark.split_source:
        lines.append(f"Split: {benchmark.split_file} from {benchmark.split_source}")
    return "\n".join(lines)


def check(root: Path | str, name: str, *, decode: bool = False) -> DatasetCheck:
    """Whether a run on the benchmark dataset `name` would find its files; before, not during it.

    With `decode`, every image is opened too.

    Raises:
        UsageError: for an unknown dataset.
    """
    benchmark = find_benchmark(name)
    try:
        dataset = load(root, name)
    except DataError as error:
        return DatasetCheck(benchmark.key, error=str(error))
    return DatasetCheck(
        name=benchmark.key,
        missing=tuple(missing_files(dataset)),
        unreadable=tuple(unreadable_files(dataset)) if decode else (),
        notes=_count_notes(benchmark, dataset),
    )


def _count_notes(benchmark: Benchmark, dataset: Dataset) -> tuple[str, ...]:
    counted = {"classes": len(dataset.classnames)}
    published = {"classes": benchmark.classes, **benchmark.sizes}
    for split in benchmark.sizes:
        counted[split] = len(getattr(dataset, split))
    return tuple(
        f"{name}: {counted[name]:,} instead of {published[name]:,} ({benchmark.counts})"
        for name in counted
        if counted[name] != published[name]
    )


def _is_there(directory: Path, path: str) -> bool:
    full = directory / path
    return full.is_dir() if path.endswith("/") else full.is_file()
