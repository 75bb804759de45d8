"""One fact of the runs across the columns: accuracy over shots, backbones side by side, over M."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shotfit.errors import DataError, unknown_name
from shotfit.paper import unique
from shotfit.report.labels import metric_title
from shotfit.report.protocol import AS_PUBLISHED, DEFAULT_ITERS_PER_SHOT, Run
from shotfit.report.suite import (
    MISSING_NOTE,
    budget_of,
    describe_protocol,
    metrics_of,
    protocol_groups,
    rows_of,
    run_cell,
)
from shotfit.report.tables import SPREAD, Cell, Column, Panel, Report, Row

PUBLISHED = {
    **AS_PUBLISHED,
    "M": DEFAULT_ITERS_PER_SHOT,
    "imbalance": 1.0,
    "wrong_labels": 0.0,
}
"""What a run has that does not state the fact; of any other fact it has "default"."""


@dataclass(frozen=True)
class Across:
    """Runs of one protocol but for one fact, by row and by what they have of it."""

    fact: str
    metric: str
    heading: str
    values: tuple[Any, ...]
    datasets: tuple[str, ...]
    seeds: frozenset[int]
    rows: dict[str, dict[Any, list[Run]]]

    def cell(self, row: str, value: Any) -> Cell:
        """The average over the datasets, with what is missing of them and of the seeds."""
        return run_cell(self.rows[row].get(value, ()), self.metric, self.datasets, self.seeds)

    def panel(self) -> Panel:
        """The rows by the values of the fact."""
        columns = tuple(Column(str(value), told(value)) for value in self.values)
        rows = [Row(name, tuple(self.cell(name, v) for v in self.values)) for name in self.rows]
        title = f"{metric_title(self.metric)} over {self.fact} · {self.heading}"
        return Panel(title, columns, tuple(rows))


def told(value: Any) -> str:
    """A value of a fact as a column or an axis has it."""
    return "all images" if value is None else str(value)


def across_report(runs: Sequence[Run], fact: str, metric: str | None = None) -> Report:
    """The tables of `across`.

    Raises:
        UsageError, DataError: as `across`.
    """
    panels = tuple(found.panel() for found in across(runs, fact, metric))
    missing = any(cell.note for panel in panels for row in panel.rows for cell in row.cells)
    notes = (SPREAD, *([MISSING_NOTE] if missing else []))
    return Report(f"over-{fact}", f"Runs over {fact}", panels, notes)


def across(runs: Sequence[Run], fact: str, metric: str | None = None) -> list[Across]:
    """Finished runs by the values of a fact: `shots`, `backbone`, `M`, `precision`, an option.

    One for every protocol that the runs share otherwise. `metric` is a key of records: by default
    the harmonic mean, or accuracy in all-to-all. Averages are over the datasets that any run of the
    protocol has. What trains nothing stands at every value of a budget.

    Raises:
        UsageError: for a fact that no run states.
        DataError: without runs, and as `protocol_groups`.
    """
    if not runs:
        raise DataError("There is no finished record; `shotfit bench` makes them.")
    known = {name for run in runs for name, _ in (*run.table, *run.variant)} | set(PUBLISHED)
    if fact not in known:
        raise unknown_name("fact of these records", fact, sorted(known))
    values = sorted({_value(run, fact) for run in runs if _has(run, fact)}, key=_order)
    groups: dict[Any, dict[Any, list[Run]]] = {}
    for value in values:
        mine = [run for run in runs if not _has(run, fact) or _value(run, fact) == value]
        for group in protocol_groups(mine):
            budget = next((budget_of(run) for run in group if run.trained), "published")
            others = [_without(run, fact) for run in group]
            groups.setdefault((others[0].table, budget), {})[value] = others
    return [_across(fact, metric, groups[key]) for key in sorted(groups, key=str)]


def _across(fact: str, metric: str | None, found: dict[Any, list[Run]]) -> Across:
    runs = [run for group in found.values() for run in group]
    metrics = metrics_of(runs)
    rows: dict[str, dict[Any, list[Run]]] = {}
    # All at once, so that a row has one name at every value.
    names = {run: name for name, mine in rows_of(runs).items() for run in map(id, mine)}
    for name in unique(names.values()):
        rows[name] = {
            value: [run for run in group if names[id(run)] == name]
            for value, group in found.items()
        }
    return Across(
        fact=fact,
        metric=metric or ("harmonic_mean" if "harmonic_mean" in metrics else metrics[0]),
        heading=describe_protocol(runs),
        values=tuple(found),
        datasets=unique(sorted(run.dataset for run in runs)),
        seeds=frozenset(run.seed for run in runs),
        rows=rows,
    )


def _has(run: Run, fact: str) -> bool:
    """Whether a fact means anything to a run."""
    if fact == "M":
        return run.iters_per_shot is not None
    return fact != "budget" or run.trained


def _value(run: Run, fact: str) -> Any:
    facts = {**dict(run.table), **dict(run.variant)}
    if fact == "M":
        return run.iters_per_shot
    return facts.get(fact, PUBLISHED.get(fact, "default"))


def _order(value: Any) -> tuple[bool, bool, float, str]:
    """Numbers by size, then words, and every image after any number of shots."""
    number = isinstance(value, int | float)
    return value is None, not number, value if number else 0.0, str(value)


def _without(run: Run, fact: str) -> Run:
    table, variant = (
        tuple((name, value) for name, value in facts if name != fact)
        for facts in (run.table, run.variant)
    )
    per_shot = None if fact == "M" else run.iters_per_shot
    return dataclasses.replace(run, table=table, variant=variant, iters_per_shot=per_shot)
