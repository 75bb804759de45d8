"""The printed numbers of the paper's sixteen tables, and what is known to be wrong in them.

Source: Farina et al., Rethinking Few-Shot Adaptation of Vision-Language Models in Two Stages,
CVPR 2025, https://arxiv.org/abs/2503.11609. `results.csv` holds every cell as printed;
`correction` is what the cell must have been, judged by the rest of the table, with the `reason`.
`tables.csv` says which table is which.
"""

import csv
import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from shotfit.averages import harmonic_mean
from shotfit.errors import DataError, unknown_name

FOLDER = Path(__file__).parent
BACKBONES = {
    "openai/clip-vit-base-patch16": "ViT-B/16",
    "openai/clip-vit-base-patch32": "ViT-B/32",
    "openai/clip-vit-large-patch14": "ViT-L/14",
}
"""Hub ids and the paper's names of the same checkpoints."""
HM_TOLERANCE = 0.05
"""Cells are rounded to 0.01: a harmonic mean of rounded values may be off by 0.015."""
MEAN_TOLERANCE = 0.055
"""Cells rounded to 0.1 leave a mean uncertain by 0.05, and its own rounding."""
EXCEPTIONS: dict[tuple[str, str, str, str], str] = {}
"""(table, backbone, method, dataset) of rows that stay inconsistent, with the reason; none do."""


@dataclass(frozen=True)
class PrintedCell:
    """One printed number, as text so that its digits stay as printed."""

    table: str
    setting: str
    backbone: str
    shots: int
    method: str
    dataset: str
    metric: str
    value: str
    correction: str = ""
    reason: str = ""

    @property
    def best(self) -> float:
        """The corrected value where there is one, else the printed one, in percent."""
        return float(self.correction or self.value)

    def with_correction(self, correction: str, reason: str) -> "PrintedCell":
        """The same cell with what it must have been."""
        return dataclasses.replace(self, correction=correction, reason=reason)

    def as_row(self) -> list[str]:
        """The cell as a line of the CSV file."""
        return [str(getattr(self, column)) for column in COLUMNS]


COLUMNS = tuple(field.name for field in dataclasses.fields(PrintedCell))


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper: its label as id, its number, where it stands, what it shows."""

    id: str
    number: int
    section: str
    setting: str
    title: str
    note: str

    @property
    def cells(self) -> tuple[PrintedCell, ...]:
        """Its printed cells, in print order."""
        return tuple(cell for cell in printed_cells() if cell.table == self.id)

    @property
    def backbones(self) -> tuple[str, ...]:
        """The paper's names of its backbones, in print order."""
        return unique(cell.backbone for cell in self.cells)

    @property
    def shots(self) -> int:
        """Images per class."""
        return self.cells[0].shots

    @property
    def is_sweep(self) -> bool:
        """Whether its rows are values of M, written into the names of its methods."""
        return all("[M=" in method for method in self.methods)

    @property
    def methods(self) -> tuple[str, ...]:
        """The paper's methods, in print order."""
        return unique(cell.method for cell in self.cells)

    @property
    def datasets(self) -> tuple[str, ...]:
        """The datasets, in print order, without the average."""
        return tuple(d for d in unique(cell.dataset for cell in self.cells) if d != "average")


def unique(values: Iterable[str]) -> tuple[str, ...]:
    """The values without repetitions, in order of first appearance."""
    return tuple(dict.fromkeys(values))


@cache
def paper_tables() -> tuple[PaperTable, ...]:
    """The sixteen tables, in the paper's order."""
    with (FOLDER / "tables.csv").open(encoding="utf-8", newline="") as file:
        return tuple(
            PaperTable(**{**row, "number": int(row["number"])}) for row in csv.DictReader(file)
        )


def paper_table(name: str) -> PaperTable:
    """The table with this id or number ("b2n", "1").

    Raises:
        UsageError: for an unknown one, with the nearest known id.
    """
    for table in paper_tables():
        if name in (table.id, str(table.number)):
            return table
    raise unknown_name(
        "table", name, [*(table.id for table in paper_tables()), "suite", "shifted-suite"]
    )


@cache
def printed_cells() -> tuple[PrintedCell, ...]:
    """Every printed cell of the sixteen tables."""
    return tuple(read_cells(FOLDER / "results.csv"))


def read_cells(path: Path) -> list[PrintedCell]:
    """The cells of a CSV file with the columns of `PrintedCell` (the last two may be missing).

    Raises:
        DataError: when the file cannot be read or lacks a column.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        return [PrintedCell(**{**row, "shots": int(row["shots"])}) for row in rows]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path} holds no printed results: {error}") from error


def decimals(value: str) -> int:
    """The number of digits after the point."""
    return len(value.partition(".")[2])


def mean_of_datasets(cells: Sequence[PrintedCell], average: PrintedCell) -> float:
    """The mean of the rows that an average cell stands for."""
    values = [
        cell.best
        for cell in cells
        if (cell.table, cell.backbone, cell.method, cell.metric)
        == (average.table, average.backbone, average.method, average.metric)
        and cell.dataset != "average"
    ]
    return sum(values) / len(values)


def check(cells: Sequence[PrintedCell]) -> list[str]:
    """What contradicts itself: harmonic means and averages that do not follow from other cells.

    Harmonic means, also those of average rows, must be 2BN/(B+N) of the row; averages must be the
    mean of the datasets. Corrections are taken where there are any.
    """
    rows: dict[tuple[str, str, str, str], dict[str, PrintedCell]] = {}
    for cell in cells:
        key = (cell.table, cell.backbone, cell.method, cell.dataset)
        rows.setdefault(key, {})[cell.metric] = cell
    found = []
    for key, row in rows.items():
        if key in EXCEPTIONS:
            continue
        if "hm" in row:
            base, novel = row["base"].best, row["novel"].best
            mean = harmonic_mean(base, novel)
            if abs(mean - row["hm"].best) > HM_TOLERANCE:
                found.append(f"{' '.join(key)} hm: {row['hm'].best}, 2BN/(B+N) is {mean:.2f}")
        for metric, cell in row.items():
            if cell.dataset != "average" or metric == "hm":
                continue
            mean = mean_of_datasets(cells, cell)
            if abs(mean - cell.best) > MEAN_TOLERANCE:
                found.append(f"{' '.join(key)} {metric}: {cell.best}, the mean is {mean:.2f}")
    return found
