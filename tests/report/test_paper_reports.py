"""A table of the paper as a report: its panels, columns, rows and notes, word by word."""

import pytest
from synthetic_records import B16, record

from shotfit.paper import paper_table
from shotfit.report import paper_report
from shotfit.report.tables import SPREAD, Column


def published(method, dataset, seed=1, **options):
    scores = {"base": 80.0, "novel": 60.0, "harmonic_mean": 2 * 80 * 60 / 140}
    options = {"source": "coop", "shots": 16, "backbone": B16, "metrics": scores, **options}
    return record(method, dataset, seed, **options)


def test_a_base_to_novel_table_has_a_panel_for_each_dataset_behind_that_of_their_average():
    table = paper_table("b2n")
    report = paper_report(table, [])
    assert (report.id, report.title) == ("b2n", f"Table 1: {table.title}")
    assert [panel.title for panel in report.panels] == ["Average over datasets", *table.datasets]
    columns = (Column("base", "Base"), Column("novel", "Novel"), Column("hm", "HM"))
    assert all(panel.columns == columns and panel.digits == 2 for panel in report.panels)
    for panel in report.panels:
        assert tuple(row.method for row in panel.rows) == table.methods
        assert all(cell.ours is None and cell.printed for row in panel.rows for cell in row.cells)
    first = report.panels[0].rows[table.methods.index("clip_lora")]
    assert [c.printed.value for c in first.cells if c.printed] == ["85.32", "70.63", "77.28"]


def test_an_all_to_all_table_has_a_panel_for_each_backbone_and_the_digits_that_are_printed():
    table = paper_table("all2all-8shots")
    report = paper_report(table, [])
    assert [panel.title for panel in report.panels] == ["ViT-B/16", "ViT-B/32", "ViT-L/14"]
    columns = (*(Column(d, d) for d in table.datasets), Column("average", "Average"))
    assert all(panel.columns == columns and panel.digits == 1 for panel in report.panels)
    row = next(row for row in report.panels[1].rows if row.method == "clip_lora")
    shown = [cell.printed.value for cell in row.cells if cell.printed]
    assert len(shown) == len(columns)
    assert (shown[table.datasets.index("imagenet")], shown[-1]) == ("67.2", "75.8")


def test_a_sweep_has_no_panel_of_an_average_and_a_row_for_each_m():
    report = paper_report(paper_table("sweep-on-M"), [])
    assert [panel.title for panel in report.panels] == ["imagenet"]
    records = [
        published("2sfs_layernorm", "imagenet", m=300),
        published("2sfs_layernorm", "imagenet", m=50),
        published("coop", "imagenet"),
    ]
    (panel,) = paper_report(paper_table("sweep-on-M"), records).panels
    ours = [row.method for row in panel.rows if row.cells[0].ours]
    assert sorted(ours) == ["2sfs_layernorm[M=300]", "2sfs_layernorm[M=50]"]


def test_notes_say_where_a_table_stands_what_is_ours_and_what_must_be_read_otherwise():
    table = paper_table("b2n")
    told, specific, missing, *marks = paper_report(table, []).notes
    assert told == "Section 5.1 of the paper."
    assert specific == table.note == "Zero-shot uses dataset-specific templates."
    assert missing == (
        "No record of this table's protocol; `shotfit reproduce b2n` plans the runs."
    )
    assert all(mark.startswith("† ") and " must be " in mark for mark in marks)
    assert "† 80.03 of mma (ucf101, ViT-B/16) must be 78.53: " in " ".join(marks)
    records = [
        published("coop", "dtd", seed=2),
        published("coop", "dtd", seed=1),
        published("2sfs_layernorm", "dtd", m=100),
        published("coop", "dtd", budget="shared"),
        published("coop", "dtd", shots=8),
    ]
    _, _, seeds, difference, precision, others, *_ = paper_report(table, records).notes
    assert precision == "Ours trained in fp32; printed: fp16."
    assert seeds == f"Ours: seeds 1, 2. {SPREAD}"
    assert difference == "Δ is ours minus the printed value, corrected."
    assert others == (
        "Not the printed protocol, in rows of their own: 2sfs_layernorm[M=100], "
        "coop[budget=shared]."
    )


@pytest.mark.parametrize("name", ["b2nvitb32", "all2all-4shots"])
def test_a_table_without_a_note_has_none(name):
    section, missing, *marks = paper_report(paper_table(name), []).notes
    assert section.startswith("Section ") and missing.startswith("No record of")
    assert all(mark.startswith("† ") for mark in marks)
