"""The site is built strictly and loads nothing from elsewhere."""

import json
import re
import subprocess
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

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
        assert '<a href="https://' in text, "its paper is a click away"


@pytest.mark.xdist_group("site")
@pytest.mark.slow
def test_search_knows_methods_commands_and_python(site):
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    places = {entry["location"].split("#")[0] for entry in index["docs"]}
    assert {"methods/coop.html", "reference/commands.html", "errors/3.html"} <= places
    found = [e["location"] for e in index["docs"] if e["title"] == "shotfit fit"]
    assert found == ["reference/commands.html#shotfit-fit"]
    assert any("FewShotClassifier" in entry["title"] for entry in index["docs"])


def test_every_page_is_in_the_contents():
    text = (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8")
    shown = set(re.findall(r"[\w/-]+\.md", text.partition("\nnav:")[2]))
    pages = {path.relative_to(REPOSITORY / "docs") for path in (REPOSITORY / "docs").rglob("*.md")}
    assert not {page.as_posix() for page in pages} - shown


class Quiet(SimpleHTTPRequestHandler):
    """Files of a folder, and no word on them."""

    def log_message(self, format, *args):
        pass


@pytest.fixture(params=["from its folder", "from a server"])
def address(request, site):
    """Where the site is, as a browser asks for it."""
    if request.param == "from its folder":
        yield site.as_uri()
        return
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=site))
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.slow
def test_a_browser_finds_a_page_without_a_network(address, browser):
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = chromium.new_page()
        page.set_default_timeout(60_000)
        asked, wrong = [], []
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(f"{address}/index.html")
        page.locator(".md-search__input").first.click()
        page.locator(".md-search__input").first.press_sequentially("passive-aggressive")
        # The page first, then its section with the words; that link marks them.
        found = page.locator(".md-search-result__link[href*='passive']").first
        found.wait_for()
        found.click()
        page.wait_for_url("**/export.html*")
        assert page.locator("mark").first.inner_text().lower().startswith("passive")
        chromium.close()
    assert asked and all(url.startswith((address, "data:", "about:")) for url in asked)
    assert not wrong
