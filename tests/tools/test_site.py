"""The site is built strictly, loads nothing from elsewhere, and what it shows runs."""

import io
import json
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from shotfit.methods import list_methods

REPOSITORY = Path(__file__).parents[2]
HEADINGS = [
    *("Paper", "Equation", "Deviations", "Novel categories", "When to prefer it"),
    *("Use", "Options", "Published numbers", "Models"),
]
# What a browser fetches by itself, unlike a link that a reader may follow.
FETCHED = re.compile(r'(?:src|data-src)="(https?:[^"]+)"|<link[^>]+href="(https?:[^"]+)"')


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder]
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_nothing_is_loaded_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 50
    for page in pages:
        assert not FETCHED.findall(page.read_text(encoding="utf-8")), page


@pytest.mark.slow
def test_every_method_has_its_page_with_the_same_headings(site):
    for name in list_methods():
        text = (site / "methods" / f"{name}.html").read_text(encoding="utf-8")
        assert re.findall(r"<h2[^>]*>([^<]+)", text) == HEADINGS, name


@pytest.mark.slow
def test_search_knows_methods_commands_and_python(site):
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    places = {entry["location"].split("#")[0] for entry in index["docs"]}
    assert {"methods/coop.html", "reference/commands.html", "errors/3.html"} <= places
    found = [e["location"] for e in index["docs"] if e["title"] == "shotfit fit"]
    assert found == ["reference/commands.html#shotfit-fit"]
    assert any("FewShotClassifier" in entry["title"] for entry in index["docs"])


def runs(page):
    """Blocks of a page that follow <!-- run -->, each with the block of its output, if any."""
    text = (REPOSITORY / "docs" / page).read_text(encoding="utf-8")
    block = r"<!-- run -->\n```(?:python|shell)\n(.*?)```\n(?:\n```\n(.*?)```\n)?"
    return re.findall(block, text, re.DOTALL)


def test_the_first_page_runs_and_prints_what_it_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    shown = runs("index.md")
    assert len(shown) == 2 and sum(code.count("\n") for code, _ in shown) <= 30
    for code, printed in shown:
        out = io.StringIO()
        with redirect_stdout(out):
            exec(compile(code, "index.md", "exec"), names)
        assert out.getvalue() == printed
    assert (tmp_path / "model" / "shotfit.json").exists()


@pytest.mark.parametrize("code", [2, 3])
def test_examples_of_exit_codes(shotfit, tmp_path, monkeypatch, code):
    monkeypatch.chdir(tmp_path)
    [(line, _)] = runs(f"errors/{code}.md")
    _, *words = shlex.split(line)
    assert shotfit(*words)[0] == code
