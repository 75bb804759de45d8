"""The printed numbers that ship with the package, and what their own tables say against them."""

import pytest

from shotfit.errors import UsageError
from shotfit.paper import BACKBONES, EXCEPTIONS, check, paper_table, paper_tables, printed_cells


def as_printed():
    return [cell.with_correction("", "") for cell in printed_cells()]


def test_sixteen_tables_numbered_in_order():
    assert [table.number for table in paper_tables()] == list(range(1, 17))
    assert {cell.table for cell in printed_cells()} == {table.id for table in paper_tables()}
    assert len(printed_cells()) == 3753


@pytest.mark.parametrize("table", paper_tables(), ids=lambda table: table.id)
def test_tables_are_complete(table):
    columns = 1 if table.setting == "all_to_all" else 3
    scopes = 1 if table.is_sweep else 12
    assert len(table.cells) == len(table.backbones) * len(table.methods) * scopes * columns
    assert set(table.backbones) <= set(BACKBONES.values())
    assert {cell.setting for cell in table.cells} == {table.setting}
    assert len(table.datasets) == (1 if table.is_sweep else 11)


def test_corrected_tables_agree_with_themselves():
    assert check(printed_cells()) == []
    assert EXCEPTIONS == {}


def test_every_correction_is_needed_and_explained():
    found = check(as_printed())
    assert len(found) == 46
    corrected = [cell for cell in printed_cells() if cell.correction]
    assert len(corrected) == 32
    for cell in corrected:
        assert cell.reason
        assert cell.correction != cell.value
        where = f"{cell.table} {cell.backbone} {cell.method}"
        assert any(line.startswith(where) for line in found), where


@pytest.mark.parametrize(
    ("table", "method", "dataset", "metric", "printed", "correct"),
    [
        ("b2n_vitb16_shots4", "2sfs_layernorm", "average", "base", "84.64", "81.73"),
        ("b2n_vitl14_shots8", "mma", "average", "novel", "80.73", "79.67"),
        ("b2n_vitb16_shots8", "zero_shot", "caltech101", "hm", "93.73", "95.40"),
        ("b2n", "mma", "ucf101", "novel", "80.03", "78.53"),
        ("b2nlora", "clip_lora", "dtd", "hm", "71.39", "71.88"),
        ("b2n", "2sfs_layernorm", "average", "hm", "80.20", ""),
    ],
)
def test_known_errata(table, method, dataset, metric, printed, correct):
    cells = [
        cell
        for cell in paper_table(table).cells
        if (cell.method, cell.dataset, cell.metric) == (method, dataset, metric)
    ]
    assert [(cell.value, cell.correction) for cell in cells] == [(printed, correct)]


def test_unknown_table_is_met_with_the_nearest():
    assert paper_table("3").id == "b2nlora"
    with pytest.raises(UsageError, match="Did you mean 'b2nlora'"):
        paper_table("b2nlra")
