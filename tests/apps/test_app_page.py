"""The page of `shotfit app`, as a person uses it, in a real browser; nothing comes from elsewhere.

With SHOTFIT_SCREENSHOTS naming a folder, the pictures that are taken on the way are kept there.
"""

import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

import pytest

from shotfit.classifier import FewShotClassifier
from shotfit.data.images import open_image
from shotfit.data.sources.demo import load

SOURCE = str(Path(__file__).parents[2] / "src")
ICONS = load("animals")
# The server itself says so when it asks anybody but this computer.
WATCHED = """
import socket, sys
connect = socket.socket.connect
def watched(self, address):
    if isinstance(address, tuple) and address[0] not in ("127.0.0.1", "::1", "localhost"):
        print("CONNECTS TO", address, file=sys.stderr, flush=True)
    return connect(self, address)
socket.socket.connect = watched
from shotfit.apps.cli import main
main()
"""
CAMERA = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")
"""A green picture in place of a camera's, and no question whether the page may have it."""
FILMING = """() => {
  const video = document.querySelector("video");
  return video && video.videoWidth > 0 && video.readyState > 2;
}"""
PATIENCE = 400_000
"""Milliseconds: machines that run other things too are slow."""


def write_icons(folder, name, part="train", count=3):
    folder.mkdir(parents=True, exist_ok=True)
    label = ICONS.classnames.index(name)
    own = [e for e in getattr(ICONS, part) if e.label == label][:count]
    paths = [folder / f"{name} {number}.png" for number in range(len(own))]
    for path, example in zip(paths, own, strict=True):
        path.write_bytes(example.image)
    return paths


class Served:
    """`shotfit app` or `shotfit label` on a free port."""

    def __init__(self, log, *words):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url, self.log = f"http://127.0.0.1:{port}", log
        arguments = [*map(str, words), "--port", str(port), "--no-browser"]
        with log.open("w") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-c", WATCHED, *arguments],
                env={**os.environ, "PYTHONPATH": SOURCE},
                stdout=file,
                stderr=file,
            )
        end = time.monotonic() + 180
        while self.status() != 200:
            assert self.process.poll() is None and time.monotonic() < end, log.read_text()
            time.sleep(0.3)

    def status(self, **headers):
        try:
            request = urllib.request.Request(self.url, headers=headers)
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=30)


@pytest.fixture
def project(tmp_path):
    return tmp_path / "project"


@pytest.fixture
def served(project, tmp_path):
    pytest.importorskip("gradio")
    served = Served(tmp_path / "server.log", "app", project)
    yield served
    served.stop()


@pytest.fixture
def tab(browser, served, tmp_path):
    """A browser's tab that shows the page, and has nothing to complain about in the end."""
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=browser, args=["--no-sandbox", *CAMERA])
        context = chromium.new_context(
            viewport={"width": 1280, "height": 900}, permissions=["camera"]
        )
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        asked, complaints = [], []
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.goto(served.url)
        yield page
        chromium.close()
    foreign = [url for url in asked if not url.startswith((served.url, "data:", "blob:"))]
    assert asked and not foreign
    assert not [text for text in complaints if "Content Security Policy" in text]
    assert "CONNECTS TO" not in served.log.read_text()


def picture_of(page, name):
    folder = os.environ.get("SHOTFIT_SCREENSHOTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.wait_for_timeout(500)
        page.screenshot(path=str(Path(folder) / f"{name}.png"), full_page=True)


def open_tab(page, name):
    shown = page.get_by_role("tab", name=name, exact=True)
    if not shown.first.is_visible():  # on a narrow page, some are behind a menu
        page.locator(".overflow-menu > button").click()
        shown = page.locator(".overflow-dropdown button", has_text=name)
    shown.first.click()


def give(page, place, paths):
    page.locator(f"#{place} input[type=file]").set_input_files([str(path) for path in paths])


@pytest.mark.slow
def test_the_whole_story_in_a_browser(tab, project, tmp_path):
    tab.get_by_text("No class yet.").wait_for()
    name_and_show(tab, tmp_path)
    fit(tab)
    ask_and_correct(tab, tmp_path)
    label(tab, tmp_path)
    take_away(tab, tmp_path)
    # A telephone's width: nothing has to be moved sideways.
    tab.set_viewport_size({"width": 390, "height": 844})
    for name in ("Pictures", "Fit", "Try", "Label", "Result"):
        open_tab(tab, name)
        tab.wait_for_timeout(1500)
        picture_of(tab, f"narrow-{name.lower()}")
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390, name


def name_and_show(tab, tmp_path):
    tab.get_by_role("button", name="Load an example").click()
    tab.get_by_role("row", name=re.compile("penguin 5")).wait_for()
    name = tab.locator("#class-name input")
    name.fill("maple leaf")
    name.press("Enter")
    broken = tmp_path / "note.png"
    broken.write_bytes(b"no picture")
    give(tab, "class-files", [*write_icons(tmp_path / "new", "maple leaf"), broken])
    tab.get_by_text("3 pictures of 'maple leaf' taken.").wait_for()
    tab.get_by_text("note.png is not an image that can be read").wait_for()
    tab.get_by_role("row", name=re.compile("maple leaf 3")).wait_for()
    tab.get_by_role("button", name="Check the pictures").click()
    tab.locator("#diagnoses li, #diagnoses p").first.wait_for()
    picture_of(tab, "wide-pictures")


def fit(tab):
    open_tab(tab, "Fit")
    tab.locator("#time").get_by_text("Fast", exact=True).click()
    tab.get_by_role("button", name="Fit", exact=True).click()
    tab.locator("#curves svg").first.wait_for()
    picture_of(tab, "wide-fitting")
    tab.get_by_text(re.compile(r"Fitted in \d+ s, \d+ updates")).wait_for()
    assert tab.locator("#curves svg").count() == 2
    picture_of(tab, "wide-fit")


def ask_and_correct(tab, tmp_path):
    open_tab(tab, "Try")
    new = [
        *write_icons(tmp_path / "ask", "penguin", "test", 1),
        *write_icons(tmp_path / "ask", "maple leaf", "test", 1),
        *write_icons(tmp_path / "ask", "octopus", "test", 2),
    ]
    give(tab, "ask-files", new)
    answers = tab.locator("#answers button.thumbnail-item, #answers .thumbnail-item")
    answers.nth(3).wait_for()
    assert "octopus" not in tab.locator("#answers").inner_text()
    tab.locator("#new-class input, #new-class textarea").fill("octopus")
    tab.get_by_role("button", name="Add class").click()
    tab.get_by_text("'octopus' is answered with from now on.").wait_for()
    answers.nth(3).click()
    tab.locator("#correction").get_by_text("octopus", exact=True).click()
    tab.get_by_text(
        re.compile("is a picture of 'octopus' now; answers go by it at once")
    ).wait_for()
    picture_of(tab, "wide-try")


def label(tab, tmp_path):
    unsorted = tmp_path / "unsorted"
    for name in ("crab", "butterfly"):
        write_icons(unsorted, name, "test")
    open_tab(tab, "Label")
    tab.locator("#label-folder input, #label-folder textarea").fill(str(unsorted))
    tab.get_by_role("button", name="Open", exact=True).click()
    tab.locator("#to-label img").wait_for()
    picture_of(tab, "wide-label")
    tab.locator("#label-choice label").first.click()
    tab.get_by_text(re.compile("^1 labelled, 3 left")).wait_for()
    tab.get_by_role("button", name="Skip").click()
    tab.get_by_text(re.compile("^1 labelled, 2 left")).wait_for()


def take_away(tab, tmp_path):
    open_tab(tab, "Result")
    report = tab.frame_locator("#report iframe")
    report.get_by_role("heading", name="How it was made").wait_for()
    picture_of(tab, "wide-result")
    with tab.expect_download() as started:
        tab.locator("#downloads a").first.click()
    with zipfile.ZipFile(started.value.path()) as archive:
        archive.extractall(tmp_path / "taken")
    classifier = FewShotClassifier.from_pretrained(tmp_path / "taken" / "classifier")
    assert classifier.classes == ("penguin", "crab", "butterfly", "maple leaf", "octopus")


@pytest.mark.slow
def test_a_picture_is_taken_with_the_camera_and_removed_with_its_class(tab, project):
    tab.get_by_text("No class yet.").wait_for()
    name = tab.locator("#class-name input")
    name.fill("green")
    name.press("Enter")
    tab.get_by_text("Take a picture").click()
    tab.get_by_text("Click to Access Webcam").click()
    tab.wait_for_function(FILMING)
    tab.get_by_label("capture photo").click()
    tab.get_by_text("1 picture of 'green' taken.").wait_for()
    [path] = (project / "pictures").iterdir()
    red, green, blue = open_image(path).resize((1, 1)).tobytes()
    assert green > 2 * max(red, blue)
    # One picture takes no more room than one of many, and the columns stay side by side.
    picture = tab.locator("#class-gallery .thumbnail-item").bounding_box()
    assert picture["width"] < 200
    assert picture["y"] < tab.locator("#class-files").bounding_box()["y"] + 200
    for scheme in ("dark", "light"):
        tab.emulate_media(color_scheme=scheme)
        tab.wait_for_function(f"document.body.classList.contains('dark') == {scheme == 'dark':d}")
        assert contrast(tab, ".said") > 4.5
        assert contrast(tab, "#class-table td") > 4.5
        picture_of(tab, f"camera-{scheme}")
    tab.get_by_role("button", name="Remove the class").click()
    tab.get_by_text("'green' and its pictures are removed.").wait_for()
    assert not list((project / "pictures").iterdir())


def contrast(page, place):
    """How much lighter one of text and page is than the other (WCAG 2, section 1.4.3)."""

    def luminance(color):
        values = [int(value) / 255 for value in re.findall(r"\d+", color)[:3]]
        linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values]
        return sum(w * v for w, v in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    look = "element => getComputedStyle(element).color"
    text = luminance(page.locator(place).first.evaluate(look))
    ground = luminance(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    return (max(text, ground) + 0.05) / (min(text, ground) + 0.05)


@pytest.mark.slow
def test_pages_of_others_are_not_answered_nor_open_ones_waited_for(served):
    assert served.status() == 200
    assert served.status(Host="attacker.example") == 400
    with urllib.request.urlopen(f"{served.url}/gradio_api/heartbeat/one", timeout=60) as kept:
        assert kept.headers["content-type"].startswith("text/event-stream")
        kept.read(1)
        served.stop()
    said = served.log.read_text().splitlines()
    assert len(said) == 1 and said[0].startswith("ShotFit is at"), said


def test_without_gradio_the_extra_is_named(shotfit, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "gradio", None)
    monkeypatch.delitem(sys.modules, "shotfit.apps.app.server", raising=False)
    code, _, err = shotfit("app", tmp_path / "project", "--no-browser")
    assert code == 2 and "pip install 'shotfit[app]'" in err
