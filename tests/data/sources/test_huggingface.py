"""Hugging Face datasets from local files; nothing here reaches the hub."""

import importlib
import io
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from shotfit.data.checks import missing_files
from shotfit.data.sources import huggingface
from shotfit.errors import DataError, UsageError


@pytest.fixture
def load(tmp_path, monkeypatch):
    """`huggingface.load` with its cache in the test's folder and no network."""
    pytest.importorskip("datasets")
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)

    def load_here(name, **options):
        return huggingface.load(name, cache_dir=tmp_path / "cache", **options)

    return load_here


def picture(color: str) -> dict:
    buffer = io.BytesIO()
    Image.new("RGB", (4, 4), color).save(buffer, "PNG")
    return {"bytes": buffer.getvalue(), "path": None}


def write_parquet(path: Path, labels: list, label_feature, *, column: str = "label") -> None:
    import datasets

    features = datasets.Features({"image": datasets.Image(), column: label_feature})
    columns = {"image": [picture("red") for _ in labels], column: labels}
    path.parent.mkdir(parents=True, exist_ok=True)
    datasets.Dataset.from_dict(columns, features=features).to_parquet(str(path))


def class_label(*names: str):
    import datasets

    return datasets.ClassLabel(names=list(names))


def test_a_parquet_file_is_a_training_split(load, tmp_path) -> None:
    write_parquet(tmp_path / "cars.parquet", [1, 0, 1], class_label("red_car", "truck"))
    dataset = load(tmp_path / "cars.parquet")
    assert dataset.name == "cars"
    assert dataset.classnames == ("red car", "truck")
    assert [e.label for e in dataset.train] == [1, 0, 1]
    assert dataset.val == dataset.test == ()
    assert Image.open(io.BytesIO(dataset.train[0].image)).size == (4, 4)


def test_parquet_files_named_by_split(load, tmp_path) -> None:
    folder = tmp_path / "set"
    for name, labels in {"train": [0, 1], "validation": [1], "test": [0, 0, 1]}.items():
        write_parquet(folder / f"{name}-00000-of-00001.parquet", labels, class_label("a", "b"))
    dataset = load(folder, template="{} texture.")
    assert [len(s) for s in (dataset.train, dataset.val, dataset.test)] == [2, 1, 3]
    assert dataset.template == "{} texture."
    keys = [e.key for e in (*dataset.train, *dataset.val, *dataset.test)]
    assert len(set(keys)) == 6
    swapped = load(folder, train="test", test="train")
    assert len(swapped.train) == 3 and len(swapped.test) == 2
    with pytest.raises(UsageError, match=r"Unknown split 'tset'. Did you mean 'test'"):
        load(folder, test="tset")


def test_a_folder_of_images_stays_on_disk(load, tmp_path) -> None:
    for split in ("train", "test"):
        for name in ("big_dog", "cat"):
            folder = tmp_path / "pets" / split / name
            folder.mkdir(parents=True)
            (folder / "1.png").write_bytes(picture("blue")["bytes"])
    dataset = load(tmp_path / "pets")
    assert dataset.classnames == ("big dog", "cat")
    assert dataset.train[1].image == tmp_path / "pets" / "train" / "cat" / "1.png"
    assert missing_files(dataset) == []


def test_labels_as_text_or_as_numbers_with_given_names(load, tmp_path) -> None:
    import datasets

    write_parquet(tmp_path / "text.parquet", ["b", "a"], datasets.Value("string"), column="breed")
    with pytest.raises(UsageError, match="Name the label column, one of image, breed"):
        load(tmp_path / "text.parquet")
    dataset = load(tmp_path / "text.parquet", label_column="breed")
    assert (dataset.classnames, dataset.train[0].label) == (("a", "b"), 1)
    with pytest.raises(DataError, match="Row 0 of the split train has the label 'b'"):
        load(tmp_path / "text.parquet", label_column="breed", classnames=["a"])

    write_parquet(tmp_path / "number.parquet", [0, 1], datasets.Value("int64"))
    with pytest.raises(UsageError, match="give the class names"):
        load(tmp_path / "number.parquet")
    assert load(tmp_path / "number.parquet", classnames=["x", "y"]).classnames == ("x", "y")
    with pytest.raises(DataError, match="Row 1 .* label 1"):
        load(tmp_path / "number.parquet", classnames=["x"])


def test_a_hidden_label_is_a_data_error(load, tmp_path) -> None:
    write_parquet(tmp_path / "set.parquet", [0, -1], class_label("a", "b"))
    with pytest.raises(DataError, match="Row 1 of the split train has the label -1"):
        load(tmp_path / "set.parquet")


def test_wrong_columns_and_files_are_named(load, tmp_path) -> None:
    write_parquet(tmp_path / "set.parquet", [0, 1], class_label("a", "b"))
    with pytest.raises(UsageError, match="Unknown column of the split train 'imgae'"):
        load(tmp_path / "set.parquet", image_column="imgae")
    with pytest.raises(UsageError, match="Unknown split 'all'"):
        load(tmp_path / "set.parquet", train="all")
    (tmp_path / "cut.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match="cut.parquet cannot be loaded"):
        load(tmp_path / "cut.parquet")
    (tmp_path / "list.txt").touch()
    with pytest.raises(DataError, match="no parquet file"):
        load(tmp_path / "list.txt")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="empty cannot be loaded"):
        load(tmp_path / "empty")
    with pytest.raises(DataError, match="There is no file or folder"):
        load(tmp_path / "nowhere")


def test_without_the_extra_the_error_says_what_to_install(monkeypatch) -> None:
    def refuse(name: str):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", refuse)
    with pytest.raises(UsageError, match=r"shotfit\[datasets\]"):
        huggingface.load("someone/some-set")


def test_importing_the_sources_imports_no_heavy_library() -> None:
    code = (
        "import sys; import shotfit.data.sources.huggingface, shotfit.data.benchmark.catalogue, "
        "shotfit.data.fewshot_lists, shotfit.data.benchmark.making_splits; "
        "print([m for m in ('torch', 'torchvision', 'datasets', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
