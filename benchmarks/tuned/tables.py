"""The tables of the study: averages, and what two questions ask of pairs of rows.

Differences are over tasks of both suites, paired by task and seed, tasks being the independent
units; p-values of a table are corrected together (Holm).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from shotfit.averages import holm, mean
from shotfit.methods import published_names
from shotfit.records import Record, load_records
from shotfit.report.labels import method_label, metric_title
from shotfit.report.paired import LEVEL, Measured, difference, each_difference, probability, signed
from shotfit.report.protocol import Run, method_name, run_of
from shotfit.report.render import render
from shotfit.report.suite import tables_of_runs
from tuned.runs import (
    IDEAS,
    SEEDS,
    SHIPPED,
    TUNING,
    can_be_first,
    chosen,
    reporting,
    trains,
    untuned,
    with_factor,
)

REFERENCE = "2sfs:layernorm"
METRICS = ("base", "novel", "harmonic_mean", "joint")

Pairs = Mapping[str, tuple[str, str]]
"""Rows by what they are called: one less another."""


def tables(folder: Path, names: Sequence[str]) -> str:
    """Markdown: what was chosen, averages, and differences that answer questions."""
    found = {record.id: record for record in load_records(folder) if record.status == "done"}
    begun = [name for name in names if has_begun(name, found)]
    factors = {name: chosen(name, found) for name in begun}
    told = [
        f"{row_label(name)} {factor:g}" for name, factor in factors.items() if factor is not None
    ]
    parts = ["Factors chosen on " + ", ".join(TUNING) + ": " + ", ".join(told) + "."]
    if missing := [row_label(name) for name in names if name not in begun]:
        parts.append("Not run yet: " + ", ".join(missing) + ".")
    for title, shifted in (("Unshifted", False), ("Shifted", True)):
        tasks = [task for task in whole(begun, factors, found) if ("@" in task) == shifted]
        if tasks:
            parts += averages(title, tasks, factors, found)
    for question, (asked, pairs) in questions(begun).items():
        rows = {name: factors[name] for pair in pairs.values() for name in pair}
        # Its own tasks: rows that another question needs may have fewer.
        tasks = whole(list(rows), factors, found)
        if rows and len(tasks) > 1:
            measured = {name: metrics_of(name, tasks, factors, found) for name in rows}
            parts += [f"### {question}", differences(pairs, asked, measured)]
    return "\n\n".join(parts)


def questions(names: Sequence[str]) -> dict[str, tuple[Sequence[str], Pairs]]:
    """What is asked of which pairs of the rows that there are, and by which metrics."""
    two_stage = {f"2sfs:{name}": name for name in published_names() if can_be_first(name)}
    adds = {row_label(two): (two, one) for two, one in two_stage.items()}
    better = {row_label(name): (name, REFERENCE) for name in (*two_stage, *IDEAS)}
    others = {row_label(name): (name, REFERENCE) for name in names}
    asked = {
        "What a second stage adds to each first stage": (METRICS, adds),
        "Other two-stage recipes less 2SFS": (("harmonic_mean", "joint"), better),
        "Methods of one stage less 2SFS": (
            METRICS,
            {label: pair for label, pair in others.items() if label not in better},
        ),
    }
    there = set(names)
    return {
        question: (
            metrics,
            {label: (a, b) for label, (a, b) in pairs.items() if a != b and {a, b} <= there},
        )
        for question, (metrics, pairs) in asked.items()
    }


def differences(pairs: Pairs, metrics: Sequence[str], measured: Mapping[str, Measured]) -> str:
    """One row less another on each metric that both have; bold where the corrected test claims a
    difference."""
    cells = {
        (label, metric): (measured[one], measured[other])
        for label, (one, other) in pairs.items()
        for metric in metrics
        if has(measured[one], metric) and has(measured[other], metric)
    }
    each = {key: each_difference(*both, key[1]) for key, both in cells.items()}
    corrected = dict(zip(each, holm([probability(one) for one in each.values()]), strict=True))

    def told(key: tuple[str, str]) -> str:
        if key not in cells:
            return "–"
        over = difference(*cells[key], key[1])
        sure = corrected[key] < LEVEL and mean(each[key]) * over.mean > 0
        return f"**{signed(over)}**" if sure else signed(over)

    lines = [
        "| | " + " | ".join(metric_title(metric) for metric in metrics) + " |",
        "| --- |" + " ---: |" * len(metrics),
    ]
    lines += [
        f"| {label} | " + " | ".join(told((label, metric)) for metric in metrics) + " |"
        for label in pairs
    ]
    tasks = len(next(iter(measured.values())))
    note = (
        f"Points, with half of the 95 % interval over {tasks} tasks; bold: more than chance at 5 % "
        f"when all {len(cells)} tests of this table are corrected for (Holm)."
    )
    return "\n".join([*lines, "", note])


def has(measured: Measured, metric: str) -> bool:
    """Whether runs have a metric, or what a harmonic mean is made of."""
    needed = ("base", "novel") if metric == "harmonic_mean" else (metric,)
    return all(key in run for runs in measured.values() for run in runs for key in needed)


def metrics_of(
    name: str,
    tasks: Sequence[str],
    factors: Mapping[str, float | None],
    found: Mapping[str, Record],
) -> Measured:
    """The metrics of a row's runs, seed by seed."""
    return {
        task: [found[with_factor(name, task, seed, factors[name]).id].metrics for seed in SEEDS]
        for task in tasks
    }


def has_begun(name: str, found: Mapping[str, Record]) -> bool:
    """Whether a row has its own factor, and all seeds of some task with it."""
    factor = chosen(name, found)
    if factor is None and trains(name):
        return False
    return bool(whole([name], {name: factor}, found))


def whole(
    names: Sequence[str], factors: Mapping[str, float | None], found: Mapping[str, Record]
) -> list[str]:
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


def averages(
    title: str,
    tasks: Sequence[str],
    factors: Mapping[str, float | None],
    found: Mapping[str, Record],
) -> list[str]:
    """The averages over some tasks."""
    runs = [
        as_tuned(found[with_factor(name, task, seed, factor).id])
        for task in tasks
        for seed in SEEDS
        for name, factor in factors.items()
    ]
    shipped = [found[with_factor(SHIPPED, task, seed, None).id] for task in tasks for seed in SEEDS]
    runs += [as_tuned(record, ("rates", "shipped")) for record in shipped]
    report = tables_of_runs("tuned", title, runs, "")
    heading = f"### {title}: {len(tasks)} tasks ({', '.join(tasks)}), three seeds"
    first = dataclasses.replace(report, panels=report.panels[:1])
    # The page has a heading of its own.
    return [heading, render(first, "markdown").split("\n", 4)[-1].strip()]


def as_tuned(record: Record, *told: tuple[str, str]) -> Run:
    """A run whose row does not tell its rate, which is that of its method's factor."""
    run = run_of(record)
    variant = [(key, value) for key, value in run.variant if key.rpartition(".")[2] != "lr"]
    return dataclasses.replace(run, variant=(*variant, *told))


def run_name(name: str) -> str:
    """The name of a recipe's method in tables."""
    return method_name(dataclasses.asdict(untuned(name)))


def row_label(name: str) -> str:
    """What people read of a row: its method, and options where there are some."""
    return " ".join([method_label(run_name(name)), *name.split()[1:]])
