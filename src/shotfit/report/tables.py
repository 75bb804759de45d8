"""Records to tables: ours beside the printed numbers, or the embedded suite's own.

Protocol (`averages.harmonic_mean`, and the paper's average rows): per dataset the mean over
seeds; harmonic means are those of the averaged Base and Novel, never averages of harmonic means;
averages over datasets only where every dataset has been run. Spreads are 95 % intervals of the
mean over seeds (t distribution); for harmonic means and averages they are those of the per-seed
values. A cell that was never run is empty.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from shotfit.averages import Estimate, estimate, harmonic_mean, mean
from shotfit.paper import PaperTable, PrintedCell, decimals, unique
from shotfit.records import Record
from shotfit.report.protocol import (
    Run,
    precision_of,
    require_one_protocol,
    require_one_table,
    row_name,
    runs_of,
    with_precision_in_rows,
)

METRICS = {"base": "base", "novel": "novel", "hm": "harmonic_mean", "accuracy": "all"}
"""The paper's metrics and the keys of records."""


@dataclass(frozen=True)
class Column:
    """What a column shows: accuracy in percent, unless `unit` says otherwise.

    Units are "%", "points" (a difference, with its sign), "p" (a p-value), "count", "s", and
    "MB" of bytes.
    """

    key: str
    title: str
    unit: str = "%"


@dataclass(frozen=True)
class Cell:
    """Our estimate and the printed number; each None when there is none.

    `note` says what is missing of the runs behind it, "" when nothing is.
    """

    ours: Estimate | None = None
    printed: PrintedCell | None = None
    note: str = ""

    @property
    def difference(self) -> float | None:
        """Ours minus the printed number (corrected where it must be); None unless both exist."""
        if self.ours is None or self.printed is None:
            return None
        return self.ours.mean - self.printed.best


@dataclass(frozen=True)
class Row:
    """A method's cells, one per column.

    `selects_on` says on which images the method chooses, "" where the table has no such column.
    """

    method: str
    cells: tuple[Cell, ...]
    selects_on: str = ""


@dataclass(frozen=True)
class Panel:
    """One grid of methods, or of classes, by columns, with the digits it is shown in."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    digits: int = 2
    of: Literal["Method", "Class"] = "Method"
    """What the rows are; among classes there is no best."""

    @property
    def has_printed(self) -> bool:
        """Whether any cell has a printed number."""
        return any(cell.printed for row in self.rows for cell in row.cells)


@dataclass(frozen=True)
class Report:
    """A table of the paper or of the suite, ready to be rendered."""

    id: str
    title: str
    panels: tuple[Panel, ...]
    notes: tuple[str, ...] = ()


def paper_report(table: PaperTable, records: Sequence[Record]) -> Report:
    """A table of the paper, each cell with ours where it was run under the printed protocol.

    Rows of other protocols (another budget, M, option) follow the printed rows under a name that
    says what differs; records of other settings, backbones or shots are not part of the table.

    Raises:
        UsageError: when records mix what a table must share, such as two dataset sources.
        DataError: as `runs_of`.
    """
    runs = [run for run in runs_of(records) if _belongs(run, table)]
    panels, shown = [], []
    for backbone in table.backbones:
        mine = with_precision_in_rows([r for r in runs if r.fact("backbone") == backbone])
        require_one_table(mine)
        shown += mine
        make = _base_to_novel_panels if table.setting == "base_to_novel" else _all_to_all_panels
        panels += make(table, backbone, mine)
    return Report(
        table.id,
        f"Table {table.number}: {table.title}",
        tuple(panels),
        _notes(table, shown, _precisions(runs)),
    )


SPREAD = "± is the half-width of the 95 % interval of the mean over seeds (t distribution)."


def seed_means(runs: Sequence[Run], metric: str, datasets: Sequence[str]) -> Estimate | None:
    """The mean over datasets of a metric's means over seeds, with the interval over seeds.

    None unless every dataset was run and measured it. For "harmonic_mean", that of the averages.

    Raises:
        UsageError, DataError: when the runs are not repetitions of one protocol.
    """
    require_one_protocol(runs)
    if metric == "harmonic_mean":
        base = seed_means(runs, "base", datasets)
        novel = seed_means(runs, "novel", datasets)
        if base is None or novel is None:
            return None
        spread = _over_seeds(
            runs, datasets, lambda values: harmonic_mean(*values), ("base", "novel")
        )
        return Estimate(harmonic_mean(base.mean, novel.mean), spread, min(base.runs, novel.runs))
    means = []
    counts = []
    for dataset in datasets:
        values = [r.metrics[metric] for r in runs if r.dataset == dataset and metric in r.metrics]
        if not values:
            return None
        means.append(mean(values))
        counts.append(len(values))
    spread = _over_seeds(runs, datasets, lambda values: values[0], (metric,))
    return Estimate(mean(means), spread, min(counts))


def _over_seeds(
    runs: Sequence[Run],
    datasets: Sequence[str],
    combine: Callable[[list[float]], float],
    metrics: Sequence[str],
) -> float | None:
    """Half-width over the seeds that have all datasets, of `combine` of the averages."""
    found = {(run.dataset, run.seed): run.metrics for run in runs}
    values = []
    for seed in sorted({run.seed for run in runs}):
        rows = [found.get((dataset, seed), {}) for dataset in datasets]
        if all(metric in row for row in rows for metric in metrics):
            averages = [mean([row[metric] for row in rows]) for metric in metrics]
            values.append(combine(averages))
    return estimate(values).half_width if values else None


def _belongs(run: Run, table: PaperTable) -> bool:
    return (
        run.fact("setting") == table.setting
        and run.fact("shots") == table.shots
        and run.fact("backbone") in table.backbones
        and run.dataset in table.datasets
    )


def paper_row(run: Run) -> str:
    """The paper's name of a run's row: its zero-shot rows use dataset-specific prompts."""
    variant = dict(run.variant)
    if run.method == "zero_shot" and variant.pop("template", None) != "specific":
        variant = {"template": "generic", **variant}
    return row_name(run.method, variant)


def _paper_rows(table: PaperTable, runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs by row: the printed rows first, in print order, then what else was run."""
    rows: dict[str, list[Run]] = {method: [] for method in table.methods}
    if table.is_sweep:
        for run in runs:
            name = row_name(run.method, {"M": run.iters_per_shot, **dict(run.variant)})
            if run.method in {method.partition("[")[0] for method in rows}:
                rows.setdefault(name, []).append(run)
        return rows
    for run in runs:
        rows.setdefault(paper_row(run), []).append(run)
    return rows


def _base_to_novel_panels(table: PaperTable, backbone: str, runs: Sequence[Run]) -> list[Panel]:
    columns = (Column("base", "Base"), Column("novel", "Novel"), Column("hm", "HM"))
    rows = _paper_rows(table, runs)
    scopes: dict[str, tuple[str, ...]] = {d: (d,) for d in table.datasets}
    if any(cell.dataset == "average" for cell in table.cells):
        scopes = {"average": table.datasets, **scopes}
    panels = []
    for scope, datasets in scopes.items():
        lines = [
            _row(table, backbone, name, mine, [(c.key, scope, datasets) for c in columns])
            for name, mine in rows.items()
        ]
        title = "Average over datasets" if scope == "average" else scope
        panels.append(Panel(title, columns, _filled(lines)))
    return panels


def _all_to_all_panels(table: PaperTable, backbone: str, runs: Sequence[Run]) -> list[Panel]:
    columns = (*(Column(d, d) for d in table.datasets), Column("average", "Average"))
    asked: list[tuple[str, str, tuple[str, ...]]]
    asked = [("accuracy", d, (d,)) for d in table.datasets]
    asked.append(("accuracy", "average", table.datasets))
    lines = [
        _row(table, backbone, name, mine, asked) for name, mine in _paper_rows(table, runs).items()
    ]
    digits = max(decimals(cell.value) for cell in table.cells)
    return [Panel(backbone, columns, _filled(lines), digits)]


def _filled(rows: Sequence[Row]) -> tuple[Row, ...]:
    """The rows that hold anything."""
    return tuple(row for row in rows if any(cell.ours or cell.printed for cell in row.cells))


def _row(
    table: PaperTable,
    backbone: str,
    name: str,
    runs: Sequence[Run],
    asked: Sequence[tuple[str, str, tuple[str, ...]]],
) -> Row:
    printed = {
        (cell.metric, cell.dataset): cell
        for cell in table.cells
        if cell.method == name and cell.backbone == backbone
    }
    cells = []
    for metric, scope, datasets in asked:
        mine = [run for run in runs if run.dataset in datasets]
        ours = seed_means(mine, METRICS[metric], datasets) if mine else None
        cells.append(Cell(ours, printed.get((metric, scope))))
    return Row(name, tuple(cells))


def _precisions(runs: Sequence[Run]) -> list[str]:
    """A sentence on the arithmetic of ours, with the methods of each; none without training."""
    methods: dict[str, set[str]] = {}
    for run in runs:
        if run.trained:
            methods.setdefault(precision_of(run), set()).add(run.method)
    told = [f"{name} ({', '.join(sorted(found))})" for name, found in sorted(methods.items())]
    if len(methods) == 1:
        told = list(methods)
    return [f"Ours trained in {' and '.join(told)}; printed: fp16."] if told else []


def _notes(table: PaperTable, runs: Sequence[Run], precisions: Sequence[str]) -> tuple[str, ...]:
    notes = [f"Section {table.section} of the paper.", *([table.note] if table.note else [])]
    if runs:
        seeds = ", ".join(str(seed) for seed in sorted({run.seed for run in runs}))
        notes += [
            f"Ours: seeds {seeds}. {SPREAD}",
            "Δ is ours minus the printed value, corrected.",
        ]
        notes += precisions
        extra = sorted({paper_row(r) for r in runs} - set(table.methods))
        extra = [name for name in extra if "[" in name]
        if extra and not table.is_sweep:
            notes.append(
                "Not the printed protocol, in rows of their own: " + ", ".join(extra) + "."
            )
    else:
        notes.append(
            f"No record of this table's protocol; `shotfit reproduce {table.id}` plans the runs."
        )
    marks = unique(
        f"{cell.value} of {cell.method} ({cell.dataset}, {cell.backbone}) must be "
        f"{cell.correction}: {cell.reason}."
        for cell in table.cells
        if cell.correction
    )
    return (*notes, *(f"† {mark}" for mark in marks))
