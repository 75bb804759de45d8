"""The page of a classifier: what it says, that it loads nothing, and that a browser shows it."""

import shutil
from html.parser import HTMLParser

import pytest
from conftest import shapes_dataset
from example_images import picture

from shotfit.classifier import FewShotClassifier
from shotfit.recipe import Recipe, Stage
from shotfit.report.classifier_page import PageFacts, classifier_page

RECIPE = Recipe(
    (
        Stage("layernorm", training={"iterations": 4, "lr": 1e-2}),
        Stage("linear", training={"iterations": 8, "lr": 1e-2}),
    )
)


@pytest.fixture(scope="module")
def model(checkpoint, tmp_path_factory):
    fitted = FewShotClassifier(str(checkpoint), RECIPE).fit(shapes_dataset(4), shots=3)
    return fitted.save_pretrained(tmp_path_factory.mktemp("report") / "shapes")


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    data = shapes_dataset(4)
    for number, example in enumerate(data.test):
        place = folder / data.classnames[example.label]
        place.mkdir(exist_ok=True)
        picture(example).save(place / f"{number}.png")
    return folder


class Page(HTMLParser):
    """Tags with their attributes, and whether each is closed."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_tells_what_an_evaluation_found_and_loads_nothing(
    model, photos, tmp_path, shotfit
):
    out = tmp_path / "page.html"
    code, text, _ = shotfit("report", model, photos, "--out", out, "-q")
    assert code == 0 and str(out) in text
    page = out.read_text()
    classifier = FewShotClassifier.from_pretrained(model)
    found = classifier.evaluate(shapes_dataset(4))
    assert f"{found.accuracy.percent:.1f} %</p>" in page
    assert found.zero_shot_accuracy is not None
    assert f"Without any training: {found.zero_shot_accuracy.percent:.1f} %" in page
    for title in (
        *("Result", "How it was made", "Training", "Reliability", "Classes", "Confusions"),
        *("Names outside the task", "Environment and hashes", "Without test images"),
    ):
        assert f"<h2>{title}</h2>" in page
    parsed = Page(page)
    assert not parsed.open
    # Nothing from elsewhere, nothing that runs.
    assert "script" not in [tag for tag, _ in parsed.tags]
    for _, attributes in parsed.tags:
        for key in ("src", "href"):
            assert attributes.get(key, "#").startswith(("data:image/jpeg;base64,", "#"))
    assert "default-src 'none'" in page and "@import" not in page and "url(" not in page
    pictures = [attributes for tag, attributes in parsed.tags if tag == "img"]
    wrong = found.accuracy.images - found.accuracy.right
    assert len(pictures) == min(12, wrong) and all(one["alt"] for one in pictures)
    # For keyboards and screen readers, phones, and dark rooms.
    assert any(tag == "a" and one.get("class") == "skip" for tag, one in parsed.tags)
    assert all(one.get("scope") for tag, one in parsed.tags if tag == "th")
    assert all(
        one.get("aria-label") or one.get("aria-hidden") for tag, one in parsed.tags if tag == "svg"
    )
    assert "prefers-color-scheme: dark" in page and "width=device-width" in page
    assert ":focus-visible" in page


def test_without_images_the_page_has_what_is_known(model, shotfit):
    code, text, _ = shotfit("report", model, "-q")
    assert code == 0
    page = (model / "report.html").read_text()
    assert "It was not scored on images" in page
    assert "mean cosine of" in page
    # It stays when the folder is saved again.
    FewShotClassifier.from_pretrained(model).save_pretrained(model)
    assert (model / "report.html").is_file()
    code, _, err = shotfit("report", model, "--out", model / "none" / "page.html")
    assert code == 2 and "no folder" in err


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("evaluation.json", "[" * 100_000),
        ("evaluation.json", "[1]"),
        ("evaluation.json", '{"metrics": {}, "classes": 7}'),
        ("record.json", '{"a":' * 100_000),
        ("record.json", '{"schema": 1, "curve": 3}'),
    ],
)
def test_what_is_none_of_its_files_is_said(model, tmp_path, shotfit, name, content):
    folder = shutil.copytree(model, tmp_path / "copy")
    (folder / "report.html").unlink(missing_ok=True)
    (folder / name).write_text(content)
    code, _, said = shotfit("report", folder, "-q")
    assert code == 3 and name in said and not (folder / "report.html").exists()


def test_names_are_written_harmlessly():
    facts = PageFacts(
        title="<script>alert(1)</script>",
        about=[("data", '"><img src=x onerror=alert(1)>')],
        stages={"<b>": [(1, 2.0), (2, 1.0)]},
        advice=["<i>\x1b[31m"],
    )
    parsed = Page(classifier_page(facts))
    assert not {"script", "img", "b", "i"} & {tag for tag, _ in parsed.tags}


def test_a_browser_shows_it(model, photos, tmp_path, shotfit, screenshot):
    out = tmp_path / "page.html"
    assert shotfit("report", model, photos, "--out", out, "-q")[0] == 0
    screenshot(out)
