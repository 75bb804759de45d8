"""The study of labelling: its table by value, and a small run of it."""

import json

import labelling
import numpy as np
import pytest
from conftest import shapes_dataset


def record(task, seed, way, accuracy):
    clicks = [5 * n for n in range(len(accuracy))]
    return {
        **{"task": task, "seed": seed, "way": way, "model": "m", "classes": 10, "clicks": clicks},
        "test_images": 25,
        **{"accuracy": accuracy, "seen_classes": [min(10, count) for count in clicks]},
    }


@pytest.fixture
def cells(tmp_path):
    rows = [
        record("food", 1, "proposed", [50.0, 60.0, 80.0]),
        record("food", 1, "random", [50.0, 62.0, 70.0]),
        record("food", 2, "proposed", [50.0, 66.0, 84.0]),
        record("food", 2, "random", [50.0, 62.0, 72.0]),
        record("digits", 1, "proposed", [40.0, 50.0, 60.0]),
        record("digits", 1, "random", [40.0, 55.0, 58.0]),
        record("people", 1, "proposed", [40.0, 44.0, 60.0]),
        record("people", 1, "random", [40.0, 41.0, 60.5]),
        record("flags", 1, "proposed", [10.0, 20.0, 30.0]),  # its partner is missing
    ]
    for one in rows:
        path = tmp_path / f"{one['task']}-seed{one['seed']}-{one['way']}.json"
        path.write_text(json.dumps(one))
    return labelling.read(tmp_path)


def test_the_table_by_value(cells):
    assert labelling.complete(cells) == [("digits", 1), ("food", 1), ("food", 2), ("people", 1)]
    text = labelling.table(cells)
    assert "(4 pairs of runs)" in text and "flags" not in text
    assert "Test images: digits 25, food 25, people 25." in text
    assert "| no click | 0.5 a class | 1 a class |" in text
    assert "| food | 10 | proposed | 50.0 | 63.0 | 82.0 | 10 |" in text
    assert "| food | 10 | random | 50.0 | 62.0 | 71.0 | 10 |" in text
    # Tasks differ by -5, 1 (of -2 and 4) and 3, then by 2, 11 (of 10 and 12) and -0.5; t of two
    # degrees of freedom is 4.303.
    assert "| all (3) | | proposed less random | +0.0 | -0.3 ± 10.3 | +4.2 ± 15.0 | |" in text
    assert "| not chosen on (1) | | proposed less random | +0.0 | +3.0 | -0.5 | |" in text
    assert "at the end (65.1 %), proposed ones reach or pass after round 2 of 2." in text


def test_the_figure_has_both_ways_of_each_task(cells):
    pytest.importorskip("matplotlib")
    axes = labelling.figure(cells).axes[1]
    assert axes.get_title() == "food"
    assert [line.get_label() for line in axes.lines] == ["proposed", "random"]
    assert np.asarray(axes.lines[0].get_xdata()).tolist() == [0, 0.5, 1]
    assert np.asarray(axes.lines[0].get_ydata()).tolist() == [50, 63, 82]


@pytest.mark.parametrize("way", labelling.WAYS)
def test_rounds_label_other_images_each_time(way, checkpoint):
    data = shapes_dataset(4)
    found = labelling.labelled_in_rounds(data, way, 1, 2, backbone=str(checkpoint))
    assert found["clicks"] == [0, 2, 4] and len(found["accuracy"]) == 3
    assert found["seen_classes"][-1] <= 4 and found["pool"] == 24
    again = labelling.labelled_in_rounds(data, way, 1, 2, backbone=str(checkpoint))
    assert again == found
