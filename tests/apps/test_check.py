"""The data doctor: what it says about images and names before a run."""

import json
import os
import re

import numpy as np
import pytest
from conftest import SPEC, WordTokenizer, make_backbone, tiny_clip
from PIL import Image, ImageDraw

from shotfit.apps.check.by_model import model_findings
from shotfit.apps.check.classes import looks_like_code
from shotfit.apps.check.diagnosis import CheckReport, Diagnosis, ShownImage
from shotfit.apps.check.showing import write_report
from shotfit.backbone import Backbone
from shotfit.data.dataset import Dataset, Example
from shotfit.data.image_looks import look_at, near_duplicates
from shotfit.data.sources import load_dataset
from shotfit.errors import DataError


def picture(seed, size=64):
    generator = np.random.default_rng(seed)
    coarse = generator.integers(0, 256, (6, 6, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((size, size), Image.Resampling.BICUBIC)


@pytest.fixture
def folder(tmp_path):
    """Two classes of three different images each."""
    top = tmp_path / "photos"
    for label, name in enumerate(("polar_bear", "zebra")):
        (top / name).mkdir(parents=True)
        for number in range(3):
            picture(10 * label + number).save(top / name / f"{number}.png")
    return top


def notes(shotfit, folder):
    code, out, _ = shotfit("check", folder, "--json")
    found = json.loads(out)
    return code, "\n".join(found["notes"]), found["problems"]


def test_copies_are_found_however_they_were_saved():
    one = picture(1)
    looks = [look_at(p) for p in (one, picture(2), one.resize((48, 48)), one.copy())]
    assert near_duplicates(looks) == [(0, 2), (0, 3), (2, 3)]
    assert looks[0].exact == looks[3].exact != looks[2].exact
    # Everything looks like nothing.
    blank = look_at(Image.new("RGB", (30, 30), "white"))
    assert blank.blank and not blank.tiny and near_duplicates([blank, blank]) == []
    assert look_at(picture(1, 16)).tiny


def test_drawings_of_one_outline_are_no_copies():
    looks = []
    for colour in ("red", "green", "black"):
        drawing = Image.new("RGB", (64, 64), "white")
        ImageDraw.Draw(drawing).ellipse((8, 8, 56, 56), fill=colour)
        looks.append(look_at(drawing))
    assert looks[0].near == looks[1].near == looks[2].near
    assert near_duplicates(looks) == []


def test_nothing_is_said_about_good_images(shotfit, folder):
    code, said, problems = notes(shotfit, folder)
    assert (code, problems) == (0, [])
    for word in (
        "same",
        "looks like",
        "colour",
        "tiny",
        "turned",
        "not read",
        "spelling",
        "uneven",
    ):
        assert word not in said


def test_copies_are_told_by_what_they_do(shotfit, folder):
    picture(0).save(folder / "polar_bear" / "again.png")
    picture(1).resize((50, 50)).save(folder / "zebra" / "other.jpg", quality=85)
    test = folder.parent / "split"
    for part in ("train", "test"):
        (test / part).mkdir(parents=True)
        for name in ("polar_bear", "zebra"):
            (test / part / name).mkdir()
            picture(len(name)).save(test / part / name / "0.png")
    said = notes(shotfit, folder)[1]
    assert "1 pair of images are the same in one class" in said
    assert (
        "1 pair of images look the same in different classes: one label is wrong, or nothing "
        "tells them apart" in said
    )
    assert "other.jpg (zebra)" in said
    said = notes(shotfit, test)[1]
    assert "2 pairs of images are the same in training and in test, which flatters" in said


def test_blank_tiny_turned_and_skipped_files_are_told(shotfit, folder):
    Image.new("RGB", (40, 40), "white").save(folder / "zebra" / "blank.png")
    picture(30, 12).save(folder / "zebra" / "tiny.png")
    exif = Image.Exif()
    exif[0x0112] = 6
    picture(31).save(folder / "zebra" / "turned.jpg", exif=exif)
    for number in range(2):
        (folder / "zebra" / f"{number}.jxl").write_bytes(b"not for Pillow")
    (folder / "zebra" / "broken.png").write_bytes(b"\x89PNG")
    (folder / "zebra" / "cut.png").write_bytes((folder / "zebra" / "0.png").read_bytes()[:300])
    code, said, problems = notes(shotfit, folder)
    # It goes on after the first problem, and after all of them.
    assert code == 3 and len(problems) == 2
    assert "1 image is nearly one colour: zebra/blank.png" in said
    assert "1 image is tiny: zebra/tiny.png" in said
    assert "1 image is turned upright by their EXIF" in said
    assert "2 .jxl files are not read" in said


def test_names_that_are_one_prompt_and_uneven_classes(shotfit, tmp_path):
    rows = ["path,label"]
    for number in range(12):
        picture(number).save(tmp_path / f"{number}.png")
        name = "polar_bear" if number == 0 else "polar-bear" if number < 5 else "Zebra"
        rows.append(f"{tmp_path / f'{number}.png'},{name}")
    manifest = tmp_path / "list.csv"
    manifest.write_text("\n".join(rows))
    said = notes(shotfit, manifest)[1]
    assert "'polar bear' and 'polar-bear' differ in spelling alone" in said
    assert "classes are uneven: the smallest, 'polar bear', has 1 of the largest's 7 images" in said


def test_every_problem_is_told_where_a_fit_stops_at_the_first(shotfit, tmp_path, folder):
    (folder / "empty").mkdir()
    (folder / "classnames.json").write_text('{"unicorn": "Unicorn"}')
    (folder / "zebra" / "0.png").write_bytes(b"none")
    with pytest.raises(DataError, match="unicorn"):
        load_dataset("folder", path=str(folder))
    found = notes(shotfit, folder)
    assert found[0] == 3 and len(found[2]) == 3
    for word in ("unicorn", "class folder", "0.png"):
        assert any(word in problem for problem in found[2]), word
    manifest = tmp_path / "list.csv"
    rows = ["path,label,split", "a.png,zebra,train", ",zebra,train", "b.png,,test", "c.png,x,none"]
    manifest.write_text("\n".join(rows))
    code, _, problems = notes(shotfit, manifest)
    assert code == 3 and [line for line in problems if "list.csv" in line] == [
        f"{manifest}, line 3: no path (columns found: path, label, split).",
        f"{manifest}, line 4: no label (columns found: path, label, split).",
        f"{manifest}, line 5: split 'none' is none of train, val, test.",
    ]
    assert f"There is no image file {tmp_path / 'a.png'}." in problems


@pytest.mark.parametrize("name", ["n01440764", "class 3", "0012", "label_12", "3f2a9b1c", "747"])
def test_codes_are_no_words(name):
    assert looks_like_code(name)


@pytest.mark.parametrize("name", ["boeing 747", "defaced", "7 up", "f 16", "category theory"])
def test_words_are_no_codes(name):
    assert not looks_like_code(name)


def named(*names):
    examples = tuple(
        Example(f"{n}", n, picture(n, 32)) for n, _ in enumerate(names) for _ in range(2)
    )
    return Dataset("named", names, examples, test=examples)


def test_a_prompt_is_too_long_by_the_tokenizer_of_the_model_to_the_token():
    backbone = make_backbone()
    # "a photo of a {}." has five tokens beside the name, and the text two ends.
    fits, too_long = " ".join(["w"] * 70), " ".join(["w"] * 71)
    assert not [f for f in model_findings(named(fits, "cat"), backbone, None)[0] if f.level]
    found = model_findings(named(too_long, "cat"), backbone, None)[0]
    assert [one.level for one in found] == ["error"]
    assert "has 78 tokens; this model reads 77" in found[0].text
    with pytest.raises(DataError, match="78 tokens"):
        backbone.encode_text([f"a photo of a {too_long}."])


class CasedTokenizer(WordTokenizer):
    """Tells capitals from small letters."""

    def __call__(self, texts):
        marked = [re.sub(r"([A-Z])", r"capital \1", text) for text in texts]
        return super().__call__(marked)


def test_capitals_are_told_to_a_model_that_sees_them():
    found, _ = model_findings(named("Zebra", "cat"), make_backbone(), None)
    assert "capitals" not in [one.kind for one in found]
    cased = Backbone.from_model(tiny_clip(), CasedTokenizer(), SPEC, name="cased")
    found, _ = model_findings(named("Zebra", "cat"), cased, None)
    assert [one.text for one in found if one.kind == "capitals"] == [
        "cased reads capital letters as other words than lower case, in which most captions are "
        "written: 'Zebra'"
    ]
    # And names that are one text to a model that does not.
    found, _ = model_findings(named("Polish", "polish"), make_backbone(), None)
    assert "tiny reads 'Polish' and 'polish' as the same text" in [one.text for one in found]


@pytest.fixture(scope="module")
def mistaken(tmp_path_factory):
    """Six classes of an embedded task, with one image in the folder of another class."""
    top = tmp_path_factory.mktemp("mistaken") / "food"
    data = load_dataset("demo", name="food")
    for label in range(6):
        (top / data.classnames[label]).mkdir(parents=True)
    for number, example in enumerate(data.train):
        if example.label < 6:
            place = top / data.classnames[example.label] / f"{number}.png"
            place.write_bytes(example.image)
    names = sorted(path.name for path in top.iterdir())
    wrong = sorted((top / names[0]).iterdir())[0]
    return top, wrong.rename(top / names[1] / "wrong.png"), names


def test_a_wrong_label_is_found_and_shown(shotfit, mistaken, tmp_path):
    top, wrong, names = mistaken
    out = tmp_path / "check.json"
    code, said, _ = shotfit("check", top, "--out", out, "-q")
    assert code == 0 and "No problems found" in said
    assert f"wrong.png is labelled {names[1]!r} and looks like {names[0]!r}" in said
    found = json.loads(out.read_text())
    about = [one for one in found["diagnoses"] if one["kind"] == "mislabelled"]
    assert about[0]["images"] == [
        {
            "image": f"{names[1]}/wrong.png",
            "class": names[1],
            "group": 0,
            "note": f"looks like {names[0]!r}",
        }
    ]
    assert len(about) <= 3
    assert found["model"]["images"] == found["images"]["train"] == 30
    assert "looks like" not in shotfit("check", top, "--no-model")[1]
    page = tmp_path / "check.html"
    assert shotfit("check", top, "--out", page, "-q")[0] == 0
    text = page.read_text()
    assert "Nothing would stop a fit." in text and "Warning: mislabelled" in text
    assert text.count('<img src="data:image/jpeg;base64,') >= 1
    for _, address in re.findall(r'(src|href)="([^"]*)"', text):
        assert address.startswith(("data:image/jpeg;base64,", "#"))
    assert "default-src 'none'" in text and "<script" not in text


def test_a_page_is_written_whatever_is_in_it(tmp_path):
    bad = ShownImage("<b>.png", "<script>", tmp_path / "gone.png", "<i>")
    diagnoses = (
        Diagnosis("unreadable", "<script>alert(1)</script>", "error"),
        Diagnosis("copies", "two", groups=((bad, bad),)),
        Diagnosis("mislabelled", "one", groups=((bad,),)),
        Diagnosis("mislabelled", "another", groups=((bad,),)),
    )
    report = CheckReport("<b>", (("<i>", 3), ("b", 0)), {"train": 3}, diagnoses)
    write_report(report, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert not re.search(r"<(script|b|i)>(?!(&lt;|looks))", page.replace("<b>&lt;i&gt;</b>", ""))
    assert "A fit would stop: 1 error." in page and page.count("no picture") == 4


@pytest.mark.parametrize("options", [["--out", "x.txt"], ["--out", "none/x.html"]])
def test_where_to_write_is_asked_before_the_work(shotfit, folder, options):
    assert shotfit("check", folder, *options)[0] == 2


def test_a_model_that_is_not_there_is_one_problem_of_many(shotfit, folder):
    (folder / "zebra" / "0.png").write_bytes(b"none")
    code, out, _ = shotfit("check", folder, "--backbone", "none/such")
    assert code == 3 and out.count("problem: ") == 2
    assert shotfit("check", folder, "--backbone", "none/such", "--no-model")[0] == 2


def test_a_browser_shows_the_page(shotfit, mistaken, tmp_path, screenshot):
    out = tmp_path / "page.html"
    assert shotfit("check", mistaken[0], "--out", out, "-q")[0] == 0
    screenshot(out)
    assert os.path.getsize(out) < 200_000
