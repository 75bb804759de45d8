"""Two methods class by class: by value, and from the records of runs."""

import dataclasses

import pytest
from synthetic_records import measured, record

from shotfit.errors import DataError
from shotfit.report import render
from shotfit.report.paired_classes import class_panels
from shotfit.report.protocol import runs_of
from shotfit.report.tables import Report

ROWS = ("zero_shot", "lora")


def told(method, seed, *counts):
    """A record of a run on fruit; of each class of `counts` (right, images)."""
    names = ("fig", "lora", "kiwi")
    classes = [["base", name, *count] for name, count in zip(names, counts, strict=True)]
    return dataclasses.replace(record(method, "fruit", seed=seed), classes=classes)


def test_by_value():
    records = [
        *(told("zero_shot", seed, (2, 4), (4, 4), (1, 2)) for seed in (1, 2)),
        told("lora", 1, (3, 4), (1, 4), (1, 2)),
        told("lora", 2, (4, 4), (1, 4), (1, 2)),
        # No pair.
        told("lora", 3, (0, 4), (0, 4), (0, 2)),
    ]
    (panel,) = class_panels(runs_of(records), ROWS, 2)
    # A class of a method's name keeps its own.
    assert [row.method for row in panel.rows] == ["lora", "fig"]
    cells = [[measured(cell).mean for cell in row.cells] for row in panel.rows]
    assert cells == [[4, 100, -75], [4, 50, 37.5]]
    assert measured(panel.rows[1].cells[2]).runs == 2
    text = render(Report("compare", "", (panel,)), "markdown")
    assert "| Class | Test images | Zero-shot CLIP | LoRA less that |" in text
    assert "| lora | 4 | 100.0 ± 0.0 | -75.0 ± 0.0 |" in text
    (whole,) = class_panels(runs_of(records), ROWS, 10)
    assert [row.method for row in whole.rows] == ["lora", "kiwi", "fig"]


def test_records_from_before_classes_were_noted_say_so():
    records = [record(name, "fruit") for name in ROWS]
    with pytest.raises(DataError, match="tell of classes"):
        class_panels(runs_of(records), ROWS, 5)
