"""Sweeps and the gain of the second stage, as their figures and lines show them, from records.

The convention of every table (`report.tables`): means over seeds, then over datasets; a harmonic
mean is that of the averaged base and novel accuracies, never an average of harmonic means.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

from shotfit.averages import Estimate, harmonic_mean, mean
from shotfit.records import Record
from shotfit.records.gain import Gain
from shotfit.report.protocol import Run, run_of
from shotfit.report.tables import seed_means

METRICS = {
    "base": "base",
    "novel": "novel",
    "harmonic mean": "harmonic_mean",
    "accuracy": "all",
}
"""What a sweep shows, and the keys of records."""

SweepRow = tuple[tuple[float | str, ...], dict[str, Estimate]]
"""The swept values, one of every option, and the estimates of what was measured at them."""


def sweep_rows(
    ids: Iterable[tuple[tuple[float | str, ...], str]], records: Mapping[str, Record]
) -> list[SweepRow]:
    """The rows of a sweep in order of its values; `ids` are pairs of values and a run's id.

    Values are compared on the datasets that have a finished run at every one of them.
    """
    found: dict[tuple[float | str, ...], list[Run]] = {}
    for point, key in ids:
        record = records.get(key)
        if record is not None and record.status == "done":
            found.setdefault(point, []).append(run_of(record))
    if not found:
        return []
    datasets = sorted(set.intersection(*({run.dataset for run in runs} for runs in found.values())))
    rows = []
    for point, runs in sorted(found.items(), key=lambda item: [_order(one) for one in item[0]]):
        mine = [run for run in runs if run.dataset in datasets]
        estimates = {name: seed_means(mine, key, datasets) for name, key in METRICS.items()}
        rows.append((point, {name: e for name, e in estimates.items() if e is not None}))
    return rows if datasets else []


def _order(value: float | str) -> tuple[float, str]:
    """Numbers by size, words after them."""
    return (math.inf, value) if isinstance(value, str) else (value, "")


def gain_points(gains: Sequence[Gain], metric: str) -> float:
    """What the second stage added on average over runs of one dataset, in points of accuracy."""
    before = [gain.after_first for gain in gains]
    after = [gain.record.metrics for gain in gains]
    return _average(after, metric) - _average(before, metric)


def _average(metrics: Sequence[Mapping[str, float]], metric: str) -> float:
    if metric == "harmonic_mean":
        return harmonic_mean(_average(metrics, "base"), _average(metrics, "novel"))
    return mean([each[metric] for each in metrics])
