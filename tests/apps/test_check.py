"""The data doctor: what it says about images and names before a run."""

import json

import numpy as np
import pytest
from PIL import Image

from shotfit.data.image_looks import look_at, near_duplicates


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


def test_nothing_is_said_about_good_images(shotfit, folder):
    code, said, problems = notes(shotfit, folder)
    assert (code, problems) == (0, [])
    for word in ("same", "colour", "tiny", "turned", "not read", "spelling", "uneven"):
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
        "1 pair of images look the same in different classes, so that one of them is wrong" in said
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
