"""Rows of the study that have been run: on which tasks, their metrics, what they are called."""

import dataclasses
from collections.abc import Mapping, Sequence

from shotfit.records import Record
from shotfit.report.labels import method_label
from shotfit.report.paired import Measured
from shotfit.report.protocol import method_name
from tuned.runs import SEEDS, SHIPPED, chosen, reporting, trains, untuned, with_factor

ENOUGH = 2
"""Tasks of either suite that a row is shown from."""

Factors = Mapping[str, float | None]
"""The factor of every row; None where nothing is trained."""


def has_enough(name: str, found: Mapping[str, Record]) -> bool:
    """Whether a row has its own factor, and all seeds of enough tasks of both suites with it."""
    factor = chosen(name, found)
    if factor is None and trains(name):
        return False
    tasks = whole([name], {name: factor}, found)
    shifted = sum("@" in task for task in tasks)
    return min(shifted, len(tasks) - shifted) >= ENOUGH


def whole(names: Sequence[str], factors: Factors, found: Mapping[str, Record]) -> list[str]:
    """The tasks that have every run of these rows, and those of 2SFS as it is shipped."""
    rows = [(name, factors[name]) for name in names] + [(SHIPPED, None)]
    return [
        task
        for task in reporting()
        if all(
            with_factor(name, task, seed, factor).id in found
            for name, factor in rows
            for seed in SEEDS
        )
    ]


def metrics_of(
    name: str,
    tasks: Sequence[str],
    factors: Factors,
    found: Mapping[str, Record],
) -> Measured:
    """The metrics of a row's runs, seed by seed."""
    return {
        task: [found[with_factor(name, task, seed, factors[name]).id].metrics for seed in SEEDS]
        for task in tasks
    }


def run_name(name: str) -> str:
    """The name of a recipe's method in tables."""
    return method_name(dataclasses.asdict(untuned(name)))


def row_label(name: str) -> str:
    """What people read of a row: its method, and options where there are some."""
    return " ".join([method_label(run_name(name)), *name.split()[1:]])
