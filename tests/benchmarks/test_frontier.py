"""The table of what presets reach: its numbers by value, and only cells that all presets have."""

import dataclasses
import json

import frontier
import numpy as np
import pytest

from shotfit.config import from_dict, to_dict
from shotfit.presets import PRESETS
from shotfit.records import Record, write_record


def record(task, seed, base, novel, seconds):
    mean = 2 * base * novel / (base + novel)
    metrics = {"base": base, "novel": novel, "harmonic_mean": mean, "joint": base - 10}
    return from_dict(
        Record,
        {
            "id": f"{task}{seed}{base}",
            "experiment": {"seed": seed, "shots": 4},
            "dataset": task,
            "status": "done",
            "metrics": metrics,
            "cost": {"processor_seconds": seconds},
            "environment": {"threads": "1", "torch": "2.13"},
        },
    )


@pytest.fixture
def folder(tmp_path):
    values = {"zero_shot": (40, 1.0), "published": (60, 200.0), "fast": (58, 10.0)}
    for task, seed in (("food", 1), ("food", 2), ("flags", 1)):
        for name in ("zero_shot", *PRESETS):
            if (task, name) == ("flags", "balanced"):
                continue
            level, seconds = values.get(name, (50, 5.0))
            # Cells differ in level, all presets alike.
            made = record(task, seed, level + seed, level + seed, seconds * seed)
            path = tmp_path / f"{task}-seed{seed}-{name}.json"
            path.write_text(json.dumps(to_dict(made)))
    return tmp_path


def cells_in(folder, known="nothing"):
    return frontier.read(frontier.parse(["--results", str(folder), "--known", str(known)]))


def test_the_table_by_value(folder):
    cells = cells_in(folder)
    assert frontier.common(cells) == [("food", 1), ("food", 2)]
    text = frontier.table(cells)
    assert "Means over 2 fits each: food; seeds 1, 2, 4 shots" in text
    rows = {line.split(" | ")[0].strip("| "): line for line in text.splitlines() if "| " in line}
    assert rows["fast"].endswith(
        "| 59.5 | 59.5 | 59.5 | 49.5 | -2.0 ± 0.0 | -2.0 ± 0.0 | 90 % | 15.0 | 5.0 % |"
    )
    assert rows["published"].endswith("| +0.0 ± 0.0 | +0.0 ± 0.0 | 100 % | 300.0 | 100.0 % |")
    assert rows["zero_shot"].endswith("| -20.0 ± 0.0 | -20.0 ± 0.0 | 0 % | 1.5 | 0.5 % |")


def test_a_run_that_is_known_is_not_made_again(folder, tmp_path, monkeypatch):
    words = ["--tasks", "food", "--seeds", "1", "--results", str(folder)]
    runs = dict(frontier.wanted(["food"], [1], 4))
    published = runs["published", "food", 1]
    kept = dataclasses.replace(
        record("food", 1, 70, 70, 9.0), id=published.id, experiment=to_dict(published)
    )
    write_record(tmp_path / "suite", kept)
    (folder / "food-seed1-published.json").unlink()
    (folder / "food-seed1-fast.json").unlink()
    made = []

    def run(experiment, device):
        made.append(experiment.id)
        return record("food", 1, 50, 50, 1.0), None

    monkeypatch.setattr(frontier, "run", run)
    words += ["--known", str(tmp_path / "suite")]
    frontier.main(words)
    assert made == [runs["fast", "food", 1].id]
    found = frontier.read(frontier.parse(words))
    assert found["published"]["food", 1].metrics["base"] == 70


def test_the_figure_has_a_point_a_preset(folder):
    pytest.importorskip("matplotlib")
    (axes,) = frontier.figure(cells_in(folder)).axes
    assert [line.get_label() for line in axes.lines][0::2] == ["HM", "Joint"]
    assert np.asarray(axes.lines[0].get_xdata()).tolist() == [7.5, 15.0, 7.5, 300.0]
    assert {text.get_text() for text in axes.texts} == set(PRESETS)


def test_without_a_common_cell_nothing_is_written(folder, tmp_path):
    for path in folder.glob("*-published.json"):
        path.unlink()
    page = tmp_path / "page.md"
    with pytest.raises(SystemExit, match="no task"):
        frontier.main(["--results", str(folder), "--known", "none", "--write", str(page)])
    assert not page.exists()


def test_times_are_foreseen_for_shapes():
    header, _, row = frontier.foreseen(["tiny"], 1, classes=3, shots=2).splitlines()
    assert header == "| model | instant | fast | balanced | published |"
    assert row.startswith("| tiny | ") and row.count(" s |") == 4


def test_times_are_written_between_their_marks(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- preset-times -->\nold\n<!-- /preset-times -->\nafter\n")
    monkeypatch.setattr(frontier, "foreseen", lambda names, threads: f"| {names} {threads} |")
    frontier.main(["--shapes", "tiny", "--write", str(page)])
    text = page.read_text()
    assert "| ['tiny'] 1 |" in text and "old" not in text
    assert text.startswith("before") and text.endswith("after\n")
