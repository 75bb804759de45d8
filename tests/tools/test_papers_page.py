"""docs/papers.md is what the docstrings and the paper say."""

import csv
import importlib.util
import sys
from pathlib import Path

import pytest

from shotfit.averages import harmonic_mean
from shotfit.methods import published_names

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tool():
    path = REPOSITORY / "pages" / "papers.py"
    spec = importlib.util.spec_from_file_location("papers_page", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_committed_page_is_up_to_date(tool):
    page = (REPOSITORY / "docs" / "papers.md").read_text(encoding="utf-8")
    message = "run make docs"
    assert page == tool.page(), message


def test_numbers_stand_beside_the_docstring(tool):
    text = tool.method_section("layernorm")
    assert "2SFS (LayerNorm), printed: base / novel / HM 85.55 / 75.48 / 80.20." in text


def test_every_word_for_a_method_is_on_the_page(tool):
    for name in (*published_names(), "linear"):
        assert f"`{name}`" in tool.page(), name


def test_numbers_of_other_sources_say_where_they_stand_and_what_was_chosen(tool):
    text = tool.method_section("gda")
    assert "- Elsewhere: ViT-B/16, base-to-novel 83.96 / 74.53 / 78.97† (averaged from" in text
    assert "† chosen: alpha on the whole validation split, of ImageNet on the test images" in text
    assert "all-to-all 82.97 (the authors' README)." in tool.method_section("clip_svd")
    assert "Elsewhere" not in tool.method_section("layernorm")
    assert "Tip-Adapter-F, printed: all-to-all 80.7†" in tool.method_section("tip_adapter")


def test_harmonic_means_of_other_sources_are_those_of_their_averages(tool):
    with tool.AVERAGES.open(encoding="utf-8", newline="") as file:
        rows = [row["values"].split(" / ") for row in csv.DictReader(file)]
    triples = [tuple(map(float, values)) for values in rows if len(values) == 3]
    assert len(triples) == 8
    for base, novel, mean in triples:
        assert harmonic_mean(base, novel) == pytest.approx(mean, abs=0.011)


def test_a_method_says_its_families(tool):
    for name in ("layernorm", "linear"):
        assert "- **Families.** clip, siglip.\n" in tool.method_section(name)


def test_docstrings_are_taken_apart(tool):
    title, parts = tool.parse_docstring(
        "A thing.\n\nPaper: X et al.,\nICML.\n\nMore.\n\nEquation: a_b `c_d` e*f.\n"
    )
    assert title == "A thing."
    assert parts == {"Paper": "X et al., ICML.", "Equation": r"a\_b `c_d` e\*f."}
