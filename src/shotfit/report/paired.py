"""Methods in pairs: how much one is above another, and whether that is more than chance.

Runs are paired by dataset and seed, and datasets are the independent units: what is tested is
whether the difference would be there on another dataset of this kind. With a single dataset the
units are its seeds, and the claim is about that dataset only. As in every table, a harmonic mean is
that of averaged base and novel accuracies, never an average of harmonic means.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shotfit.averages import (
    Estimate,
    estimate,
    harmonic_mean,
    holm,
    mean,
    t_probability,
    t_quantile,
)
from shotfit.errors import DataError, UsageError, unknown_name
from shotfit.paper import unique
from shotfit.report.labels import method_label, metric_title
from shotfit.report.protocol import Run, spelled_method
from shotfit.report.suite import describe_protocol, metrics_of, protocol_groups, rows_of
from shotfit.report.tables import Cell, Column, Panel, Report, Row

Measured = Mapping[str, Sequence[Mapping[str, Any]]]
"""By dataset, the metrics of its runs; those of two methods are of the same seeds, in order."""

LEVEL = 0.05


def average(measured: Measured, metric: str) -> float:
    """The mean over datasets of the means over their runs; for "harmonic_mean", that of these."""
    if metric == "harmonic_mean":
        return harmonic_mean(average(measured, "base"), average(measured, "novel"))
    return mean([mean([run[metric] for run in runs]) for runs in measured.values()])


def each_difference(ours: Measured, theirs: Measured, metric: str) -> list[float]:
    """Our averages less theirs, one for every dataset, or for every run of a single one."""
    if len(ours) > 1:
        units = [({name: ours[name]}, {name: theirs[name]}) for name in ours]
    else:
        (name,) = ours
        pairs = zip(ours[name], theirs[name], strict=False)
        units = [({name: [one]}, {name: [other]}) for one, other in pairs]
    return [average(one, metric) - average(other, metric) for one, other in units]


def difference(ours: Measured, theirs: Measured, metric: str) -> Estimate:
    """Our average less theirs, with its 95 % interval over datasets, or over the runs of one."""
    spread = estimate(each_difference(ours, theirs, metric))
    return Estimate(average(ours, metric) - average(theirs, metric), spread.half_width, spread.runs)


def signed(found: Estimate, digits: int = 2) -> str:
    """A difference as tables write it: `+1.20 ± 0.45`, without the interval where there is none."""
    spread = "" if found.half_width is None else f" ± {found.half_width:.{digits}f}"
    return f"{found.mean:+.{digits}f}{spread}"


def probability(differences: Sequence[float]) -> float:
    """The two-sided p-value of differences (paired t test); 1 from a single one."""
    found = estimate(differences)
    if found.half_width is None or found.mean == 0:
        return 1.0
    if found.half_width == 0:
        return 0.0
    freedom = found.runs - 1
    return t_probability(found.mean * t_quantile(freedom) / found.half_width, freedom)


@dataclass(frozen=True)
class Comparison:
    """One row against another on one metric; `corrected` is the p-value after Holm."""

    row: str
    reference: str
    metric: str
    found: Estimate
    """The difference of the averages, as tables have them."""
    mean_of_units: float
    """The mean over datasets of their differences, which is tested; for a harmonic mean it is not
    quite the difference of the averages."""
    corrected: float

    @property
    def verdict(self) -> int:
        """1 above, -1 below, 0 where neither can be claimed: p is not below 0.05, or the average
        of the differences and the difference of the averages point apart."""
        sure = self.corrected < LEVEL and self.mean_of_units * self.found.mean > 0
        return (1 if self.found.mean > 0 else -1) if sure else 0


def compare_report(runs: Sequence[Run], rows: Sequence[str]) -> Report:
    """Each of the other rows less the first, per protocol that has the first.

    `rows` are named as tables name them (`2sfs_lora[M=100]`) or as `shotfit bench` takes methods
    (`2sfs:lora`). p-values are corrected over all that a protocol's table tests (Holm).

    Raises:
        UsageError: for fewer than two rows, or one that no run is of.
        DataError: when two rows have no dataset and seed in common, and as `protocol_groups`.
    """
    if len(rows) < 2:
        raise UsageError("Name at least two methods; the others are compared with the first.")
    panels, notes = [], []
    found: set[str] = set()
    groups = protocol_groups(runs)
    for group in groups:
        there = rows_of(group)
        found |= set(there)
        names = [name for name in map(row_name, rows) if name in there]
        if len(names) < 2 or names[0] != row_name(rows[0]):
            continue
        comparisons = _comparisons(there, names, metrics_of(group))
        heading = describe_protocol(group)
        panels += [_overall(comparisons, heading), _by_dataset(there, names, heading)]
        start = f"{heading}: " if len(groups) > 1 else ""
        notes += [start + sentence for sentence in _verdicts(comparisons)]
    for word, name in zip(rows, map(row_name, rows), strict=True):
        if name not in found:
            raise unknown_name("method among these records", word, sorted(found))
    if not panels:
        raise DataError(f"No protocol has both {rows[0]} and another of those named.")
    return Report(
        "compare",
        f"{method_label(row_name(rows[0]))} against others",
        tuple(panels),
        (
            *notes,
            "A positive number: the row is above the first method named. Runs are paired by "
            "dataset and seed; ± is half of the 95 % interval over datasets (over seeds, of one).",
            "p: paired t test, two-sided, corrected for all differences of a table (Holm 1979).",
        ),
    )


def compared(runs: Sequence[Run], rows: Sequence[str]) -> list[Comparison]:
    """The comparisons of `compare_report`, of runs that are all of one protocol.

    Raises:
        UsageError: for runs of several protocols.
        DataError: when two rows have no dataset and seed in common, and as `protocol_groups`.
    """
    groups = protocol_groups(runs)
    if len(groups) != 1:
        raise UsageError(f"These are runs of {len(groups)} protocols; compare those of one.")
    return _comparisons(rows_of(groups[0]), list(map(row_name, rows)), metrics_of(groups[0]))


def row_name(word: str) -> str:
    """A row as tables name it, from the words of `shotfit bench`."""
    method, bracket, variant = word.partition("[")
    return spelled_method(method) + bracket + variant


def _measured(ours: Sequence[Run], theirs: Sequence[Run]) -> tuple[Measured, Measured]:
    """The metrics of the datasets and seeds that both have, in one order."""
    found = [{(run.dataset, run.seed): run.metrics for run in runs} for runs in (ours, theirs)]
    pairs = sorted(found[0].keys() & found[1].keys())
    if not pairs:
        raise DataError(f"{ours[0].row} and {theirs[0].row} have no dataset and seed in common.")
    one, other = (
        {name: [side[pair] for pair in pairs if pair[0] == name] for name, _ in pairs}
        for side in found
    )
    return one, other


def _has(measured: Measured, metric: str) -> bool:
    needed = ("base", "novel") if metric == "harmonic_mean" else (metric,)
    return all(key in run for runs in measured.values() for run in runs for key in needed)


def _comparisons(
    rows: Mapping[str, Sequence[Run]], names: Sequence[str], metrics: Sequence[str]
) -> list[Comparison]:
    """Every other row less the first, on every metric that both have."""
    found: list[Comparison] = []
    for name in names[1:]:
        ours, theirs = _measured(rows[name], rows[names[0]])
        for metric in metrics:
            if _has(ours, metric) and _has(theirs, metric):
                each = each_difference(ours, theirs, metric)
                of_averages = difference(ours, theirs, metric)
                found.append(
                    Comparison(name, names[0], metric, of_averages, mean(each), probability(each))
                )
    corrected = holm([comparison.corrected for comparison in found])
    return [
        dataclasses.replace(comparison, corrected=p)
        for comparison, p in zip(found, corrected, strict=True)
    ]


def _overall(comparisons: Sequence[Comparison], heading: str) -> Panel:
    metrics = unique(comparison.metric for comparison in comparisons)
    columns = [
        column
        for metric in metrics
        for column in (
            Column(metric, metric_title(metric), "points"),
            Column(f"{metric}_p", "p", "p"),
        )
    ]
    rows = []
    for name in unique(comparison.row for comparison in comparisons):
        mine = {c.metric: c for c in comparisons if c.row == name}
        cells = []
        for metric in metrics:
            one = mine.get(metric)
            cells.append(Cell(one.found if one else None))
            cells.append(Cell(Estimate(one.corrected, None, one.found.runs) if one else None))
        rows.append(Row(name, tuple(cells)))
    title = f"Less {method_label(comparisons[0].reference)}, average · {heading}"
    return Panel(title, tuple(columns), tuple(rows))


def _by_dataset(rows: Mapping[str, Sequence[Run]], names: Sequence[str], heading: str) -> Panel:
    """The main metric's differences, each dataset by itself with its interval over seeds."""
    lines = []
    datasets = unique(sorted(run.dataset for run in rows[names[0]]))
    metrics = metrics_of(rows[names[0]])
    pairs = {name: _measured(rows[name], rows[names[0]]) for name in names[1:]}
    main = next(
        metric
        for metric in ("harmonic_mean", *metrics)
        if metric in metrics and all(_has(side, metric) for both in pairs.values() for side in both)
    )
    for name, (ours, theirs) in pairs.items():
        cells = []
        for dataset in datasets:
            one = {dataset: ours.get(dataset, ())}, {dataset: theirs.get(dataset, ())}
            cells.append(Cell(difference(*one, main) if one[0][dataset] else None))
        lines.append(Row(name, tuple(cells)))
    title = f"{metric_title(main)} less {method_label(names[0])}, by dataset · {heading}"
    columns = tuple(Column(dataset, dataset, "points") for dataset in datasets)
    return Panel(title, columns, tuple(lines), digits=1)


def _verdicts(comparisons: Sequence[Comparison]) -> list[str]:
    """What may be claimed: a sentence per pair of rows."""
    sentences = []
    for name in unique(comparison.row for comparison in comparisons):
        told: dict[str, list[str]] = {}
        for one in comparisons:
            if one.row == name:
                told.setdefault(_verdict(one), []).append(metric_title(one.metric))
        parts = [f"{verdict} {', '.join(metrics)}" for verdict, metrics in told.items()]
        sentences.append(f"{method_label(name)}: {'; '.join(parts)}.")
    return sentences


def _verdict(comparison: Comparison) -> str:
    if not comparison.verdict:
        return "no difference can be claimed on"
    word = "above" if comparison.verdict > 0 else "below"
    return f"{word} {method_label(comparison.reference)} on"
