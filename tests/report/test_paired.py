"""Methods in pairs: differences, intervals, corrected p-values, and what may be claimed."""

import math

import pytest
import typer.testing
from synthetic_records import measured, record, suite

from shotfit.apps.cli import app
from shotfit.averages import holm, t_probability
from shotfit.errors import DataError, UsageError
from shotfit.records import write_record
from shotfit.report import compare_report
from shotfit.report.paired import Comparison, average, difference, probability
from shotfit.report.protocol import runs_of


def runs(*values):
    return [{"base": value, "novel": 50.0} for value in values]


def test_intervals_take_datasets_as_units():
    ours = {"a": runs(61, 61, 61), "b": runs(73)}
    theirs = {"a": runs(60, 60, 60), "b": runs(70)}
    found = difference(ours, theirs, "base")
    assert (found.mean, found.runs) == (2, 2)
    assert found.half_width == pytest.approx(12.706, rel=1e-4)


def test_of_one_dataset_the_runs_are_the_units():
    found = difference({"a": runs(61, 63)}, {"a": runs(60, 60)}, "base")
    assert (found.mean, found.runs) == (2, 2)
    assert found.half_width == pytest.approx(12.706, rel=1e-4)
    assert difference({"a": runs(61)}, {"a": runs(60)}, "base").half_width is None


def test_differences_are_between_harmonic_means_of_averages():
    ours = {"a": [{"base": 90, "novel": 10}], "b": [{"base": 10, "novel": 90}]}
    theirs = {task: [{"base": 40, "novel": 40}] for task in "ab"}
    gained = difference(ours, theirs, "harmonic_mean")
    assert gained.mean == pytest.approx(10)
    # In either task alone 18 less 40: no spread.
    assert gained.half_width == pytest.approx(0)
    assert average(ours, "harmonic_mean") == pytest.approx(50)


@pytest.mark.parametrize(
    ("t", "freedom", "expected"),
    [(12.706, 1, 0.05), (2.262, 9, 0.05), (0, 5, 1)],
)
def test_p_values_are_the_tabulated_ones(t, freedom, expected):
    assert t_probability(t, freedom) == pytest.approx(expected, abs=1e-4)
    assert t_probability(-t, freedom) == pytest.approx(expected, abs=1e-4)


def test_paired_t_test_by_hand():
    # Differences 1, 2, 3: mean 2, standard error 1 / sqrt(3), t = 2 sqrt(3) with 2 degrees.
    t = 2 * math.sqrt(3)
    assert probability([1, 2, 3]) == pytest.approx(1 - t / math.sqrt(2 + t * t), abs=1e-9)
    assert probability([2]) == 1
    assert probability([1, -1]) == 1
    assert probability([2, 2, 2]) == 0


def test_holm_multiplies_the_smallest_most_and_never_falls():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.5]) == [1.0, 1.0]
    assert holm([]) == []


def scored(method, dataset, seed, base, novel):
    numbers = {"base": base, "novel": novel, "harmonic_mean": 0.0, "joint": 50.0}
    return record(method, dataset, seed, metrics=numbers)


def some(method, gain, noise=0.0):
    """Six tasks, two seeds; above `coop` on base by `gain` give or take `noise`."""
    return [
        scored(method, task, seed, 60 + n + gain + noise * (-1) ** n, 50 + n)
        for n, task in enumerate("abcdef")
        for seed in (1, 2)
    ]


def test_a_claim_is_made_where_the_corrected_test_allows_it():
    records = some("coop", 0) + some("2sfs_layernorm", 5, 0.5) + some("lora", 1, 4)
    report = compare_report(runs_of(records), ["coop", "2sfs", "lora"])
    assert report.notes[0] == (
        "2SFS (LayerNorm): above CoOp on Base, HM; no difference can be claimed on Novel, Joint."
    )
    assert report.notes[1] == "LoRA: no difference can be claimed on Base, Novel, HM, Joint."
    overall = report.panels[0]
    row = overall.rows[0]
    cells = dict(zip([column.key for column in overall.columns], row.cells, strict=True))
    assert measured(cells["base"]).mean == pytest.approx(5)
    assert measured(cells["base"]).runs == 6
    # The other way round, the sign turns.
    turned = compare_report(runs_of(records), ["2sfs", "coop"])
    assert "CoOp: below 2SFS (LayerNorm) on Base, HM" in turned.notes[0]


def test_each_dataset_has_its_own_difference():
    report = compare_report(runs_of(some("coop", 0) + some("lora", 2)), ["coop", "lora"])
    by_dataset = report.panels[1]
    assert [column.key for column in by_dataset.columns] == list("abcdef")
    first = measured(by_dataset.rows[0].cells[0])
    mean = 2 * 62 * 50 / 112 - 2 * 60 * 50 / 110
    assert (first.mean, first.half_width) == (pytest.approx(mean), pytest.approx(0))


def test_only_what_both_have_is_compared():
    records = some("coop", 0) + [r for r in some("lora", 2) if r.dataset in "ab"]
    records += [record("taskres", t, s, metrics={"base": 70.0}) for t in "abc" for s in (1, 2)]
    report = compare_report(runs_of(records), ["coop", "lora", "taskres"])
    lora, taskres = report.panels[0].rows
    assert measured(lora.cells[0]).runs == 2
    assert measured(taskres.cells[0]).runs == 3
    # A method bound to its classes has base accuracy alone.
    assert [cell.ours is None for cell in taskres.cells] == [False, False] + [True] * 6
    assert report.panels[1].title.startswith("Base less CoOp")


def test_where_averages_disagree_nothing_is_claimed():
    found = difference({"a": runs(61)}, {"a": runs(60)}, "base")
    assert Comparison("x", "y", "base", found, -1.0, 0.0).verdict == 0
    assert Comparison("x", "y", "base", found, 1.0, 0.0).verdict == 1
    assert Comparison("x", "y", "base", found, 1.0, 0.05).verdict == 0


def test_what_cannot_be_compared_is_said():
    found = runs_of(some("coop", 0) + suite(["lora"], tasks=["other"]))
    with pytest.raises(UsageError, match="at least two"):
        compare_report(found, ["coop"])
    with pytest.raises(UsageError, match="'cop'.*Did you mean 'coop'"):
        compare_report(found, ["cop", "lora"])
    with pytest.raises(DataError, match="no dataset and seed in common"):
        compare_report(found, ["coop", "lora"])
    apart = runs_of(suite(["coop"]) + suite(["lora"], setting="all_to_all"))
    with pytest.raises(DataError, match="No protocol has both coop and another"):
        compare_report(apart, ["coop", "lora"])


def test_the_command_prints_and_writes(tmp_path):
    for one in some("coop", 0) + some("lora", 2):
        write_record(tmp_path, one)
    invoke = typer.testing.CliRunner().invoke
    told = invoke(app, ["compare", "coop", "lora", "--results", str(tmp_path)])
    assert told.exit_code == 0, told.output
    assert "LoRA: above CoOp on Base, HM" in told.output
    assert "<0.001" in told.output
    page = tmp_path / "page.md"
    told = invoke(
        app,
        ["compare", "coop", "lora", "--results", str(tmp_path)]
        + ["--format", "markdown", "--out", str(page)],
    )
    assert told.exit_code == 0 and "+2.00 ± 0.00" in page.read_text()
