"""The notebooks are whole and small, and a run gives what they show."""

import ast

import nbformat
import notebook_pages
import page_code
import pytest

NAMES = sorted(notebook_pages.notebooks())
LARGEST = 400_000
"""Bytes of a notebook with its pictures."""


def read(name):
    return nbformat.read(notebook_pages.notebooks()[name], as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def printed(notebook):
    """What each cell has printed, and how many pictures it has drawn."""
    return [
        (
            page_code.without_what_varies("".join(one.get("text", "") for one in cell.outputs)),
            sum("image/png" in one.get("data", {}) for one in cell.outputs),
        )
        for cell in code_cells(notebook)
    ]


def test_all_are_found():
    assert NAMES == ["new-classes", "own-pictures", "two-stages"]


@pytest.mark.parametrize("name", NAMES)
def test_it_is_whole_and_was_run_from_top_to_bottom(name):
    notebook = read(name)
    nbformat.validate(notebook)
    cells = code_cells(notebook)
    for cell in cells:
        ast.parse(cell.source)
        assert not [one for one in cell.outputs if one.output_type == "error"]
        assert not [one for one in cell.outputs if one.get("name") == "stderr"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert any(drawn for _, drawn in printed(notebook))
    assert notebook_pages.notebooks()[name].stat().st_size < LARGEST


@pytest.mark.parametrize("name", NAMES)
def test_its_page_has_its_text_and_its_pictures(name):
    text, pictures = notebook_pages.page(notebook_pages.notebooks()[name])
    notebook = read(name)
    assert text.startswith("# ")
    assert len(pictures) == sum(drawn for _, drawn in printed(notebook))
    for picture in pictures:
        assert f"]({picture})" in text
    for cell in code_cells(notebook):
        assert cell.source in text


@pytest.mark.slow
@pytest.mark.pages
@pytest.mark.parametrize("name", NAMES)
def test_a_run_prints_what_it_shows(name):
    assert printed(notebook_pages.run(notebook_pages.notebooks()[name])) == printed(read(name))
