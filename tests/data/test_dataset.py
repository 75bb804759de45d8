"""Shots, tasks, sources, batches."""

import dataclasses
import hashlib
import itertools
import json
import random
import struct
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from conftest import SPEC, make_support, shapes_dataset
from PIL import Image, ImageOps

from shotfit.data.checks import check_split
from shotfit.data.dataset import Dataset, Example, Split, select_classes, split_hash
from shotfit.data.images import open_image
from shotfit.data.inputs import locate
from shotfit.data.prefetch import Loading
from shotfit.data.sources import load_dataset
from shotfit.data.support_set import SupportSet
from shotfit.data.task import make_task, sample_shots, split_base_novel
from shotfit.data.transforms import augment, draw_crop, prepare
from shotfit.errors import DataError, UsageError


def picture(path, color="red", size=(20, 16)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, color).save(path)
    return path


@pytest.fixture
def folder(tmp_path):
    for name in ("black_cat", "dog"):
        for n in range(3):
            picture(tmp_path / "photos" / name / f"{n}.png")
    return tmp_path / "photos"


def test_sampling_is_coops_rule():
    """One Python stream: classes by first appearance, training before validation."""
    labels = [3, 1, 1, 3, 0, 0, 3, 1, 0, 3]
    train = tuple(Example(f"t{n}", label, b"") for n, label in enumerate(labels))
    val = tuple(Example(f"v{n}", label, b"") for n, label in enumerate(reversed(labels)))
    dataset = Dataset("d", ("a", "b", "c", "d"), train, val)
    drawn = sample_shots(dataset, 2, seed=3)
    random_state = random.getstate()
    random.seed(3)
    expected = []
    for examples, order in ((train, (3, 1, 0)), (val, (3, 0, 1))):
        for label in order:
            expected += random.sample([e for e in examples if e.label == label], 2)
    random.setstate(random_state)
    assert [e.key for part in drawn for e in part] == [e.key for e in expected]


@pytest.mark.parametrize(("classes", "base", "novel"), [(10, 5, 5), (37, 19, 18), (47, 24, 23)])
def test_base_is_the_larger_half(classes, base, novel):
    first, second = split_base_novel(classes)
    assert (len(first), len(second)) == (base, novel)
    assert [*first, *second] == list(range(classes))


def test_both_settings_train_on_the_same_images():
    dataset = shapes_dataset()
    half = make_task(dataset, "base_to_novel", 2, 1)
    whole = make_task(dataset, "all_to_all", 2, 1)
    base = {e.key for e in half.support.examples}
    assert base == {e.key for e in whole.support.examples if e.label < 3}
    assert half.tests["novel"].examples[0].label == 0
    assert half.split_hash != whole.split_hash
    assert half.split_hash == make_task(dataset, "base_to_novel", 2, 1).split_hash


def test_too_few_images_name_the_class():
    with pytest.raises(DataError, match="'red' of shapes has 6 training images, fewer than the 9"):
        sample_shots(shapes_dataset(), 9, 1)
    with pytest.raises(UsageError, match="at least 1"):
        sample_shots(shapes_dataset(), 0, 1)


def test_duplicate_names_keep_their_rows():
    dataset = shapes_dataset(4)
    dataset = Dataset("twins", ("red", "blue", "red", "blue"), dataset.train, (), dataset.test)
    task = make_task(dataset, "all_to_all", 2, 1)
    assert task.support.classnames == ("red", "blue", "red", "blue")
    with pytest.warns(UserWarning, match="'blue', 'red'"):
        check_split(task.support)


def test_folder(folder):
    dataset = load_dataset("folder", path=str(folder))
    assert dataset.classnames == ("black cat", "dog")
    assert [e.key for e in dataset.train[:2]] == ["black_cat/0.png", "black_cat/1.png"]
    (folder / "classnames.json").write_text(json.dumps({"dog": "big dog"}))
    assert load_dataset("folder", path=str(folder)).classnames == ("black cat", "big dog")


def test_folder_with_splits(folder, tmp_path):
    for part in ("train", "test"):
        for name in ("cat", "dog"):
            picture(tmp_path / "split" / part / name / "1.png")
    dataset = load_dataset("folder", path=str(tmp_path / "split"))
    assert (len(dataset.train), len(dataset.test), len(dataset.val)) == (2, 2, 0)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: [p.unlink() for p in (f / "dog").iterdir()], "dog holds no images"),
        (lambda f: (f / "classnames.json").write_text("[]"), "classnames.json"),
        (lambda f: (f / "classnames.json").write_text('{"cow": "x"}'), "do not exist"),
        (lambda f: (f / "dog" / "0.png").write_text("hello"), r"0\.png is not an image"),
        (lambda f: (f / "dog" / "0.png").write_bytes(b"\x89PNG\r\n\x1a\n"), r"dog/0\.png"),
        (lambda f: (f / "classnames.json").write_text('{"dog": "  "}'), "is empty"),
    ],
)
def test_bad_folders_name_the_file(folder, spoil, message):
    spoil(folder)
    with pytest.raises(DataError, match=message):
        load_and_check(folder)


def load_and_check(folder):
    dataset = load_dataset("folder", path=str(folder))
    support = make_task(dataset, "all_to_all", None, 1).support
    check_split(support)
    SupportSet(support, SPEC, random.Random(1)).decode()


def test_empty_and_missing_folders(tmp_path):
    with pytest.raises(DataError, match="no sub-folders"):
        load_dataset("folder", path=str(tmp_path))
    with pytest.raises(DataError, match="no folder"):
        load_dataset("folder", path=str(tmp_path / "nothing"))
    with pytest.raises(DataError, match="no embedded task"):
        locate("animls-nowhere")


def test_a_task_is_found_beside_a_fit_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "food").mkdir()
    (tmp_path / "food" / "shotfit.json").write_text("{}")
    assert locate("food") == ("demo", {"name": "food"})
    (tmp_path / "food" / "apple").mkdir()
    assert locate("food") == ("folder", {"path": "food"})


def test_truncated_image_is_named(tmp_path):
    path = tmp_path / "half.jpg"
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(noise).save(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(DataError, match=r"half\.jpg cannot be read.*truncated"):
        open_image(path)


def test_decompression_bomb_is_refused(tmp_path, monkeypatch):
    path = picture(tmp_path / "bomb.png", size=(300, 300))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(DataError, match=r"bomb\.png claims"):
        open_image(path)


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tiff"])
@pytest.mark.parametrize("orientation", [*range(1, 9), 0, 9])
def test_exif_orientation_is_respected(tmp_path, suffix, orientation):
    noise = np.random.default_rng(0).integers(0, 255, (10, 30, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / f"turned.{suffix}"
    Image.fromarray(noise).save(path, exif=exif)
    with Image.open(path) as image:
        expected = ImageOps.exif_transpose(image)
        assert expected.size == ((10, 30) if orientation in range(5, 9) else (30, 10))
    assert np.array_equal(np.asarray(open_image(path)), np.asarray(expected))


def exif_entries(*entries):
    """An EXIF block with these entries: tag, type, count, four bytes of value."""
    body = b"".join(struct.pack("<HHI4s", *entry) for entry in entries)
    return b"Exif\0\0II*\0" + struct.pack("<IH", 8, len(entries)) + body + bytes(4)


TURNED = (0x0112, 3, 1, b"\6\0\0\0")
DAMAGED = {
    "text as a resolution": (exif_entries(TURNED, (0x011A, 2, 4, b"abc\0")), (10, 30)),
    "text as a width": (exif_entries(TURNED, (0x0100, 2, 4, b"abc\0")), (10, 30)),
    "no EXIF at all": (b"Exif\0\0nonsense", (30, 10)),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_damaged_exif_costs_no_more_than_the_orientation(tmp_path, kind):
    exif, size = DAMAGED[kind]
    path = tmp_path / "damaged.jpg"
    Image.new("RGB", (30, 10), "red").save(path, exif=exif)
    if kind == "text as a width":  # and the resolution, but for Pillow 11.0
        with Image.open(path) as image, pytest.raises((struct.error, TypeError)):
            ImageOps.exif_transpose(image)
    assert open_image(path).size == size


@pytest.mark.parametrize("error", [struct.error("bad"), KeyError("bad"), AssertionError()])
def test_whatever_a_decoder_stumbles_over_is_the_files_fault(tmp_path, monkeypatch, error):
    path = picture(tmp_path / "bad.png")
    monkeypatch.setattr(Image, "open", Mock(side_effect=error))
    with pytest.raises(DataError, match=r"bad\.png cannot be read as an image: .*(bad|Asser)"):
        open_image(path)
    monkeypatch.setattr(Image, "open", Mock(side_effect=MemoryError))
    with pytest.raises(MemoryError):
        open_image(path)


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_manifests(tmp_path, suffix):
    rows = [
        {"path": "a.png", "label": "1", "name": "blue", "split": "train"},
        {"path": "b.png", "label": "0", "name": "red", "split": "train"},
        {"path": "c.png", "label": "0", "name": "red", "split": "test"},
    ]
    file = tmp_path / f"list.{suffix}"
    if suffix == "csv":
        lines = [",".join(rows[0]), *(",".join(row.values()) for row in rows)]
    else:
        lines = [json.dumps(row) for row in rows]
    file.write_text("\n".join(lines) + "\n")
    source, options = locate(str(file))
    assert source == "csv"
    dataset = load_dataset(source, **options)
    assert dataset.classnames == ("red", "blue")
    assert [e.label for e in dataset.train] == [1, 0]
    assert [e.key for e in dataset.test] == ["c.png"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("path,name\na.png,x\n", "line 2: no label"),
        ("path,label,split\na.png,x,training\n", "line 2: split 'training'"),
        ("path,label,name\na.png,0,x\nb.png,0,y\n", "line 3: label '0' is named"),
        ("path,label\n", "lists no images"),
        ("path,label,split\na.png,x,test\n", "no training images"),
    ],
)
def test_bad_manifests_name_the_line(tmp_path, text, message):
    file = tmp_path / "list.csv"
    file.write_text(text)
    with pytest.raises(DataError, match=message):
        load_dataset("csv", path=str(file))


def test_source_options_are_strict():
    with pytest.raises(UsageError, match="Did you mean 'folder'"):
        load_dataset("foldr", path="x")
    with pytest.raises(UsageError, match="Did you mean 'path'"):
        load_dataset("folder", pth="x")
    with pytest.raises(UsageError, match="needs path"):
        load_dataset("folder")


def test_batches_cover_an_epoch_and_repeat_with_the_seed(task):
    first = list(itertools.islice(make_support(task).batches(5), 6))
    again = list(itertools.islice(make_support(task).batches(5), 6))
    assert [len(labels) for _, labels in first] == [5, 5, 2, 5, 5, 2]
    assert all(torch.equal(a[0], b[0]) for a, b in zip(first, again, strict=True))
    epoch = torch.cat([labels for _, labels in first[:3]])
    assert sorted(epoch.tolist()) == sorted(task.support.labels)
    assert not torch.equal(first[0][0], first[3][0])
    dropped = itertools.islice(make_support(task).batches(5, drop_last=True), 4)
    assert [len(labels) for _, labels in dropped] == [5, 5, 5, 5]
    only = next(make_support(task).batches(64, drop_last=True))
    assert len(only[1]) == 12


def test_threads_do_not_change_batches(task):
    loadings = [Loading(workers=n) for n in (1, 4)]
    sets = [SupportSet(task.support, SPEC, random.Random(1), loading) for loading in loadings]
    one, four = (next(support.batches(12)) for support in sets)
    assert torch.equal(one[0], four[0])


def test_crops_stay_inside_and_cover_the_scale():
    stream = random.Random(0)
    areas = []
    for _ in range(500):
        crop = draw_crop((60, 40), stream)
        left, top, right, bottom = crop.box
        assert 0 <= left < right <= 60
        assert 0 <= top < bottom <= 40
        areas.append((right - left) * (bottom - top) / 2400)
    assert min(areas) < 0.15
    assert max(areas) > 0.85
    stretched = draw_crop((1000, 10), stream).box
    assert stretched[3] - stretched[1] == 10


def test_augmentation_mirrors():
    from shotfit.data.transforms import Crop

    image = Image.fromarray(np.arange(48, dtype=np.uint8).reshape(4, 4, 3))
    straight = augment(image, Crop((0, 0, 4, 4), False), SPEC)
    mirrored = augment(image, Crop((0, 0, 4, 4), True), SPEC)
    assert np.allclose(straight[:, :, ::-1], mirrored, atol=0.05)


@pytest.mark.parametrize("size", [(40, 30), (31, 57), (224, 224), (33, 32), (300, 41)])
def test_test_pixels_are_those_of_transformers(size):
    from pil_processors import CLIPImageProcessorPil

    noise = np.random.default_rng(1).integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)
    image = Image.fromarray(noise)
    processor = CLIPImageProcessorPil(
        size={"shortest_edge": SPEC.resize}, crop_size={"height": SPEC.size, "width": SPEC.size}
    )
    expected = processor(images=image, return_tensors="np")["pixel_values"][0]
    assert np.array_equal(prepare(image, SPEC), expected)


@pytest.mark.parametrize(
    ("suffix", "text", "message"),
    [
        (".csv", "path,label\na.png,²\na.png,1\n", None),
        (".csv", f"path,label\na.png,{'7' * 5000}\n", None),
        (".csv", f"path,label\na.png,{'x' * 140_000}\n", "line 2: not CSV|field larger"),
        (".jsonl", "[" * 100_000 + "\n", "line 1: not JSON"),
        (".jsonl", '{"path": "a.png", "label": ' + "9" * 5000 + "}\n", "line 1: not JSON"),
    ],
    ids=["digit-that-int-refuses", "long-number", "long-field", "deep", "long-integer"],
)
def test_a_manifest_of_rubbish_is_data_or_a_data_error(tmp_path, suffix, text, message):
    path = tmp_path / f"rubbish{suffix}"
    path.write_text(text, encoding="utf-8")
    if message is None:
        assert len(load_dataset("csv", path=str(path)).classnames) == text.count("a.png")
        return
    with pytest.raises(DataError, match=message):
        load_dataset("csv", path=str(path))


def test_classes_are_selected_with_what_the_source_says():
    examples = tuple(Example(f"{label}.png", label, Path(f"{label}.png")) for label in (2, 0, 1, 2))
    source = Dataset("d", ("a", "b", "c"), examples, template="a {} here.", reduced=True)
    split = select_classes(examples, source, [2, 0])
    assert split.classnames == ("c", "a")
    assert [(e.key, e.label, e.image) for e in split.examples] == [
        ("2.png", 0, Path("2.png")),
        ("0.png", 1, Path("0.png")),
        ("2.png", 0, Path("2.png")),
    ]
    assert (split.template, split.reduced) == ("a {} here.", True)
    plain = select_classes(examples, dataclasses.replace(source, reduced=False), [1])
    assert plain.reduced is False


def test_the_hash_of_a_split_stays_what_it_was():
    """Records of all times are compared by it."""
    one = Split(("café", "b"), (Example("a/é.png", 0, b""), Example("b.png", 1, b"")))
    text = r'[[["caf\u00e9", "b"], [["a/\u00e9.png", 0], ["b.png", 1]]]]'
    assert split_hash(one) == hashlib.sha256(text.encode()).hexdigest()[:12]
    assert split_hash(one, one) != split_hash(one)
