"""The tables of the study: what was chosen, averages over tasks, and answers to questions.

A row is shown once it has run on enough tasks of both suites. Averages are over the tasks that all
shown rows have.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from shotfit.records import Record, load_records
from shotfit.report.protocol import Run, run_of
from shotfit.report.render import render
from shotfit.report.suite import tables_of_runs
from shotfit.report.tables import Panel
from tuned.questions import both, differences, questions
from tuned.rows import ENOUGH, Factors, has_enough, row_label, whole
from tuned.runs import SEEDS, SHIPPED, TUNING, chosen, with_factor


def tables(folder: Path, names: Sequence[str]) -> str:
    """Markdown: what was chosen, averages, and differences that answer questions."""
    found = {record.id: record for record in load_records(folder) if record.status == "done"}
    shown = [name for name in names if has_enough(name, found)]
    factors = {name: chosen(name, found) for name in shown}
    told = [
        f"{row_label(name)} {factor:g}" for name, factor in factors.items() if factor is not None
    ]
    parts = ["Factors chosen on " + ", ".join(TUNING) + ": " + ", ".join(told) + "."]
    if missing := [row_label(name) for name in names if name not in shown]:
        parts.append(f"Not run yet on {ENOUGH} tasks of either suite: " + ", ".join(missing) + ".")
    for title, shifted in (("Unshifted", False), ("Shifted", True)):
        tasks = [task for task in whole(shown, factors, found) if ("@" in task) == shifted]
        if tasks:
            parts += averages(title, tasks, factors, found)
    for question, (asked, pairs) in questions(shown).items():
        measured = {label: both(pair, factors, found) for label, pair in pairs.items()}
        if measured:
            parts += [f"### {question}", differences(asked, measured)]
    return "\n\n".join(parts)


def averages(
    title: str,
    tasks: Sequence[str],
    factors: Factors,
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
    first = dataclasses.replace(report, panels=(without_times(report.panels[0]),))
    # The page has a heading of its own.
    return [heading, render(first, "markdown").split("\n", 4)[-1].strip()]


def as_tuned(record: Record, *told: tuple[str, str]) -> Run:
    """A run whose row does not tell its rate, which is that of its method's factor."""
    run = run_of(record)
    variant = [(key, value) for key, value in run.variant if key.rpartition(".")[2] != "lr"]
    return dataclasses.replace(run, variant=(*variant, *told))


def without_times(panel: Panel) -> Panel:
    """A table without its seconds: not all records are of one machine."""
    kept = [number for number, column in enumerate(panel.columns) if column.unit != "s"]
    rows = tuple(
        dataclasses.replace(row, cells=tuple(row.cells[n] for n in kept)) for row in panel.rows
    )
    return dataclasses.replace(panel, columns=tuple(panel.columns[n] for n in kept), rows=rows)
