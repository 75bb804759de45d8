"""The pages of claims and dynamics are those of the committed records."""

import statistics
from pathlib import Path

import claims
import sweeps
from synthetic_records import record

from shotfit.data.shifts import SHIFTED_SUITE
from shotfit.data.sources.demo import list_tasks
from shotfit.records import load_records
from shotfit.records.dynamics import DynamicsPoint, LearningDynamics
from shotfit.records.gain import Gain
from shotfit.report.protocol import runs_of

REPOSITORY = Path(__file__).parents[2]


def test_the_pages_are_those_of_the_records():
    found = claims.curves(REPOSITORY / "results" / "dynamics")
    there = claims.DYNAMICS.read_text(encoding="utf-8")
    assert claims.page_of_dynamics(there, found) == there
    records = {name: load_records(REPOSITORY / "results" / name) for name in claims.FOLDERS}
    there = claims.CLAIMS.read_text(encoding="utf-8")
    ended = claims.gains_of(REPOSITORY / "results" / "exits")
    assert claims.page_of_claims(there, found, records, ended) == there
    assert {gain.record.dataset for gain in ended} == {*list_tasks(), *SHIFTED_SUITE}
    assert all((task, "layernorm") in found for task in list_tasks())


def test_what_the_pages_say_of_breaks_is_what_curves_do():
    """BitFit's is before LayerNorm's wherever both have one; how many tasks have one."""
    found = claims.curves(REPOSITORY / "results" / "dynamics")
    breaks = {
        method: {
            task: claims.broken(found[task, method]).iteration
            for task in SHIFTED_SUITE
            if claims.broken(found[task, method]).exists
        }
        for method in claims.METHODS
    }
    assert {method: len(tasks) for method, tasks in breaks.items()} == dict.fromkeys(breaks, 10)
    medians = {method: statistics.median(tasks.values()) for method, tasks in breaks.items()}
    assert medians == {"layernorm": 370, "bitfit": 200, "lora": 380}
    assert breaks["bitfit"].keys() == breaks["layernorm"].keys()
    assert all(at < breaks["layernorm"][task] for task, at in breaks["bitfit"].items())


def curve(task, method, seed, novel):
    points = tuple(
        DynamicsPoint(20 * number, 50.0 + number, value) for number, value in enumerate(novel)
    )
    return LearningDynamics("0", {}, task, method, seed, 20, points)


def test_patterns_are_those_of_mean_curves():
    rises = [40.0 + 2 * min(n, 10) - max(0, n - 15) for n in range(31)]
    falls = [40.0 - n for n in range(31)]
    found = {
        ("a", "layernorm"): [curve("a", "layernorm", seed, rises) for seed in (1, 2, 3)],
        ("b", "layernorm"): [curve("b", "layernorm", 1, falls)],
        ("a", "lora"): [curve("a", "lora", seed, falls) for seed in (1, 2)],
    }
    text = claims.phases(found, ["a", "b"])
    assert "| task | LayerNorm | LoRA |" in text
    assert "| b | falling, 1 seed | – |" in text
    assert "falling, 2 seeds" in text and "| a | two phases at 2" in text
    assert "above zero-shot on 1 of 2 tasks, and falls again while base accuracy" in text
    # The mean of a rise and an equal fall neither rises nor falls.
    mixed = [rises, [80.0 - value for value in rises]]
    both = [curve("a", "layernorm", n, one) for n, one in enumerate(mixed)]
    assert claims.broken(both).pattern == "falling"


def swept(task, alpha, m, base, novel):
    """A run with this alpha and M."""
    metrics = {"base": base, "novel": novel, "harmonic_mean": 0.0, "joint": (base + novel) / 2}
    made = record(dataset=task, m=m, budget="shared", metrics=metrics)
    made.experiment["recipe"]["first_fraction"] = alpha
    return made


def test_a_sweep_is_told_over_the_tasks_that_every_value_has():
    records = [
        swept("animals", 0.2, 100, 60.0, 40.0),
        swept("animals", None, 100, 60.0, 60.0),
        swept("food", 0.2, 100, 60.0, 40.0),
        swept("food", None, 100, 50.0, 50.0),
        swept("flags", 0.2, 100, 0.0, 0.0),  # not run at the default yet
        swept("animals", None, 300, 70.0, 70.0),
    ]
    lines = sweeps.alphas(runs_of(records), ["animals", "food", "flags"]).splitlines()
    # HM of 60 and 40 is 48, of 55 and 55 it is 55; by task -12 and -2: -7 on average, and
    # 12.706 times their standard error of 5.
    assert lines[2] == "| 0.2 | 60.0 | 40.0 | 48.0 | 50.0 | -7.0 ± 63.5 | -5.0 ± 63.5 |"
    assert lines[3] == "| 0.6 | 55.0 | 55.0 | 55.0 | 55.0 | – | – |"
    assert lines[-1] == "2 tasks, seed 1."
    lines = sweeps.budgets(runs_of(records), ["animals", "food"]).splitlines()
    assert [line.split(" | ")[0] for line in lines[2:4]] == ["| 100", "| 300"]
    assert lines[3].endswith("| +10.0 | +10.0 |")
    assert sweeps.alphas(runs_of(records[1:2]), ["animals"]).startswith("Not measured")


def test_an_exit_is_told_beside_both_stages():
    def ended(task, base, novel, before):
        after = {"base": base, "novel": novel, "harmonic_mean": 0.0, "joint": base - 10}
        made = record(dataset=task, m=100, budget="shared", metrics=after)
        return Gain(made, {"base": before, "novel": novel, "harmonic_mean": 0.0, "joint": 60.0})

    found = [ended("animals", 80.0, 60.0, 70.0), ended("food", 90.0, 60.0, 70.0)]
    elsewhere = ended("flags", 0.0, 0.0, 0.0)
    line = claims.exits([*found, elsewhere], ["animals", "food"]).splitlines()[2]
    # 10 and 20 points: 15, and 12.706 times their standard error of 5.
    assert line.startswith("| exit | +15.0 ± 63.5 | +0.0 ± 0.0 |")
    assert line.endswith("| +15.0 ± 63.5 |")
    assert claims.exits(found, ["digits"]).startswith("Not measured")


def test_sizes_are_told_beside_the_published_ones():
    def sized(method, option, value, base):
        metrics = {"base": base, "novel": base, "harmonic_mean": 0.0, "joint": base}
        training = {"batch_size": value} if option == "batch" else None
        options = {"rank": value} if option == "rank" else None
        return record(
            method, m=100, budget="shared", metrics=metrics, training=training, options=options
        )

    found = runs_of(
        [
            sized("2sfs_layernorm", "batch", 16, 70.0),
            sized("2sfs_layernorm", "batch", 32, 75.0),
            sized("2sfs_lora", "rank", 2, 50.0),
            sized("2sfs_lora", "rank", 8, 58.0),
        ]
    )
    lines = sweeps.batch_sizes(found, ["animals"]).splitlines()
    assert lines[2].startswith("| 16 | 70.0 |") and "| -5.0" in lines[2]
    assert lines[3] == "| 32 | 75.0 | 75.0 | 75.0 | 75.0 | – | – |"
    lines = sweeps.ranks(found, ["animals"]).splitlines()
    assert lines[3].startswith("| 8 | 58.0 |") and "| +8.0" in lines[3] and len(lines) == 6
