"""The tables of the README and the pages are those of the committed records."""

import importlib.util
from pathlib import Path

import pytest

from shotfit.records import load_records
from shotfit.report.paired import compare_report
from shotfit.report.protocol import runs_of

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tool():
    path = REPOSITORY / "pages" / "results.py"
    spec = importlib.util.spec_from_file_location("results_page", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_suite(tool):
    every_task, short = tool.tables(load_records(REPOSITORY / "results" / "suite"))
    for page, text in ((tool.README, short), (tool.COMPARISON, every_task)):
        there = page.read_text(encoding="utf-8")
        assert tool.put(there, "suite", text) == there


def test_the_shifted_suite_and_what_the_readme_says_of_it(tool):
    records = load_records(REPOSITORY / "results" / "shifted")
    there = tool.SHIFTS.read_text(encoding="utf-8")
    assert tool.put(there, "runs", tool.shifted(records)) == there
    report = compare_report(runs_of(records), tool.ON_SHIFTS)
    found = dict(zip(report.panels[0].columns, report.panels[0].rows[0].cells, strict=True))
    gains = {column.title: cell for column, cell in found.items() if column.title != "p"}
    base, novel, mean = (gains[title].ours for title in ("Base", "Novel", "HM"))
    assert base and novel and mean
    readme = " ".join(tool.README.read_text(encoding="utf-8").split())
    assert (
        f"by {-base.mean:.1f} points on base classes, {-novel.mean:.1f} ± {novel.half_width:.1f} "
        f"on novel ones and {-mean.mean:.1f} in harmonic mean"
    ) in readme
