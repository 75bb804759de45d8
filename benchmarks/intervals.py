"""Differences between runs in pairs, with 95 % intervals that take tasks as independent units.

As in every table, a harmonic mean is that of averaged base and novel accuracies, never an average
of harmonic means.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from shotfit.averages import estimate, harmonic_mean, mean

Measured = Mapping[str, Sequence[Mapping[str, Any]]]
"""By task, the metrics of its runs."""


def average(measured: Measured, metric: str) -> float:
    """The mean over tasks of the means over their runs; for "harmonic_mean", that of these."""
    if metric == "harmonic_mean":
        return harmonic_mean(average(measured, "base"), average(measured, "novel"))
    return mean([mean([run[metric] for run in runs]) for runs in measured.values()])


def difference(ours: Measured, theirs: Measured, metric: str) -> tuple[float, float]:
    """Our average less theirs, and half the width of its 95 % interval over tasks."""
    each = [
        average({task: ours[task]}, metric) - average({task: theirs[task]}, metric) for task in ours
    ]
    half = estimate(each).half_width
    return average(ours, metric) - average(theirs, metric), float("inf") if half is None else half
