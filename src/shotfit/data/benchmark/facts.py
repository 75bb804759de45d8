"""The eleven benchmark datasets of the paper, one row of `facts.csv` each.

Folders, files and templates are those of CoOp (Zhou et al., IJCV 2022; its DATASETS.md and
trainers/zsclip.py), which every method of the comparison uses. A new dataset of the same layout
is a new row.
"""

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from shotfit.errors import unknown_name

_TABLE = Path(__file__).with_suffix(".csv")

Provenance = Literal["counted", "derived", "unverified"]


@dataclass(frozen=True)
class LayoutEntry:
    """A file or folder (with a final slash) in a dataset's folder, and what it is."""

    path: str
    note: str
    required: bool
    """False for what only `make_split` reads."""


@dataclass(frozen=True)
class Benchmark:
    """One benchmark dataset: where its files lie under the data root and what they should hold."""

    key: str
    coop_name: str
    """The name of its class in CoOp's code."""
    folder: str
    """Its folder under the data root."""
    images: str
    """The folder that image paths are relative to, within `folder`; empty for `folder` itself."""
    split_file: str
    """The published split within `folder`; empty where the official lists or folders are used."""
    template: str
    """The dataset-specific prompt of CoOp's zero-shot baseline."""
    classes: int
    sizes: Mapping[str, int]
    """Images in train, val and test."""
    counts: Provenance
    """`counted` in the published split, `derived` from its rule, or `unverified` (as published)."""
    homepage: str
    source: str
    """What to download, in words."""
    split_source: str
    """Where the published split file is."""
    layout: tuple[LayoutEntry, ...]
    aliases: tuple[str, ...]

    def directory(self, root: Path) -> Path:
        """The dataset's folder under the data root."""
        return root / self.folder

    def image_directory(self, root: Path) -> Path:
        """The folder that `Example.key` is relative to."""
        return root / self.folder / self.images


@cache
def benchmarks() -> Mapping[str, Benchmark]:
    """The rows of `facts.csv` by key, in the order of the paper's tables."""
    table = _TABLE.read_text(encoding="utf-8")
    return {row["key"]: _benchmark(row) for row in csv.DictReader(table.splitlines())}


def find_benchmark(name: str) -> Benchmark:
    """The benchmark of that name, also by CoOp's name, its folder or an alias, in any case.

    Raises:
        UsageError: for an unknown name, with the nearest known one.
    """
    wanted = _plain(name)
    for row in benchmarks().values():
        names = (row.key, row.coop_name, row.folder, *row.aliases)
        if wanted in map(_plain, names):
            return row
    raise unknown_name("dataset", name, benchmarks())


def benchmark_key(dataset: str) -> str:
    """The key of a benchmark dataset, by its key or CoOp's name for it; "" for other data.

    Aliases do not count: a folder of photographs may well be called "flowers".
    """
    wanted = _plain(dataset)
    for row in benchmarks().values():
        if wanted in (_plain(row.key), _plain(row.coop_name)):
            return row.key
    return ""


def _plain(name: str) -> str:
    """A name without case and punctuation: "Oxford-Pets" and "oxford_pets" are one dataset."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _benchmark(row: dict[str, str]) -> Benchmark:
    return Benchmark(
        key=row["key"],
        coop_name=row["coop_name"],
        folder=row["folder"],
        images=row["images"],
        split_file=row["split_file"],
        template=row["template"],
        classes=int(row["classes"]),
        sizes={split: int(row[split]) for split in ("train", "val", "test")},
        counts=row["counts"],  # type: ignore[arg-type]
        homepage=row["homepage"],
        source=row["source"],
        split_source=row["split_source"],
        layout=tuple(_layout_entry(entry) for entry in row["layout"].split("|")),
        aliases=tuple(alias for alias in row["aliases"].split(";") if alias),
    )


def _layout_entry(text: str) -> LayoutEntry:
    # "path = note" for what loading needs, "path ? note" for what only `make_split` reads.
    path, mark, note = text.split(" ", 2)
    return LayoutEntry(path, note, required=mark == "=")
