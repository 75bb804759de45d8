"""The study of equal tuning: what is run, what is chosen, and what the tables compare."""

import dataclasses
from pathlib import Path

import pytest
from tuned import __main__ as study
from tuned import runs as tuned
from tuned.tables import tables

from shotfit.experiment import Experiment
from shotfit.records import Record, write_record

REPOSITORY = Path(__file__).parents[2]


def measured(experiment: Experiment, base: float, novel: float | None) -> Record:
    """A finished record of a run."""
    task = str(experiment.data["name"])
    metrics = {"base": base}
    if novel is not None:
        metrics |= {"novel": novel, "joint": base - 5, "harmonic_mean": 1.0}
    return Record(
        id=experiment.id,
        experiment=experiment.plain(),
        dataset=task,
        status="done",
        metrics=metrics,
        trainable_parameters=[10],
        cost={"seconds": 1.0, "iterations": 400.0},
        split_hash=f"{task}-{experiment.seed}",
    )


def test_a_factor_multiplies_the_published_rates_of_every_stage():
    one, four = (tuned.with_factor("2sfs:coop", "food", 1, factor) for factor in (1.0, 4.0))
    assert [stage.training["lr"] for stage in one.recipe.stages] == [2e-3, 2e-4]
    assert [stage.training["lr"] for stage in four.recipe.stages] == [8e-3, 8e-4]
    shipped = tuned.with_factor("2sfs", "food", 1, None)
    assert [stage.training for stage in shipped.recipe.stages] == [{"precision": "bf16"}] * 2
    assert (one.recipe.budget, one.recipe.iters_per_shot, one.setting) == (
        "shared",
        100,
        "base_to_novel",
    )


def test_an_idea_of_our_own_is_tuned_like_what_it_changes():
    """Its option is there beside the rate that its factor gives."""
    (first, second) = tuned.with_factor("2sfs anchor=8", "food", 1, 4.0).recipe.stages
    assert (first.options, first.training["lr"]) == ({"anchor": 8}, 8e-4)
    assert (second.options, second.training["lr"]) == ({}, 8e-4)
    (first, second) = tuned.with_factor("2sfs linear.leash=10", "food", 1, 1.0).recipe.stages
    assert (first.options, second.options) == ({}, {"leash": 10})
    assert set(tuned.IDEAS) < set(tuned.recipes())
    assert len({one.id for name in tuned.recipes() for one in tuned.tuning(name)}) == sum(
        len(tuned.tuning(name)) for name in tuned.recipes()
    )


def test_every_method_is_there_once_and_tuning_tasks_are_not_reported():
    names = tuned.recipes()
    assert len(names) == len(set(names)) > 40
    assert {"layernorm", "2sfs:layernorm", "zs_lp", "tip_adapter_f", "zero_shot"} <= set(names)
    assert not {"linear", "clip_lora", "2sfs:taskres", "2sfs:clip_lora"} & set(names)
    tasks = tuned.reporting()
    assert len([task for task in tasks if "@" not in task]) == 8
    assert len([task for task in tasks if "@" in task]) == 11
    assert not {task.partition("@")[0] for task in tasks} & set(tuned.TUNING)
    assert tuned.tuning("zero_shot") == []
    assert len({one.id for one in tuned.tuning("layernorm")}) == 9


def test_the_factor_with_the_best_harmonic_mean_of_averages_is_chosen():
    scores = {0.25: (60.0, 60.0), 1.0: (90.0, 40.0), 4.0: (50.0, 71.0)}
    found = {}
    for factor, (base, novel) in scores.items():
        for task in tuned.TUNING:
            run = tuned.with_factor("layernorm", task, 1, factor)
            found[run.id] = measured(run, base, novel)
    # Of the published rate 55.4, of four times it 58.7.
    assert tuned.chosen("layernorm", found) == 0.25
    of_base = {key: dataclasses.replace(record, metrics={"base": record.metrics["base"]})
               for key, record in found.items()}  # fmt: skip
    assert tuned.chosen("layernorm", of_base) == 1
    equal = {
        key: dataclasses.replace(record, metrics={"base": 1.0}) for key, record in found.items()
    }
    assert tuned.chosen("layernorm", equal) == 1
    found.popitem()
    assert tuned.chosen("layernorm", found) is None
    assert tuned.chosen("zero_shot", {}) is None


def test_tables_hold_whole_tasks_alone_and_compare_with_the_tuned_two_stages(tmp_path):
    idea = "2sfs anchor=8"
    names = ["2sfs:layernorm", "layernorm", "zero_shot", idea]
    level = {"2sfs:layernorm": 80.0, "layernorm": 75.0, "zero_shot": 60.0, idea: 83.5}
    tasks = ("animals", "digits", "flags", "animals@blur", "digits@rotation")
    found: dict[str, Record] = {}

    def add(experiment: Experiment, base: float, novel: float) -> None:
        found[experiment.id] = measured(experiment, base, novel)

    for name in names:
        for run in tuned.tuning(name):
            add(run, 50.0 + (run.recipe.stages[0].training["lr"] == 8e-4), 50.0)
    for number, task in enumerate(tasks):
        for seed in tuned.SEEDS:
            for name in names:
                factor = tuned.chosen(name, found)
                # One task lacks a run.
                if (task, seed, name) != ("flags", 3, "layernorm"):
                    add(tuned.with_factor(name, task, seed, factor), level[name] + number, 70.0)
            add(tuned.with_factor("2sfs", task, seed, None), 81.0 + number, 70.0)
    # A row that has one shifted task is not shown.
    for task in tasks[:4]:
        for seed in tuned.SEEDS:
            add(tuned.with_factor("gda", task, seed, None), 55.0, 70.0)
    for record in found.values():
        write_record(tmp_path, record)
    told = tables(tmp_path, [*names, "taskres", "gda"])
    assert "Not run yet on 2 tasks of either suite: TaskRes, GDA." in told
    assert "### Unshifted: 2 tasks (animals, digits), three seeds" in told
    assert "### Shifted: 2 tasks (animals@blur, digits@rotation), three seeds" in told
    assert "2SFS (LayerNorm) 4, LayerNorm 4, 2SFS (LayerNorm) anchor=8 4" in told
    page = tmp_path / "page.md"
    page.write_text("<!-- tuned -->\n<!-- /tuned -->\n")
    study.main(["--results", str(tmp_path), "--methods", *names, "--write", str(page)])
    text = page.read_text()
    # Of the unshifted tasks base 80 and 81 against 75 and 76, and so on.
    for average in ("80.50", "75.50", "60.50", "84.00", "81.50"):
        assert average in text
    assert "flags" not in text
    adds, others, alone = (part.split("###")[0] for part in text.split("### ")[-3:])
    assert adds.startswith("What a second stage adds to each first stage")
    assert "| 2SFS (LayerNorm) | 4 | **+5.00 ± 0.00** | +0.00 ± 0.00 |" in adds
    assert "all 4 tests" in adds
    # Harmonic means of 84.83 and 70, 81.33 and 70.
    assert "| 2SFS (LayerNorm) anchor=8 | 5 | **+1.4" in others and "all 2 tests" in others
    assert "| LayerNorm | 4 | **-5.00 ± 0.00** |" in alone and "anchor" not in alone
    assert "| Zero-shot CLIP | 5 | **-20.00 ± 0.00** |" in alone


def test_the_second_part_waits_until_all_factors_can_be_chosen(tmp_path, monkeypatch, capsys):
    begun: list[str] = []
    monkeypatch.setattr(study, "run_missing", lambda runs, _: begun.extend(r.id for r in runs))
    command = ["--results", str(tmp_path), "--methods", "layernorm", "--part", "2/2"]
    study.main(command)
    assert begun == [one.id for one in tuned.tuning("layernorm")[1::2]]
    assert "run again" in capsys.readouterr().out
    for run in tuned.tuning("layernorm"):
        write_record(tmp_path, measured(run, 50.0, 50.0))
    begun.clear()
    study.main([*command, "--tasks", "flags"])
    assert len(begun) == 4 + 3


@pytest.mark.long
def test_the_page_has_the_tables_of_the_kept_records():
    page = (REPOSITORY / "docs" / "comparison.md").read_text(encoding="utf-8")
    kept = tables(REPOSITORY / "results" / "tuned", tuned.recipes())
    assert f"<!-- tuned -->\n\n{kept}\n\n<!-- /tuned -->" in page
