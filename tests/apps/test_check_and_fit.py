"""`check` and `fit` refuse the same data, in the same words and with the same exit code, and what
one takes the other takes."""

import json
import os
import re
from pathlib import Path

import pytest
from PIL import Image

BACKBONE = Path(__file__).parent.parent / "formats" / "backbone"


def folder(top, classes=("red", "blue"), parts=("train", "test")):
    for part in parts:
        for name in classes:
            (top / part / name).mkdir(parents=True)
            for number in range(2):
                shade = 10 * number + 40 * len(part)
                color = (200, shade, 90) if name == classes[0] else (9, 80, shade)
                Image.new("RGB", (20, 20 + number), color).save(top / part / name / f"{number}.png")
    return top


def manifest(top, text, name="all.csv"):
    folder(top)
    (top / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return top / name


def changed(change):
    def make(top):
        change(folder(top))
        return top

    return make


def rows(*lines, columns="path,label,split"):
    good = ("train/red/0.png,red,train", "train/blue/0.png,blue,train")
    return lambda top: manifest(top, "\n".join((columns, *good, *lines)) + "\n")


def fifo(top):
    os.mkfifo(top / "pipe.png")
    return manifest(top, "path,label\ntrain/red/0.png,red\npipe.png,blue\n")


def link_to_nothing(top):
    (top / "train" / "red" / "2.png").symlink_to(top / "gone.png")


def renamed(name):
    return lambda top: (top / "classnames.json").write_text(json.dumps({"red": name}))


def truncated(part):
    def change(top):
        path = top / part / "red" / "0.png"
        path.write_bytes(path.read_bytes()[:60])

    return changed(change)


def no_image(part):
    return changed(lambda top: (top / part / "red" / "0.png").write_bytes(b"no image"))


def copied(*classes):
    """Test images of some classes alone, each the copy of one that trains."""

    def change(top):
        for name in ("red", "blue"):
            for path in sorted((top / "test" / name).iterdir()):
                path.write_bytes((top / "train" / name / path.name).read_bytes())
                if name not in classes:
                    path.unlink()
            if name not in classes:
                (top / "test" / name).rmdir()

    return changed(change)


def one_of_each(top):
    """An image a class, and the same ones as test images: no fold can spare one."""
    folder(top)
    for part in ("train", "test"):
        for name in ("red", "blue"):
            (top / part / name / "1.png").unlink()
            image = (top / "train" / name / "0.png").read_bytes()
            (top / part / name / "0.png").write_bytes(image)
    return top


REFUSED = {
    "nothing there": lambda top: top / "photos",
    "no class folders": lambda top: top,
    "an empty class": changed(lambda top: (top / "train" / "green").mkdir()),
    "a class in test alone": changed(lambda top: (top / "test" / "green").mkdir()),
    "no image": no_image("train"),
    "no image in test": no_image("test"),
    "a truncated image": truncated("train"),
    "a truncated image in test": truncated("test"),
    "a link to nothing": changed(link_to_nothing),
    "a pipe": fifo,
    "an empty name": changed(renamed(" ")),
    "control characters in a name": changed(renamed("a\x1b[31m")),
    "a name too long for the model": changed(renamed("red " * 40)),
    "names that are a list": changed(lambda top: (top / "classnames.json").write_text("[1]")),
    "names that are no text": changed(renamed(7)),
    "broken names": changed(lambda top: (top / "classnames.json").write_text("{")),
    "names of other folders": changed(
        lambda top: (top / "classnames.json").write_text('{"green": "a"}')
    ),
    "no label": rows("train/red/1.png,,train"),
    "no such column": lambda top: manifest(top, "file,class\na.png,red\n"),
    "an unknown split": rows("train/red/1.png,red,training"),
    "two names of a label": rows(
        "train/red/1.png,red,train,crimson", columns="path,label,split,name"
    ),
    "an image that is missing": rows("train/red/7.png,red,train"),
    "a class without training images": rows("test/red/0.png,green,test"),
    "only test images": lambda top: manifest(top, "path,label,split\ntest/red/0.png,red,test\n"),
    "an empty manifest": lambda top: manifest(top, "path,label\n"),
    "no text": lambda top: manifest(top, b"path,label\n\xff\xfe,red\n"),
    "a long field": rows("a" * 200_000 + ",red,train"),
    "a line that is no JSON": lambda top: manifest(
        top, '{"path": "train/red/0.png", "label": "red"}\n{\n', "all.jsonl"
    ),
    "a line that is no object": lambda top: manifest(
        top, '{"path": "train/red/0.png", "label": "red"}\n[]\n', "all.jsonl"
    ),
}
TAKEN = {
    "copies of one class": copied("red"),
    "one image a class, and its copy": one_of_each,
    "good folders": folder,
    "no test part": lambda top: folder(top, parts=("train",)),
    "a single class": lambda top: folder(top, classes=("red",)),
    "names that become one prompt": lambda top: folder(top, classes=("red_x", "red-x")),
    "a label that is no number": rows("train/red/1.png,²,train", "test/red/1.png,²,test"),
    "a label of 5,000 digits": rows(
        f"train/red/1.png,{'9' * 5000},train", f"test/red/1.png,{'9' * 5000},test"
    ),
    "copies in train and test": changed(
        lambda top: (top / "test/red/0.png").write_bytes((top / "train/red/0.png").read_bytes())
    ),
}


def checked(shotfit, data, *options):
    code, out, err = shotfit("check", data, "--backbone", BACKBONE, "--json", "-q", *options)
    return code, [*(json.loads(out)["problems"] if out else ()), err]


def fitted(shotfit, data, out, *options):
    few = ("--iters-per-shot", "4", "--published-scores", "-q")
    return shotfit("fit", data, "--backbone", BACKBONE, "--out", out, *few, *options)


def core(text):
    """A sentence without what surrounds it."""
    text = re.sub(r"^(shotfit: )?(A text|The prompt of '.*?') has", "has", text.strip())
    return re.sub(r"\W+", " ", text.removeprefix("shotfit: ")).strip().lower()


@pytest.mark.filterwarnings("ignore:More than one class")
@pytest.mark.parametrize("kind", REFUSED)
def test_both_refuse(kind, shotfit, tmp_path):
    (tmp_path / "data").mkdir()
    data = REFUSED[kind](tmp_path / "data")
    code, told = checked(shotfit, data)
    fit_code, _, said = fitted(shotfit, data, tmp_path / "out")
    assert code == fit_code == 3, (said, told)
    assert any(core(said) in core(one) or core(one) in core(said) for one in told if core(one)), (
        said,
        told,
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.filterwarnings("ignore:More than one class")
@pytest.mark.parametrize("kind", TAKEN)
def test_both_take(kind, shotfit, tmp_path):
    (tmp_path / "data").mkdir()
    data = TAKEN[kind](tmp_path / "data")
    code, told = checked(shotfit, data)
    fit_code, _, said = fitted(shotfit, data, tmp_path / "out")
    assert code == fit_code == 0, (said, told)


@pytest.mark.parametrize("kind", ["copies of one class", "one image a class, and its copy"])
def test_both_say_where_there_is_nothing_to_measure_on(kind, shotfit, tmp_path):
    """Once all had been trained and saved, and it ended as if the data were wrong."""
    (tmp_path / "data").mkdir()
    data = TAKEN[kind](tmp_path / "data")
    _, out, _ = shotfit("check", data, "--backbone", BACKBONE, "--json", "-q")
    assert any(
        "every test image is a training image too" in one for one in json.loads(out)["notes"]
    )
    _, out, _ = fitted(shotfit, data, tmp_path / "out", "--json")
    found = json.loads(out)
    assert "cannot be cross-validated" in found["not_evaluated"] and "evaluation" not in found
    _, out, _ = fitted(shotfit, data, tmp_path / "again")
    assert "Not evaluated. The classifier was trained on all these images" in out
    code, _, said = shotfit("evaluate", tmp_path / "out", data, "--backbone", BACKBONE, "-q")
    assert code == 3 and "cannot be cross-validated" in said


def test_both_refuse_more_shots_than_there_are_images(shotfit, tmp_path):
    data = folder(tmp_path / "data")
    code, told = checked(shotfit, data, "--shots", "5")
    fit_code, _, said = fitted(shotfit, data, tmp_path / "out", "--shots", "5")
    assert code == fit_code == 3
    assert core(said) in map(core, told), (said, told)
