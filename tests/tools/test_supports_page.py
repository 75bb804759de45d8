"""The table of harder support sets is that of the committed records, and tells differences."""

import dataclasses
from pathlib import Path

import supports
from synthetic_records import record

from shotfit.config import digest
from shotfit.records import load_records
from shotfit.report.protocol import runs_of

REPOSITORY = Path(__file__).parents[2]


def on(task, base, novel, method="2sfs_layernorm", seed=1, **harder):
    """A run on a support set that is harder, or as drawn."""
    metrics = {"base": base, "novel": novel, "harmonic_mean": 0.0, "joint": (base + novel) / 2}
    made = record(method, task, seed, metrics=metrics)
    experiment = made.experiment | harder
    return dataclasses.replace(made, experiment=experiment, id=digest(experiment))


def test_the_page_is_that_of_the_records():
    found = supports.table(runs_of(load_records(REPOSITORY / "results" / "supports")))
    there = supports.PAGE.read_text(encoding="utf-8")
    assert f"<!-- supports -->\n{found}\n<!-- /supports -->" in there
    assert found.count("\n| ") == 6, "a heading and five methods"


def test_harder_sets_are_told_as_differences_over_the_tasks_that_all_have():
    runs = [
        on("animals", 80.0, 60.0),
        on("animals", 70.0, 60.0, wrong_labels=0.25),
        on("animals", 78.0, 60.0, imbalance=4.0),
        on("food", 60.0, 40.0),
        on("food", 54.0, 40.0, wrong_labels=0.25),
        on("food", 58.0, 40.0, imbalance=4.0),
        # Not run on all kinds of sets: neither a task, nor a seed, nor a method is told.
        on("food", 0.0, 0.0, seed=2),
        on("flags", 10.0, 10.0),
        on("food", 50.0, 40.0, method="coop"),
    ]
    lines = supports.table(runs_of(runs)).splitlines()
    assert len(lines) == 5
    # Bases 80 and 60 fall by 10 and by 6; 12.706 times the standard error of 2 is 25.4.
    assert lines[2].startswith("| 2SFS (LayerNorm) | 2 | 70.0 | -8.0 ± 25.4 | -2.0 ± 0.0 |")
    # Harmonic mean of 70 and 50, and of 62 and 50.
    assert "| 58.3 | -3.0 ±" in lines[2]
    assert lines[2].endswith("| 60.0 | -4.0 ± 12.7 | -1.0 ± 0.0 |")
    assert lines[-1] == "± is half of the 95 % interval over tasks."
