"""Splits made from raw downloads: names, order, proportions; and the MAT-files two of them read."""

import base64
import dataclasses
import json
import os
from pathlib import Path

import pytest

from shotfit.data.benchmark.facts import find_benchmark
from shotfit.data.benchmark.making_splits import make_split, write_made_split
from shotfit.data.benchmark.matfile import read_mat
from shotfit.data.benchmark.published_lists import LISTS, has_published_lists
from shotfit.data.checks import missing_files
from shotfit.data.dataset import list_hash
from shotfit.data.sources.coop import load
from shotfit.data.task import sample_shots
from shotfit.errors import DataError, UsageError

CLASSNAMES = {
    # capitals sort first, renaming comes after, so the names are not in alphabetical order
    "caltech101": ("face", "leopard", "motorbike", "accordion", "airplane", "yin_yang"),
    "dtd": ("banded", "polka-dotted"),
    "eurosat": ("Annual Crop Land", "Forest", "Highway or Road", "Sea or Lake"),
    "food101": ("apple_pie", "waffles"),
    "oxford_flowers": ("pink primrose", "hard-leaved pocket orchid", "canterbury bells"),
    "oxford_pets": ("abyssinian", "american_bulldog", "maine_coon"),
    "stanford_cars": ("2000 AM General Hummer SUV", "2012 Acura TL Sedan", "2012 BMW M3 Coupe"),
    "sun397": ("abbey", "outdoor apartment_building", "wheat_field"),
    "ucf101": ("Apply_Eye_Makeup", "Yo_Yo", "Archery"),
}
# train, val, test of every class
SIZES = dict.fromkeys(CLASSNAMES, (5, 2, 3))
SIZES |= dict.fromkeys(("oxford_pets", "ucf101"), (4, 1, 3))
SIZES |= {"stanford_cars": (4, 1, 2), "sun397": (4, 1, 5)}

# Two numbers, uncompressed, by scipy.io.savemat: labels = [[7, 300]].
UNCOMPRESSED = (
    "TUFUTEFCIDUuMCBNQVQtZmlsZSBQbGF0Zm9ybTogcG9zaXgsIENyZWF0ZWQgb246IFNhdCBOb3YgMjEgMDU6MDY6NDYg"
    "MjAyNgAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAABSU0OAAAAOAAAAAYA"
    "AAAIAAAACwAAAAAAAAAFAAAACAAAAAEAAAACAAAAAQAAAAYAAABsYWJlbHMAAAQABAAHACwB"
)


@pytest.mark.parametrize("name", CLASSNAMES)
def test_a_split_is_made_from_the_raw_files(replica, name: str) -> None:
    root = replica(name)
    made = make_split(root, name, seed=3)
    assert made.classnames == CLASSNAMES[name]
    for split, size in zip((made.train, made.val, made.test), SIZES[name], strict=True):
        counts = [sum(e.label == label for e in split) for label in range(len(made.classnames))]
        assert counts == [size] * len(made.classnames)
    keys = [e.key for e in (*made.train, *made.val, *made.test)]
    assert len(set(keys)) == len(keys)
    assert missing_files(made) == []
    assert make_split(root, name, seed=3) == made
    assert make_split(root, name, seed=4).train != made.train


@pytest.mark.parametrize("name", ["caltech101", "oxford_pets"])
def test_a_made_split_does_not_pass_for_the_published_one(replica, name: str) -> None:
    root = replica(name)
    path = write_made_split(root, name)
    assert "Not the published split" in json.loads(path.read_text())["note"]
    with pytest.raises(DataError, match=rf"is missing.*{path.name}"):
        load(root, name)
    dataset = load(root, name, split_file=path.name, keep_underscores=True)
    assert dataset == make_split(root, name)


def test_labels_belong_to_their_images(replica) -> None:
    root = replica("oxford_flowers", "oxford_pets", "stanford_cars", "ucf101", "sun397")
    flowers = make_split(root, "flowers")
    labels = {e.key: e.label for e in (*flowers.train, *flowers.val, *flowers.test)}
    # labels count from 1 in the files; the first ten images are of class 2
    assert (labels["image_00001.jpg"], labels["image_00011.jpg"]) == (1, 0)
    # classes come in the order of their first image, as in the published file
    assert [flowers.train[i].label for i in (0, 5, 10)] == [1, 0, 2]
    cars = make_split(root, "cars")
    assert {e.key: e.label for e in cars.test}["cars_test/00001.jpg"] == 2
    pets = make_split(root, "pets")
    assert {e.key: e.label for e in pets.test}["Maine_Coon_7.jpg"] == 2
    ucf = make_split(root, "ucf101")
    assert ucf.test[0].key == "Apply_Eye_Makeup/v_ApplyEyeMakeup_g01_c01.jpg"
    sun = make_split(root, "sun397")
    assert sun.test[5].key == "a/apartment_building/outdoor/sun_5.jpg"


def test_datasets_with_official_lists_need_no_split(replica) -> None:
    root = replica("fgvc_aircraft")
    with pytest.raises(UsageError, match="no split to make"):
        make_split(root, "fgvc")
    with pytest.raises(UsageError, match="Unknown dataset"):
        make_split(root, "cifar")


@pytest.mark.parametrize(
    ("name", "file", "text", "message"),
    [
        ("oxford_pets", "annotations/test.txt", None, "test.txt is missing"),
        ("oxford_pets", "annotations/test.txt", "Abyssinian_1 1\n", "4 columns"),
        ("oxford_pets", "annotations/test.txt", "Abyssinian_1 x 1 1\n", "class number"),
        ("oxford_pets", "annotations/trainval.txt", "Bombay_1 4 1 1\n", "too few images"),
        ("sun397", "Training_01.txt", "/b/bar/1.jpg\n", "not in ClassName.txt"),
        ("ucf101", "ucfTrainTestlist/trainlist01.txt", "Bowling/v.avi 9\n", "not an action"),
        ("oxford_flowers", "cat_to_name.json", "{}", "no name for the label 2"),
        ("oxford_flowers", "cat_to_name.json", "{", "cannot be read"),
        ("stanford_cars", "devkit/cars_meta.mat", None, "cannot be read"),
        ("stanford_cars", "devkit/cars_meta.mat", "MATLAB 7.3", "not a MATLAB level 5 file"),
    ],
)
def test_faults_of_raw_files_are_named(replica, name, file, text, message) -> None:
    root = replica(name)
    path = root / name / file
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    with pytest.raises(DataError, match=message):
        make_split(root, name)


def test_a_folder_with_too_few_images_is_named(replica) -> None:
    root = replica("dtd")
    for image in sorted((root / "dtd" / "images" / "banded").iterdir())[2:]:
        image.unlink()
    with pytest.raises(DataError, match="'banded' .* too few images to split: 2"):
        make_split(root, "dtd")
    with pytest.raises(DataError, match="food-101 of Food101 is missing"):
        make_split(root, "food101")


def test_mat_files_cut_anywhere_are_data_errors(tmp_path: Path) -> None:
    data = base64.b64decode(UNCOMPRESSED)
    path = tmp_path / "labels.mat"
    path.write_bytes(data)
    assert read_mat(path) == {"labels": [7, 300]}
    for length in (0, 100, 130, 140, 150, 170, len(data) - 8):
        path.write_bytes(data[:length])
        with pytest.raises(DataError, match="labels.mat"):
            read_mat(path)


SAME = ("oxford_flowers", "oxford_pets", "stanford_cars", "ucf101")


@pytest.mark.data
@pytest.mark.parametrize("name", SAME)
def test_the_default_seed_makes_these_published_splits(name: str) -> None:
    root = Path(os.environ["SHOTFIT_DATA"])
    if not find_benchmark(name).directory(root).exists():
        pytest.skip(f"{name} is not among the benchmark files")
    assert has_published_lists(make_split(root, name)) is True
    assert has_published_lists(make_split(root, name, seed=2)) is False
    published = load(root, name, keep_underscores=True)
    made = make_split(root, name)
    assert (made.train, made.val, made.test) == (published.train, published.val, published.test)


def test_a_split_is_the_published_one_by_its_lists_alone(replica, monkeypatch) -> None:
    root = replica("oxford_pets", "food101")
    pets = make_split(root, "oxford_pets")
    assert has_published_lists(pets) is False
    assert has_published_lists(make_split(root, "food101")) is None
    lists = [sample_shots(pets, 16, seed, allow_fewer=True)[0] for seed in (1, 2, 3)]
    digits = " ".join(list_hash(examples)[:12] for examples in lists)
    monkeypatch.setitem(LISTS, "oxford_pets", digits)
    assert has_published_lists(pets) is True
    # Another order of the same images is another split: few-shot draws depend on it.
    assert has_published_lists(dataclasses.replace(pets, train=pets.train[::-1])) is False
    assert has_published_lists(make_split(root, "oxford_pets", seed=2)) is False
    assert json.loads(write_made_split(root, "oxford_pets").read_text())["note"].endswith(
        "The published split: its few-shot lists have the published hashes."
    )


def test_the_command_makes_a_split_and_says_what_it_is(replica, shotfit) -> None:
    root = replica("oxford_pets")
    code, out, _ = shotfit("splits", "from-raw", "pets", "--root", root, "--seed", "3")
    path = root / "oxford_pets" / "split_shotfit_OxfordPets-seed_3.json"
    assert (code, path.is_file()) == (0, True)
    assert str(path) in out and "Not the published split" in out
    assert shotfit("splits", "from-raw", "fgvc", "--root", root)[0] == 2
    assert shotfit("splits", "from-raw", "dtd", "--root", root)[0] == 3
