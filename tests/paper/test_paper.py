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


def printed(table, backbone, method, dataset, metric):
    found = [
        cell.value
        for cell in paper_table(table).cells
        if (cell.backbone, cell.method, cell.dataset, cell.metric)
        == (backbone, method, dataset, metric)
    ]
    assert len(found) == 1
    return found[0]


def test_the_numbers_in_the_notes_are_printed_ones():
    for method, dataset, alone, staged in (
        ("coop", "eurosat", "68.69", "65.66"),
        ("ivlp", "dtd", "66.82", "65.32"),
    ):
        assert printed("b2n-pl", "ViT-B/16", method, dataset, "hm") == alone
        assert printed("b2n-pl", "ViT-B/16", f"2sfs_{method}", dataset, "hm") == staged
    best = {"food101": ("maple", "82.1"), "oxford_pets": ("maple", "91.7")}
    best["caltech101"] = ("taskres", "95.7")
    for dataset, (method, value) in best.items():
        cells = [
            cell
            for cell in paper_table("all2all").cells
            if (cell.backbone, cell.dataset) == ("ViT-B/32", dataset)
        ]
        assert printed("all2all", "ViT-B/32", method, dataset, "accuracy") == value
        others = [float(cell.value) for cell in cells if cell.method not in (method, "zero_shot")]
        ranks = sorted({float(value), *others}, reverse=True)
        assert float(value) in ranks[: 1 if method == "maple" else 2]
