"""The hand-written templates that published methods use on the eleven benchmark datasets.

`templates.csv` has one row a dataset. KgCoOp has the templates of its frozen targets, which CLIPFit
uses too; ProGrad's are reversed, with the class name last, so that all before it can start a
learned context; TCP has one for what its network reads and one for what follows the learned words;
PLOT++ has four phrases (the tables in the official code of each).
"""

import csv
import functools
from dataclasses import dataclass
from pathlib import Path

from shotfit.data.benchmark.facts import benchmark_key, benchmarks

_TABLE = Path(__file__).with_suffix(".csv")
_PHRASES = ("plot1", "plot2", "plot3", "plot4")


@dataclass(frozen=True)
class DatasetTemplates:
    """The templates of the dataset `key`, of those methods that have their own table of them."""

    key: str
    kgcoop: str
    prograd: str
    tcp_teacher: str
    tcp: str
    plot: tuple[str, ...]


def dataset_templates(dataset: str) -> DatasetTemplates | None:
    """The published templates of a dataset, by its key or CoOp's name for it; None for others."""
    return _table().get(benchmark_key(dataset))


def specific_templates(dataset: str) -> tuple[str, ...]:
    """The template of CoOp's zero-shot baseline for a benchmark dataset; none for other data."""
    key = benchmark_key(dataset)
    return (benchmarks()[key].template,) if key else ()


@functools.cache
def _table() -> dict[str, DatasetTemplates]:
    with _TABLE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    table = {}
    for row in rows:
        table[row["key"]] = DatasetTemplates(
            row["key"],
            row["kgcoop"],
            row["prograd"],
            row["tcp_teacher"],
            row["tcp"],
            tuple(row[phrase] for phrase in _PHRASES),
        )
    return table
