"""The site is built strictly and loads nothing from elsewhere."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

from shotfit.methods import list_methods

REPOSITORY = Path(__file__).parents[2]
HEADINGS = [
    *("Paper", "Equation", "Deviations", "Novel categories", "When to prefer it"),
    *("Use", "Options", "Published numbers", "Models"),
]
# What a browser fetches by itself, unlike a link that a reader may follow.
FETCHED = re.compile(r'(?:src|data-src)="(https?:[^"]+)"|<link[^>]+href="(https?:[^"]+)"')


@pytest.fixture(scope="module")
def site(tmp_path_factory, worker_id):
    base = tmp_path_factory.getbasetemp()
    # Tests that run side by side share one: building takes some ten seconds.
    folder = (base if worker_id == "master" else base.parent) / "site"
    with FileLock(folder.with_suffix(".lock")):
        if not folder.exists():
            words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
            words += ["--site-dir", str(folder)]
            done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.xdist_group("site")
@pytest.mark.slow
def test_nothing_is_loaded_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 50
    for page in pages:
        assert not FETCHED.findall(page.read_text(encoding="utf-8")), page


@pytest.mark.xdist_group("site")
@pytest.mark.slow
def test_every_method_has_its_page_with_the_same_headings(site):
    for name in list_methods():
        text = (site / "methods" / f"{name}.html").read_text(encoding="utf-8")
        assert re.findall(r"<h2[^>]*>([^<]+)", text) == HEADINGS, name


@pytest.mark.xdist_group("site")
@pytest.mark.slow
def test_search_knows_methods_commands_and_python(site):
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    places = {entry["location"].split("#")[0] for entry in index["docs"]}
    assert {"methods/coop.html", "reference/commands.html", "errors/3.html"} <= places
    found = [e["location"] for e in index["docs"] if e["title"] == "shotfit fit"]
    assert found == ["reference/commands.html#shotfit-fit"]
    assert any("FewShotClassifier" in entry["title"] for entry in index["docs"])
