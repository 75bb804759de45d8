"""Miniature replicas of the benchmark datasets' raw layouts, quirks included."""

import base64
import io
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

# MAT-files written by scipy.io.savemat with the variables of the official devkits: three car
# models, labels 2, 3, 1 five times in training, 3, 1, 2 twice in test; ten flowers each with the
# labels 2, 1, 3 in this order.
CARS_META = (
    "TUFUTEFCIDUuMCBNQVQtZmlsZSBQbGF0Zm9ybTogcG9zaXgsIENyZWF0ZWQgb246IFNhdCBOb3YgMjEgMDU6MDY6NDYg"
    "MjAyNgAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAABSU0PAAAAjAAAAHic"
    "42NgYDBgZGBgA9IcQAxkggErEp8ZSnMDcXJOYnFxfF5ibmoxWB0fEAcwIPSzYNEvhWSuAJTv6KvgnpqXWpSYo+BRmpub"
    "WqQQHBqmYGRgYMAAN9eDgLnCaOaC+I7JpUWJCiE+CsGpKYl5QAMNjYg2TxDNPBDfyTdcwddYwTm/tCAVYRoDAwBL7Rkr"
)
CARS_TRAIN = (
    "TUFUTEFCIDUuMCBNQVQtZmlsZSBQbGF0Zm9ybTogcG9zaXgsIENyZWF0ZWQgb246IFNhdCBOb3YgMjEgMDU6MDY6NDYg"
    "MjAyNgAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAABSU0PAAAA6QAAAHic"
    "xZXNCoJAEIBHs0gE69gjdCjb9d9OvUmsUVGUBnrw8RtpKyEhcA4zMIwrM8x3+GBcAFg6ABOsU0wTXjHWbwNzpiu2gSqK"
    "slb1pSwq3Wd9+haYeV42+0bC4aaqtuNUqPsRq4sp4LvH6dnzzjYsJFkZv3P2nzkTv0y9b9eZs3rm7M7cXL8FhvSuj7P+"
    "P4R7PZB7ROT2idzeQG6DyB0QuTdMnoREbsHkSUTklkyexERun8mThMgdMHmSErlDJk8yInfE44kURO6YxxNJvZcJjyeS"
    "ei9TJk+o9zJj8oR6L7dMnnTv5RNf9Ega"
)
CARS_TEST = (
    "TUFUTEFCIDUuMCBNQVQtZmlsZSBQbGF0Zm9ybTogcG9zaXgsIENyZWF0ZWQgb246IFNhdCBOb3YgMjEgMDU6MDY6NDYg"
    "MjAyNgAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAABSU0PAAAArQAAAHic"
    "42NgYNjAwsDABqQ5gJiJAQJYoXxGBogciOYG4sS8vPySxJLM/LxiqDoWuDoJIE5Kyq+IrzBkSM5JLAapSMtLzE0F0nxA"
    "bMCAsIcbiz0wDAIsQJfoMGLq4ySgjwnIYoba54CkjwWLPk4kfQJQvgEQGOplFaRDxclxty6Z7mak0N1GFLpbj0x3M1Ho"
    "bmMK3a0/QOnEhEJ3GwxQOjGl0N2GA5ROzJDcDQCjnCR3"
)
FLOWER_LABELS = (
    "TUFUTEFCIDUuMCBNQVQtZmlsZSBQbGF0Zm9ybTogcG9zaXgsIENyZWF0ZWQgb246IFNhdCBOb3YgMjEgMDU6MDY6NDYg"
    "MjAyNgAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAABSU0PAAAANQAAAHic"
    "42NgYIgAYjYg5gBiTgYIYIXyGYFYDkqD1OQkJqXmFDMwMEHFmeCAEQ6Y4YCBAQCwiwOA"
)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "data: needs real benchmark files under $SHOTFIT_DATA")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get("SHOTFIT_DATA"):
        return
    needing = [item for item in items if item.get_closest_marker("data")]
    if needing:
        config.hook.pytest_deselected(items=needing)
        items[:] = [item for item in items if item not in needing]


def _jpeg() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (4, 4), "gray").save(buffer, "JPEG")
    return buffer.getvalue()


JPEG = _jpeg()


def _images(directory: Path, names: list[str]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name in names:
        (directory / name).write_bytes(JPEG)


def _lines(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _categories(images: Path, folders: list[str]) -> None:
    for folder in folders:
        _images(images / folder, [f"image_{number:04d}.jpg" for number in range(1, 11)])


def _caltech101(root: Path) -> None:
    images = root / "caltech-101" / "101_ObjectCategories"
    _categories(images, ["accordion", "airplanes", "Faces", "Faces_easy", "Leopards"])
    _categories(images, ["Motorbikes", "BACKGROUND_Google", "yin_yang"])
    # Files that are no images are no reason to stumble.
    (images / "accordion" / ".DS_Store").touch()
    (images / "accordion" / "Thumbs.db").touch()


def _dtd(root: Path) -> None:
    _categories(root / "dtd" / "images", ["polka-dotted", "banded"])


def _eurosat(root: Path) -> None:
    _categories(root / "eurosat" / "2750", ["SeaLake", "AnnualCrop", "Highway", "Forest"])


def _food101(root: Path) -> None:
    _categories(root / "food-101" / "images", ["apple_pie", "waffles"])


def _oxford_flowers(root: Path) -> None:
    folder = root / "oxford_flowers"
    _images(folder / "jpg", [f"image_{number:05d}.jpg" for number in range(1, 31)])
    (folder / "imagelabels.mat").write_bytes(base64.b64decode(FLOWER_LABELS))
    names = {"3": "canterbury bells", "1": "pink primrose", "2": "hard-leaved pocket orchid"}
    (folder / "cat_to_name.json").write_text(json.dumps(names))


def _oxford_pets(root: Path) -> None:
    folder = root / "oxford_pets"
    breeds = ["Abyssinian", "american_bulldog", "Maine_Coon"]
    rows = [
        f"{breed}_{number} {label} 1 1"
        for label, breed in enumerate(breeds, start=1)
        for number in range(1, 9)
    ]
    _images(folder / "images", [row.split()[0] + ".jpg" for row in rows])
    _lines(
        folder / "annotations" / "trainval.txt", [row for row in rows if row.split()[0][-1] < "6"]
    )
    _lines(folder / "annotations" / "test.txt", [row for row in rows if row.split()[0][-1] >= "6"])


def _stanford_cars(root: Path) -> None:
    folder = root / "stanford_cars"
    _images(folder / "cars_train", [f"{number:05d}.jpg" for number in range(1, 16)])
    _images(folder / "cars_test", [f"{number:05d}.jpg" for number in range(1, 7)])
    (folder / "devkit").mkdir()
    (folder / "devkit" / "cars_meta.mat").write_bytes(base64.b64decode(CARS_META))
    (folder / "devkit" / "cars_train_annos.mat").write_bytes(base64.b64decode(CARS_TRAIN))
    (folder / "cars_test_annos_withlabels.mat").write_bytes(base64.b64decode(CARS_TEST))


def _sun397(root: Path) -> None:
    folder = root / "sun397"
    scenes = ["/a/abbey", "/a/apartment_building/outdoor", "/w/wheat_field"]
    _lines(folder / "ClassName.txt", scenes)
    for name, numbers in {"Training_01.txt": range(5), "Testing_01.txt": range(5, 10)}.items():
        rows = [f"{scene}/sun_{number}.jpg" for scene in scenes for number in numbers]
        _lines(folder / name, rows)
        for row in rows:
            path = folder / "SUN397" / row.removeprefix("/")
            _images(path.parent, [path.name])


def _ucf101(root: Path) -> None:
    folder = root / "ucf101"
    actions = {"ApplyEyeMakeup": "Apply_Eye_Makeup", "YoYo": "Yo_Yo", "Archery": "Archery"}
    lists = folder / "ucfTrainTestlist"
    _lines(lists / "classInd.txt", [f"{i} {action}" for i, action in enumerate(actions, start=1)])
    for name, groups in {"trainlist01": range(8, 13), "testlist01": range(1, 4)}.items():
        rows = []
        for label, (action, frames) in enumerate(actions.items(), start=1):
            clips = [f"v_{action}_g{group:02d}_c01" for group in groups]
            _images(folder / "UCF-101-midframes" / frames, [f"{clip}.jpg" for clip in clips])
            suffix = f" {label}" if name == "trainlist01" else ""
            rows += [f"{action}/{clip}.avi{suffix}" for clip in clips]
        _lines(lists / f"{name}.txt", rows)


def _fgvc_aircraft(root: Path) -> None:
    folder = root / "fgvc_aircraft"
    variants = ["707-320", "Boeing 717", "F-16A/B"]
    _lines(folder / "variants.txt", variants)
    for number, split in enumerate(("train", "val", "test")):
        images = [f"{number}{index:06d}" for index in range(6)]
        # The official lists are in no order of class.
        rows = [f"{image} {variants[-index % 3]}" for index, image in enumerate(images)]
        _lines(folder / f"images_variant_{split}.txt", rows)
        _images(folder / "images", [f"{image}.jpg" for image in images])


def _imagenet(root: Path) -> None:
    folder = root / "imagenet"
    names = {"n03773504": "missile", "n01440764": "tench", "n04008634": "missile"}
    names["n02085620"] = "Chihuahua"
    _lines(folder / "classnames.txt", [f"{wnid} {name}" for wnid, name in names.items()])
    for wnid in names:
        _images(folder / "images" / "train" / wnid, [f"{wnid}_{n}.JPEG" for n in (10, 9, 1)])
        _images(folder / "images" / "val" / wnid, [f"ILSVRC2012_val_{wnid}.JPEG"])


_BUILDERS: dict[str, Callable[[Path], None]] = {
    "imagenet": _imagenet,
    "caltech101": _caltech101,
    "oxford_pets": _oxford_pets,
    "stanford_cars": _stanford_cars,
    "oxford_flowers": _oxford_flowers,
    "food101": _food101,
    "fgvc_aircraft": _fgvc_aircraft,
    "sun397": _sun397,
    "dtd": _dtd,
    "eurosat": _eurosat,
    "ucf101": _ucf101,
}


@pytest.fixture
def replica(tmp_path: Path) -> Callable[..., Path]:
    """Builds the raw layouts of the named datasets; returns the data root."""
    root = tmp_path / "data"
    root.mkdir()

    def build(*names: str) -> Path:
        for name in names:
            _BUILDERS[name](root)
        return root

    return build
