"""Values of one fact side by side: shots, backbones, M."""

import dataclasses

import pytest
import typer.testing
from synthetic_records import B16, measured, record, suite

from shotfit.apps.cli import app
from shotfit.errors import DataError, UsageError
from shotfit.records import write_record
from shotfit.report import across_report, runs_report
from shotfit.report.across import across
from shotfit.report.protocol import runs_of

TASKS = ("animals", "fruit")


def scored(value, **options):
    metrics = {"base": value, "novel": value, "harmonic_mean": value, "joint": value - 5}
    return record("coop", metrics=metrics, **options)


def over_shots():
    return [
        scored(50 + shots + seed + 10 * TASKS.index(task), dataset=task, seed=seed, shots=shots)
        for shots in (16, 4, 1)
        for task in TASKS
        for seed in (1, 2)
    ]


def cells(panel, row):
    found = next(r for r in panel.rows if r.method == row)
    return dict(zip([column.title for column in panel.columns], found.cells, strict=True))


def test_accuracy_over_shots_is_averaged_over_tasks_and_seeds():
    (panel,) = across_report(runs_of(over_shots()), "shots").panels
    assert [column.title for column in panel.columns] == ["1", "4", "16"]
    assert panel.title == "HM over shots · base-to-novel · iconclip · published budget"
    found = cells(panel, "coop")
    # 50 + shots + 1.5 of the seeds + 5 of the tasks.
    assert [round(measured(cell).mean, 6) for cell in found.values()] == [57.5, 60.5, 72.5]
    assert measured(found["1"]).half_width == pytest.approx(12.706 * 0.5, rel=1e-4)


def test_another_metric_and_every_image_come_last():
    records = [*over_shots(), *(scored(90, dataset=t, seed=1, shots=None) for t in TASKS)]
    (panel,) = across_report(runs_of(records), "shots", "joint").panels
    assert [column.title for column in panel.columns] == ["1", "4", "16", "all images"]
    assert measured(cells(panel, "coop")["all images"]).mean == 85
    assert cells(panel, "coop")["all images"].note == "1 of 2 seeds"


def test_backbones_stand_side_by_side_with_what_was_not_run():
    records = suite(["coop", "lora"], tasks=TASKS) + suite(["coop"], tasks=TASKS[:1], backbone=B16)
    (panel,) = across_report(runs_of(records), "backbone").panels
    assert [column.title for column in panel.columns] == ["ViT-B/16", "iconclip"]
    assert cells(panel, "coop")["ViT-B/16"].note == "1 of 2 tasks"
    assert cells(panel, "lora")["ViT-B/16"].note == "0 of 2 tasks"
    assert cells(panel, "lora")["iconclip"].ours is not None
    assert "iconclip" not in panel.title


def test_over_m_baselines_stand_at_every_value():
    records = suite(["2sfs_lora", "zero_shot"]) + suite(["2sfs_lora"], m=100)
    (panel,) = across_report(runs_of(records), "M").panels
    assert [column.title for column in panel.columns] == ["100", "300"]
    assert {row.method for row in panel.rows} == {"zero_shot", "2sfs_lora"}
    zero = cells(panel, "zero_shot")
    assert zero["100"].ours == zero["300"].ours is not None
    assert "M=" not in panel.title


def test_an_option_that_some_state_is_default_for_the_others():
    records = suite(["lora"]) + suite(["lora"], options={"rank": 8})
    (panel,) = across_report(runs_of(records), "rank").panels
    assert [column.title for column in panel.columns] == ["8", "default"]
    assert [row.method for row in panel.rows] == ["lora"]


def test_other_protocols_have_panels_of_their_own():
    records = over_shots() + suite(["coop"], setting="all_to_all")
    found = across(runs_of(records), "shots")
    assert [one.metric for one in found] == ["all", "harmonic_mean"]
    assert found[0].values == (4,)


def test_what_is_not_there_is_said(tmp_path):
    with pytest.raises(UsageError, match="'shot'.*Did you mean 'shots'"):
        across_report(runs_of(over_shots()), "shot")
    with pytest.raises(DataError, match="no finished record"):
        across_report((), "shots")
    for one in over_shots():
        write_record(tmp_path, one)
    invoke = typer.testing.CliRunner().invoke
    folder = ["--results", str(tmp_path)]
    told = invoke(app, ["table", "runs", "--across", "shots", *folder])
    assert told.exit_code == 0 and "72.50" in told.output
    told = invoke(app, ["table", "suite", "--across", "shots", *folder])
    assert isinstance(told.exception, UsageError)


def test_over_wrong_labels_none_is_a_value():
    def noisy(share):
        made = suite(["coop"], tasks=TASKS)
        if not share:
            return made
        return [
            dataclasses.replace(one, experiment={**one.experiment, "wrong_labels": share})
            for one in made
        ]

    found = runs_of(noisy(0) + noisy(0.4) + noisy(0.2))
    (panel,) = across_report(found, "wrong_labels").panels
    assert [column.title for column in panel.columns] == ["0.0", "0.2", "0.4"]
    assert len(runs_report(noisy(0) + noisy(0.2)).panels) == 4
