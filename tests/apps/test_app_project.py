"""The story of a project without a browser: name, show, check, fit, ask, correct, take away."""

import io
import re
import zipfile

import pytest
from conftest import shapes_dataset
from PIL import Image

from shotfit.apps.app.fitting import Fitting
from shotfit.apps.app.pictures import Limits, Pictures
from shotfit.apps.app.project import Project, Stopped
from shotfit.apps.app.unlabelled import Unlabelled
from shotfit.classifier import FewShotClassifier
from shotfit.data.inputs import as_dataset
from shotfit.data.sources.demo import load
from shotfit.errors import DataError, UsageError

DATA = shapes_dataset(4)
ICONS = load("animals")
SHOWN, NAMED = ("penguin", "maple leaf"), "crab"


def png(image):
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def uploads(color, part="train", count=2):
    label = DATA.classnames.index(color)
    own = [e for e in getattr(DATA, part) if e.label == label][:count]
    return [(e.key.replace("/", " "), png(e.image)) for e in own]


@pytest.fixture
def project(checkpoint, tmp_path):
    return Project(tmp_path / "shapes", str(checkpoint))


def icons(name, part="train", count=2):
    label = ICONS.classnames.index(name)
    own = [e for e in getattr(ICONS, part) if e.label == label][:count]
    return [(e.key.replace("/", " "), e.image) for e in own]


@pytest.fixture(scope="module")
def updates():
    """What the fit of `fitted` has told of its updates."""
    return []


@pytest.fixture(scope="module")
def fitted(tmp_path_factory, updates):
    """A project of icons whose classifier has trained classes and one name."""
    project = Project(tmp_path_factory.mktemp("fitted") / "animals")
    for name in SHOWN:
        project.add_pictures(name, icons(name))
    project.add_class(NAMED)
    project.fit(preset="fast", observe=updates.append)
    return project


def test_names_alone_answer_before_anything_is_fitted(project):
    with pytest.raises(DataError, match="Name a class first"):
        project.answers(uploads("red"))
    assert project.add_class("  red_circle ") == "red circle"
    project.add_class("green")
    (answers,) = project.answers(uploads("red", count=1))
    assert {one.name for one in answers} == {"red circle", "green"}
    assert sum(one.probability for one in answers) == pytest.approx(1)
    assert answers[0].probability >= answers[1].probability


def test_pictures_are_kept_as_a_manifest_that_fit_reads(project):
    added = project.add_pictures("red", [*uploads("red"), ("note.png", b"no picture")])
    assert added.count == 2
    assert [text for text in added.refused if "note.png is not an image" in text] != []
    project.add_pictures("green", uploads("green"))
    project.add_class("blue")
    dataset = as_dataset(project.pictures.manifest)
    assert dataset.classnames == ("red", "green") and len(dataset.train) == 4
    assert Project(project.folder).classes == ("red", "green", "blue")
    assert Project(project.folder).pictures.counts() == {"red": 2, "green": 2, "blue": 0}
    # Every picture has one class: the last that was said.
    assert project.add_pictures("red", uploads("red")).count == 0
    assert project.add_pictures("green", uploads("red", count=1)).count == 1
    assert project.pictures.counts() == {"red": 1, "green": 3, "blue": 0}
    (path,) = project.pictures.of("red")
    project.pictures.remove(path)
    assert not path.exists() and project.pictures.counts()["red"] == 0
    project.remove_class("green")
    assert project.classes == ("red", "blue")
    assert not list((project.folder / "pictures").iterdir())


def test_what_check_finds_is_told(project):
    assert project.diagnoses() == {"problems": [], "notes": []}
    blank = png(Image.new("RGB", (40, 40), "white"))
    project.add_pictures("red", [*uploads("red"), ("blank.png", blank)])
    project.add_class("blue")
    found = project.diagnoses()
    assert found["problems"] == []
    assert any("nearly one colour" in note for note in found["notes"])
    assert found["notes"][-1] == "known by their names alone: 'blue'"


def test_limits_are_told_in_sentences(checkpoint, tmp_path):
    project = Project(tmp_path, str(checkpoint), Limits(bytes=2000, pixels=2000, pictures=2))
    large = ("large.png", png(Image.effect_noise((60, 60), 90)))
    wide = ("wide.png", png(Image.new("RGB", (60, 60))))
    added = project.add_pictures("red", [large, wide, *uploads("red", count=3)])
    assert added.count == 2
    assert [text.split(";")[0] for text in added.refused] == [
        f"large.png has {len(large[1]):,} bytes",
        "wide.png has 3,600 pixels",
        "A project has at most 2 pictures.",
    ]
    with pytest.raises(DataError, match="at most 2,000"):
        project.answers([wide])
    with pytest.raises(DataError, match="control characters"):
        project.add_class("a\x1b[31mb")


def test_the_curve_of_a_fit(fitted, updates):
    stages = [update.stage for update in updates]
    assert sorted(set(stages)) == [0, 1] and stages == sorted(stages)
    last = updates[-1]
    assert last.iteration == last.total and last.loss >= 0 and 0 <= last.accuracy <= 100
    assert fitted.classifier.method.trained_names == SHOWN
    assert fitted.classifier.classes == (*SHOWN, NAMED)


def test_what_it_was_fitted_on_is_answered_rightly(fitted):
    shown = [*icons(SHOWN[0]), *icons(SHOWN[1])]
    answered = [row[0].name for row in fitted.answers(shown)]
    assert answered == [SHOWN[0]] * 2 + [SHOWN[1]] * 2


def test_a_project_goes_on_where_it_ended(fitted):
    again = Project(fitted.folder)
    asked = icons(NAMED, "test")
    assert again.answers(asked) == fitted.answers(asked)


def test_a_name_is_known_at_once_and_a_correction_counts(fitted):
    name = "gizmo"  # says nothing of what it looks like
    fitted.add_class(name)
    assert name in fitted.classifier.classes
    (shot,) = icons("octopus", count=1)
    before = {a.name: a.probability for a in fitted.answers([shot], top=9)[0]}
    said = fitted.correct(shot, name)
    assert "answers go by it at once" in said and shot[0] in said
    after = {a.name: a.probability for a in fitted.answers([shot], top=9)[0]}
    assert after[name] > before[name]
    assert dict(fitted.classifier.known.classes.origins)[name] == "name and 1 image"
    assert "next fit" in fitted.correct(icons(SHOWN[0], "test", 1)[0], SHOWN[0])
    assert fitted.pictures.counts()[SHOWN[0]] == 3
    with pytest.raises(DataError, match="there already"):
        fitted.correct(shot, name)
    fitted.remove_class(name)
    assert name not in fitted.classifier.classes


def test_report_and_archive(fitted, tmp_path):
    page = fitted.report().read_text()
    assert "shots of each class" in page and "2 trained on images, 1 added later" in page
    with zipfile.ZipFile(fitted.archive()) as archive:
        archive.extractall(tmp_path)
    again = FewShotClassifier.from_pretrained(tmp_path / "classifier")
    images = [content for _, content in icons(NAMED, "test")]
    assert again.predict(images) == fitted.classifier.predict(images)


def test_a_fit_can_be_stopped_and_what_it_cannot_do_is_told(project):
    with pytest.raises(UsageError, match="fit one first"):
        project.archive()
    project.add_pictures("red", uploads("red"))
    with pytest.raises(DataError, match="two classes"):
        project.fit(preset="instant")
    project.add_pictures("green", uploads("green"))
    seen = []
    with pytest.raises(Stopped, match="before it is still there"):
        project.fit(preset="fast", observe=seen.append, stopped=lambda: len(seen) == 3)
    assert len(seen) == 3 and project.fitted is None


def test_a_method_that_takes_no_images_for_names_learns_in_the_next_fit(project):
    for color in ("red", "green"):
        project.add_pictures(color, uploads(color))
    project.add_class("blue")
    project.fit(preset="instant")
    assert "next fit" in project.correct(uploads("blue")[0], "blue")
    assert "blue" in project.classifier.classes


def test_a_manifest_that_leads_outside_is_refused(tmp_path):
    (tmp_path / "secret.png").write_bytes(b"secret")
    inside = tmp_path / "project"
    inside.mkdir()
    (inside / "pictures.csv").write_text("path,label\n../secret.png,red\n")
    with pytest.raises(DataError, match="leads outside"):
        Pictures(inside)


def test_a_fit_beside_the_page_tells_where_it_is(project):
    for color in ("red", "green"):
        project.add_pictures(color, uploads(color))
    fitting = Fitting(project, preset="fast")
    assert "choosing" in fitting.told() or "update" in fitting.told()
    while fitting.wait(0.05):
        assert fitting.told()
    count = len(fitting.updates)
    assert re.fullmatch(rf"Fitted in \d+ s, {count} updates\.", fitting.told())
    assert fitting.curves().count("<svg") == 2 and project.fitted is not None
    before = project.fitted
    stopped = Fitting(project, preset="fast")
    stopped.stop()
    while stopped.wait(1):
        pass
    assert "classifier before it is still there" in stopped.told() and project.fitted is before
    failed = Fitting(Project(project.folder / "empty"), preset="fast")
    failed.wait(60)
    assert failed.told() == "The fit failed: A fit needs pictures of two classes at least."


def next_of(queue):
    found = queue.next()
    assert found is not None
    return found


def test_pictures_wait_for_labels_and_become_the_projects(project, tmp_path):
    folder = tmp_path / "unsorted"
    folder.mkdir()
    for color in ("red", "green"):
        for name, content in uploads(color, "test"):
            (folder / name).write_bytes(content)
    (folder / "broken.png").write_bytes(b"no picture")
    project.add_pictures("red", uploads("red"))
    project.add_class("green")
    # What has a label is not asked for.
    (known, content), *_ = uploads("red")
    (folder / known).write_bytes(content)
    queue = Unlabelled(project, [folder])
    assert len(queue.waiting) == 4 and len(queue.refused) == 1
    first = next_of(queue)
    assert {one.name for one in first.answers} == {"red", "green"}
    assert "next fit" in queue.label(first.path, "green")
    assert project.pictures.label_of(first.path.read_bytes()) == "green"
    second = next_of(queue)
    assert second.path != first.path and queue.done == 1
    queue.skip(second.path)
    queue.again()
    assert next_of(queue).path not in (first.path, second.path)
    with pytest.raises(UsageError, match="does not wait"):
        queue.label(first.path, "red")
    for _ in range(2):
        queue.skip(next_of(queue).path)
    assert queue.next() is None
    with pytest.raises(DataError, match="No images"):
        Unlabelled(project, [project.folder / "classifier", tmp_path / "none*"])
