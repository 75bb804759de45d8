"""Figures from records: what is drawn, and that it can be written."""

import numpy as np
import pytest
import typer.testing
from synthetic_records import measured, record, suite

from shotfit.apps.cli import app
from shotfit.errors import UsageError
from shotfit.records import write_record
from shotfit.report.across import across
from shotfit.report.protocol import runs_of
from shotfit.report.suite import protocol_groups, suite_runs

pytest.importorskip("matplotlib")

from shotfit.report.figures.canvas import save
from shotfit.report.figures.comparison import base_novel_scatter, ranking
from shotfit.report.figures.lines import lines

METHODS = ["zero_shot", "coop", "lora", "2sfs_lora", "2sfs_layernorm"]


def group(records):
    (runs,) = protocol_groups(suite_runs(records))
    return runs


def texts(axes):
    return [text.get_text() for text in axes.texts]


def test_rankings_are_ordered_and_labelled():
    axes = ranking(group(suite(METHODS))).axes[0]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert sorted(labels) == sorted(
        ["Zero-shot CLIP", "CoOp", "LoRA", "2SFS (LoRA)", "2SFS (LayerNorm)"]
    )
    values = [float(text) for text in texts(axes)]
    assert values == sorted(values)
    assert "Harmonic mean" in axes.get_xlabel()
    accuracy = ranking(group(suite(METHODS, setting="all_to_all"))).axes[0]
    assert "Accuracy" in accuracy.get_xlabel()


def test_methods_that_lack_a_task_are_left_out():
    records = [*suite(["coop", "2sfs_lora"]), record("lora", "animals")]
    labels = [label.get_text() for label in ranking(group(records)).axes[0].get_yticklabels()]
    assert "LoRA" not in labels
    assert len(labels) == 2


def test_scatter_names_every_method():
    axes = base_novel_scatter(group(suite(METHODS))).axes[0]
    assert {"CoOp", "2SFS (LoRA)"} <= set(texts(axes))
    assert any(text.startswith("HM ") for text in texts(axes))
    with pytest.raises(UsageError, match="base and novel"):
        base_novel_scatter(group(suite(METHODS, setting="all_to_all")))


def test_the_command_draws_one_protocol(shotfit, tmp_path):
    for run in [*suite(METHODS), *suite(["coop"], setting="all_to_all")]:
        write_record(tmp_path, run)
    words = ["plot", "scatter", "--results", str(tmp_path), "--out", str(tmp_path / "a.png")]
    code, _, err = shotfit(*words)
    assert code == 2 and "several protocols" in err
    assert shotfit(*words, "--where", "setting=base_to_novel")[0] == 0
    assert (tmp_path / "a.png").stat().st_size > 5000
    code, _, err = shotfit("plot", "scater", *words[2:])
    assert code == 2 and "scatter" in err
    (tmp_path / "empty").mkdir()
    assert shotfit("plot", "ranking", "--results", tmp_path / "empty", *words[4:])[0] == 3


def test_figures_are_written(tmp_path):
    figure = ranking(group(suite(METHODS[:2])))
    assert save(figure, tmp_path / "new" / "bars.png").stat().st_size > 5000
    with pytest.raises(UsageError, match="Cannot write the figure"):
        save(figure, tmp_path / "bars.xyz")


def test_a_line_per_method_over_shots(tmp_path):
    records = [
        record(method, task, seed, shots=shots)
        for method in ("coop", "lora")
        for task in ("animals", "fruit")
        for seed in (1, 2, 3)
        for shots in (4, 1, 16)
    ]
    records += suite(["bitfit"], tasks=["animals"])
    (found,) = across(runs_of(records), "shots")
    axes = lines(found).axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "4", "16"]
    drawn = [np.asarray(line.get_data()) for line in axes.get_lines()]
    assert [xs.tolist() for xs, _ in drawn] == [[0, 1, 2]] * 2
    assert texts(axes) == ["CoOp", "LoRA"] or texts(axes) == ["LoRA", "CoOp"]
    mean = measured(found.cell("coop", 4)).mean
    assert any(ys[1] == pytest.approx(mean) for _, ys in drawn)
    for one in records:
        write_record(tmp_path / "records", one)
    out = tmp_path / "lines.png"
    told = typer.testing.CliRunner().invoke(
        app, ["plot", "lines", "--results", str(tmp_path / "records"), "--out", str(out)]
    )
    assert told.exit_code == 0 and out.stat().st_size > 5000
    with pytest.raises(UsageError, match="no line to draw"):
        lines(across(runs_of(suite(["coop"])), "shots")[0])
