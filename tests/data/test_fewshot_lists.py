"""Few-shot lists: the sampling rule, both file forms, and what `verify` reports."""

import hashlib
import json
import os
import random
from pathlib import Path

import pytest

from shotfit.data.benchmark.facts import find_benchmark
from shotfit.data.dataset import Dataset, Example, list_hash
from shotfit.data.fewshot_lists import (
    fewshot_path,
    make,
    read_fewshot,
    verify,
    write_fewshot,
)
from shotfit.data.sources.coop import load
from shotfit.data.task import make_task, sample_shots
from shotfit.errors import DataError


def synthetic(
    name: str, train: dict[int, int], val: int, *, shuffle: bool = False, prefix: str = ""
) -> Dataset:
    """A dataset of listed images: {label: training images}, the labels in order of appearance."""

    def examples(split: str, counts: dict[int, int]) -> tuple[Example, ...]:
        keys = [
            (f"{prefix}class_{label}/{split}_{number}.jpg", label)
            for label, count in counts.items()
            for number in range(count)
        ]
        if shuffle:
            random.Random(0).shuffle(keys)
        return tuple(Example(key, label, Path(key)) for key, label in keys)

    return Dataset(
        name=name,
        classnames=tuple(f"class {label}" for label in sorted(train)),
        train=examples("train", train),
        val=examples("val", dict.fromkeys(train, val)),
        test=examples("test", dict.fromkeys(train, 2)),
    )


def draw_as_described(dataset: Dataset, shots: int, seed: int) -> tuple[list[str], list[str]]:
    """CoOp's rule, written from its description only: one global stream, train, then val."""
    state = random.getstate()
    random.seed(seed)
    drawn: list[list[str]] = []
    for items, count in ((dataset.train, shots), (dataset.val, min(shots, 4))):
        order: list[int] = []
        for item in items:
            if item.label not in order:
                order.append(item.label)
        keys: list[str] = []
        for label in order:
            keys += random.sample([item.key for item in items if item.label == label], count)
        drawn.append(keys)
    random.setstate(state)
    return drawn[0], drawn[1]


@pytest.mark.parametrize("shots", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("shuffle", [False, True])
def test_the_draw_is_the_described_one(shots: int, seed: int, shuffle: bool) -> None:
    dataset = synthetic("flowers", {2: 20, 0: 17, 1: 40}, val=5, shuffle=shuffle)
    train, val = sample_shots(dataset, shots, seed)
    expected_train, expected_val = draw_as_described(dataset, shots, seed)
    assert [example.key for example in train] == expected_train
    assert [example.key for example in val] == expected_val


# Positions, in the train and val lists of the published DTD split, of CoOp's published 1-shot
# draw with seed 1 (indices/dtd/shot_1-seed_1.json of linzhiqiu/cross_modal_adaptation). The split
# has 60 training and 24 validation images of each of 47 classes, class after class.
DTD_TRAIN = """8 96 174 231 288 304 376 427 511 588 628 690 761 804 890 913 966 1051 1081 1197 1253
1284 1347 1418 1488 1549 1560 1664 1708 1757 1846 1911 1934 2017 2046 2157 2180 2221 2281 2341
2441 2494 2520 2636 2664 2743 2773"""
DTD_VAL = """13 47 48 88 103 134 159 185 199 227 247 285 295 326 345 360 397 425 452 459 485 524 551
561 579 623 634 671 694 712 733 760 789 798 825 849 882 903 928 948 978 985 1023 1039 1079 1092
1117"""


def test_the_draw_gives_the_published_positions_of_dtd() -> None:
    dataset = synthetic("dtd", dict.fromkeys(range(47), 60), val=24)
    train, val = sample_shots(dataset, shots=1, seed=1)
    assert [dataset.train.index(example) for example in train] == list(map(int, DTD_TRAIN.split()))
    assert [dataset.val.index(example) for example in val] == list(map(int, DTD_VAL.split()))


# First 12 hex digits of SHA-256 over the newline-joined training paths at 16 shots, seeds 1 to 3,
# and the first training path at 1 shot, seed 1: of CoOp's published lists.
VECTORS = {
    "caltech101": "e60a836bd33c 62be9f804c23 8c465c68bff4 Faces/image_0201.jpg",
    "dtd": "daf3b28e531f a34259006a2a d4a9dc52a372 banded/banded_0117.jpg",
    "eurosat": "ad260707da91 212e6c881322 9dad8ac01841 AnnualCrop/AnnualCrop_2365.jpg",
    "oxford_flowers": "ea366f552e24 3966d8c77019 d027071e2f77 image_00144.jpg",
    "oxford_pets": "711e62ca7ba4 3ecc09fd23ef 45933e694768 Abyssinian_141.jpg",
    "stanford_cars": "f7d56096c792 c8392ec0f0d4 d5d533f8b5c5 cars_train/00467.jpg",
    "ucf101": "b88bd6d2db74 a510bb0001f0 6bfebd6fbe08 "
    "Apply_Eye_Makeup/v_ApplyEyeMakeup_g14_c04.jpg",
}


@pytest.mark.data
@pytest.mark.parametrize("name", VECTORS)
def test_the_published_lists_are_drawn_from_the_published_splits(name: str) -> None:
    root = Path(os.environ["SHOTFIT_DATA"])
    if not find_benchmark(name).directory(root).exists():
        pytest.skip(f"{name} is not among the benchmark files")
    dataset = load(root, name)
    *digests, first = VECTORS[name].split()
    for seed, expected in enumerate(digests, start=1):
        assert list_hash(sample_shots(dataset, 16, seed)[0])[:12] == expected
    assert sample_shots(dataset, 1, 1)[0][0].key == first


def test_list_hash_is_that_of_the_joined_paths() -> None:
    dataset = synthetic("d", {0: 2}, val=1)
    text = "class_0/train_0.jpg\nclass_0/train_1.jpg"
    assert list_hash(dataset.train) == hashlib.sha256(text.encode()).hexdigest()


def test_made_lists_read_back_and_verify(tmp_path: Path) -> None:
    dataset = synthetic("mine", {0: 9, 1: 9}, val=2)
    paths = make(dataset, tmp_path, shots=(1, 2), seeds=(1, 2))
    assert len(paths) == 8
    assert all(
        check.status == "ok" for check in verify(dataset, tmp_path, shots=(1, 2), seeds=(1, 2))
    )
    fewshot = read_fewshot(dataset, tmp_path, 2, 1)
    assert fewshot == sample_shots(dataset, 2, 1)
    given = make_task(dataset, "base_to_novel", 2, 1, fewshot=fewshot)
    assert given == make_task(dataset, "base_to_novel", 2, 1)
    # made again: nothing changes
    before = [path.stat().st_mtime_ns for path in paths]
    make(dataset, tmp_path, shots=(1, 2), seeds=(1, 2))
    assert [path.stat().st_mtime_ns for path in paths] == before


def test_a_link_in_the_place_of_a_list_is_replaced_not_written_through(tmp_path: Path) -> None:
    dataset = synthetic("mine", {0: 3, 1: 3}, val=1)
    precious = tmp_path / "precious.txt"
    precious.write_text("mine")
    (path,) = make(dataset, tmp_path / "lists", shots=(1,), seeds=(7,))[:1]
    path.unlink()
    path.symlink_to(precious)
    make(dataset, tmp_path / "lists", shots=(1,), seeds=(7,), overwrite=True)
    assert precious.read_text() == "mine"
    assert path.read_text() != "mine"
    assert not path.is_symlink()


def test_the_clean_form_has_a_header_and_plain_keys(tmp_path: Path) -> None:
    dataset = synthetic("mine", {0: 3, 1: 3}, val=1)
    path, _ = make(dataset, tmp_path, shots=(1,), seeds=(7,))
    header, *records = [json.loads(line) for line in path.read_text().splitlines()]
    assert path.name == "shot_1-seed_7_train.jsonl"
    body = path.read_text().partition("\n")[2]
    assert header == {
        "format": "shotfit-fewshot-1",
        "dataset": "mine",
        "shots": 1,
        "seed": 7,
        "part": "train",
        "sha256": hashlib.sha256(body.encode()).hexdigest(),
    }
    drawn, _ = sample_shots(dataset, 1, 7)
    assert records == [
        {"path": e.key, "label": e.label, "classname": dataset.classnames[e.label]} for e in drawn
    ]


def test_names_of_any_language_stay_readable(tmp_path: Path) -> None:
    dataset = synthetic("mine", {0: 1}, val=1, prefix="été/")
    path, _ = make(dataset, tmp_path, shots=(1,), seeds=(1,))
    assert '"été/class_0/train_0.jpg"' in path.read_text(encoding="utf-8")
    assert read_fewshot(dataset, tmp_path, 1, 1)[0] == dataset.train


def write_published(root: Path, dataset: Dataset, shots: int, seed: int, prefix: str) -> Path:
    folder = root / "oxford_pets" / "split_fewshot"
    folder.mkdir(parents=True)
    fewshot = sample_shots(dataset, shots, seed)
    for part, examples in zip(("train", "val"), fewshot, strict=True):
        lines = [
            json.dumps(
                {
                    "_impath": f"{prefix}oxford_pets/images/{example.key}",
                    "_label": example.label,
                    "_domain": 0,
                    "_classname": dataset.classnames[example.label].replace(" ", "_"),
                }
            )
            for example in examples
        ]
        (folder / f"shot_{shots}-seed_{seed}_{part}.jsonl").write_text("\n".join(lines))
    return folder


@pytest.mark.parametrize("prefix", ["", "./data/", "/home/someone/data/"])
def test_published_lists_are_read_and_verified(tmp_path: Path, prefix: str) -> None:
    dataset = synthetic("oxford_pets", {0: 9, 1: 9}, val=2)
    folder = write_published(tmp_path, dataset, 2, 1, prefix)
    assert read_fewshot(dataset, folder, 2, 1) == sample_shots(dataset, 2, 1)
    assert {check.status for check in verify(dataset, folder, shots=(2,), seeds=(1,))} == {"ok"}


def test_published_lists_are_not_overwritten(tmp_path: Path) -> None:
    dataset = synthetic("oxford_pets", {0: 9, 1: 9}, val=2)
    folder = write_published(tmp_path, dataset, 2, 1, "")
    path = fewshot_path(folder, 2, 1, "val")
    before = path.read_text()
    fewshot_path(folder, 2, 1, "train").unlink()
    with pytest.raises(DataError, match="other content"):
        make(dataset, folder, shots=(2,), seeds=(1,))
    assert path.read_text() == before and not fewshot_path(folder, 2, 1, "train").exists()
    make(dataset, folder, shots=(2,), seeds=(1,), overwrite=True)
    assert "sha256" in path.read_text()


def test_validation_may_have_no_list(tmp_path: Path) -> None:
    dataset = synthetic("mine", {0: 3, 1: 3}, val=1)
    _, val = make(dataset, tmp_path, shots=(1,), seeds=(1,))
    val.unlink()
    assert read_fewshot(dataset, tmp_path, 1, 1)[1] == ()
    assert [c.status for c in verify(dataset, tmp_path, shots=(1,), seeds=(1,))] == [
        "ok",
        "missing",
    ]


def test_verify_reports_missing_differing_and_damaged_lists(tmp_path: Path) -> None:
    dataset = synthetic("mine", {0: 9, 1: 9}, val=2)
    make(dataset, tmp_path, shots=(2,), seeds=(1, 2, 3))
    fewshot_path(tmp_path, 2, 1, "train").unlink()
    other = (dataset.train[:2] + dataset.train[-2:], dataset.val[:1])
    write_fewshot(dataset, tmp_path, 2, 2, other, overwrite=True)
    train, val = sample_shots(dataset, 2, 3)
    write_fewshot(dataset, tmp_path, 2, 3, (train[::-1], val), overwrite=True)
    path = fewshot_path(tmp_path, 2, 3, "val")
    path.write_text(path.read_text().replace("val_0", "val_1"))
    checks = {check.path.name: check for check in verify(dataset, tmp_path, shots=(2,))}
    assert {name: check.status for name, check in checks.items()} == {
        "shot_2-seed_1_train.jsonl": "missing",
        "shot_2-seed_1_val.jsonl": "ok",
        "shot_2-seed_2_train.jsonl": "differs",
        "shot_2-seed_2_val.jsonl": "differs",
        "shot_2-seed_3_train.jsonl": "differs",
        "shot_2-seed_3_val.jsonl": "damaged",
    }
    assert "of its 4 images" in checks["shot_2-seed_2_train.jsonl"].detail
    assert "another order" in checks["shot_2-seed_3_train.jsonl"].detail
    assert "own hash" in checks["shot_2-seed_3_val.jsonl"].detail


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "cannot be read"),
        ("[1]", "one JSON object a line"),
        ('{"_impath": "oxford_pets/images/class_0/test_0.jpg"}', "not among the train images"),
        ('{"_impath": 3}', "not among the train images"),
        ('{"_impath": "class_0/train_0.jpg", "_label": 1, "_classname": "class 0"}', "the label 1"),
        ('{"_impath": "class_0/train_0.jpg", "_label": 0, "_classname": "dog"}', "'dog'"),
        ('{"_impath": "class_0/train_0.jpg", "_label": 0}', "None"),
        ("", "is empty"),
        ('{"format": "shotfit-fewshot-9"}', "is for format 'shotfit-fewshot-9'"),
    ],
)
def test_a_bad_list_is_a_data_error(tmp_path: Path, line: str, message: str) -> None:
    dataset = synthetic("oxford_pets", {0: 3, 1: 3}, val=1)
    path = fewshot_path(tmp_path, 1, 1, "train")
    with pytest.raises(DataError, match="shot_1-seed_1_train.jsonl is missing"):
        read_fewshot(dataset, tmp_path, 1, 1)
    path.write_text(line)
    with pytest.raises(DataError, match=message):
        read_fewshot(dataset, tmp_path, 1, 1)


def test_a_list_of_another_run_or_with_repeats_is_refused(tmp_path: Path) -> None:
    dataset = synthetic("mine", {0: 3, 1: 3}, val=1)
    make(dataset, tmp_path, shots=(1,), seeds=(1,))
    fewshot_path(tmp_path, 1, 1, "train").rename(fewshot_path(tmp_path, 2, 1, "train"))
    with pytest.raises(DataError, match="is for shots 1, not 2"):
        read_fewshot(dataset, tmp_path, 2, 1)
    write_fewshot(dataset, tmp_path, 3, 1, (dataset.train[:1] * 2, ()))
    with pytest.raises(DataError, match="names an image twice"):
        read_fewshot(dataset, tmp_path, 3, 1)


@pytest.mark.parametrize(
    ("key", "value"),
    [("format", "x"), ("dataset", "other"), ("shots", 2), ("seed", 2), ("part", "val")],
)
def test_a_list_whose_header_tells_another_run_is_refused(
    tmp_path: Path, key: str, value: object
) -> None:
    dataset = synthetic("mine", {0: 3, 1: 3}, val=1)
    path, _ = make(dataset, tmp_path, shots=(1,), seeds=(1,))
    header, _, body = path.read_text().partition("\n")
    changed = {**json.loads(header), key: value}
    path.write_text(json.dumps(changed) + "\n" + body)
    with pytest.raises(DataError, match=f"is for {key} {value!r}, not"):
        read_fewshot(dataset, tmp_path, 1, 1)
    del changed[key]
    if key != "format":
        path.write_text(json.dumps(changed) + "\n" + body)
        with pytest.raises(DataError, match=f"is for {key} None, not"):
            read_fewshot(dataset, tmp_path, 1, 1)
