"""Predictions of many images: found, streamed, interrupted and resumed, in 8 bits, on Ray."""

import contextlib
import csv
import errno
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from pathlib import Path
from unittest.mock import MagicMock, Mock

import numpy as np
import pytest
import torch
from conftest import make_backbone, shapes_dataset
from example_images import picture
from PIL import Image
from torch import nn

from shotfit.apps import cli
from shotfit.apps.predict import on_ray, output_file, stream
from shotfit.apps.predict.output_file import PredictionFile
from shotfit.apps.predict.predictor import Predictor, Question
from shotfit.apps.predict.summary import Summary
from shotfit.backbone import Backbone
from shotfit.backbone.int8 import Int8Linear, exact_levels, quantize
from shotfit.classifier import FewShotClassifier
from shotfit.data.image_files import find_images, list_images
from shotfit.errors import DataError, UsageError
from shotfit.recipe import Recipe, Stage, named_recipe
from shotfit.saved_settings import CONFIG, checksum
from shotfit.saving import CLASSES
from shotfit.system.ray_cluster import RayOptions

RECIPE = Recipe(
    (
        Stage("layernorm", training={"iterations": 2}),
        Stage("linear", training={"iterations": 2}),
    )
)


@pytest.fixture(scope="module")
def model(checkpoint, tmp_path_factory):
    classifier = FewShotClassifier(str(checkpoint), RECIPE).fit(shapes_dataset(4), shots=2)
    return classifier.save_pretrained(tmp_path_factory.mktemp("models") / "model")


@pytest.fixture
def images(tmp_path):
    folder = tmp_path / "images"
    for number, example in enumerate(shapes_dataset(4).test[:12]):
        path = folder / f"{number % 3}" / f"{number:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        picture(example).save(path)
    return folder


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


# Finding


def test_images_are_found_in_the_order_of_their_paths(tmp_path):
    for name in ("b/2.PNG", "b/10.jpg", "a.webp", "a/z/1.tif", "b.txt", "c/notes.md", "b-c/1.png"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    found = list(find_images([tmp_path]))
    kinds = (".png", ".jpg", ".webp", ".tif")
    expected = sorted(p for p in tmp_path.rglob("*") if p.suffix.lower() in kinds)
    assert found == [str(path) for path in expected]
    assert len(found) == 5
    pattern = str(tmp_path / "b*" / "*.png")
    assert list(find_images([tmp_path / "b.txt", pattern])) == [
        str(tmp_path / "b.txt"),
        str(tmp_path / "b-c" / "1.png"),
    ]
    assert list_images(tmp_path / "a.webp") is None
    with pytest.raises(DataError, match="No images in"):
        list(find_images([tmp_path / "c"]))


def test_folders_are_read_as_they_are_reached(tmp_path, monkeypatch):
    for folder in ("a", "b", "c"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "1.png").touch()
    read_so_far = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda p: read_so_far.append(str(p)) or scandir(p))
    next(find_images([tmp_path]))
    assert read_so_far == [str(tmp_path), str(tmp_path / "a")]


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")
def test_links_are_followed_but_not_in_circles(tmp_path):
    for name in ("a/1.png", "else/2.png", "else/deep/3.png", "third/4.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for name, target in {
        "a/linked": "../else",
        "else/deep/up": "../..",
        "else/deep/self": "self",
        "a/gone.png": "nothing.png",
        "a/gone.txt": "nothing.txt",
        "a/round.png": "round.png",
        "a/to_folder.png": "../third",
        "a/null.png": "/dev/null",
    }.items():
        (tmp_path / name).symlink_to(target)
    assert list(find_images([tmp_path / "a"])) == [
        str(tmp_path / "a" / name)
        for name in (
            "1.png",
            "gone.png",
            "linked/2.png",
            "linked/deep/3.png",
            # No circle yet: the folder that `up` leads to, without those that led there.
            "linked/deep/up/third/4.png",
            "round.png",
            "to_folder.png/4.png",
        )
    ]
    pattern = [os.path.basename(path) for path in find_images([tmp_path / "a" / "*.*"])]
    assert pattern == ["1.png", "gone.png", "round.png"]


def test_a_link_to_nothing_is_an_image_that_cannot_be_read(shotfit, model, images):
    (images / "1" / "link.png").symlink_to("nothing.png")
    code, _, err = shotfit("predict", model, images)
    assert code == 3
    assert "There is no image file" in err
    assert "--skip-broken" in err
    code, out, _ = shotfit("predict", model, images, "--skip-broken", "--json")
    assert code == 0
    assert sum("error" in json.loads(line) for line in out.splitlines()) == 1


def test_a_mistyped_file_is_told_at_once_and_plainly(shotfit, model, images, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(stream, "Predictor", lambda *_, **__: pytest.fail("a model was loaded"))
        code, _, err = shotfit("predict", model, images, images / "nothere.png")
    assert code == 3
    assert "There is no image file" in err
    assert "--skip-broken" not in err
    assert shotfit("predict", model, images, images / "nothere.png", "--skip-broken")[0] == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--classes", ""], "names separated by commas"),
        (["--classes", "nine,"], "names separated by commas"),
        (["--classes", "nine,ten, nine"], "'nine' twice"),
        (["--cpus-per-replica", 1], "--ray"),
        (["--gpus-per-replica", 0], "--ray"),
        (["--ray", "--cpus-per-replica", -1], "'--cpus-per-replica'"),
        (["--ray", "--gpus-per-replica", -0.5], "'--gpus-per-replica'"),
    ],
)
def test_options_that_make_no_sense_are_refused(shotfit, model, images, options, message):
    code, _, err = shotfit("predict", model, images, *options)
    assert code == 2
    assert message in err


# Class embeddings in the saved folder


def test_a_saved_classifier_answers_without_its_text_tower(
    checkpoint, images, tmp_path, monkeypatch
):
    for name in ("2sfs", "coop", "plot_pp", "taskres"):
        recipe = named_recipe(name)
        stages = [Stage(s.method, s.options, {"iterations": 1}) for s in recipe.stages]
        classifier = FewShotClassifier(str(checkpoint), Recipe(tuple(stages)))
        classifier.fit(shapes_dataset(4), shots=1)
        if classifier.method.open_vocabulary:
            classifier.add_classes(["purple", "orange"])
            classifier.remove_classes(["red", "orange"])
        expected = classifier.predict_proba(images)
        folder = classifier.save_pretrained(tmp_path / name)
        with monkeypatch.context() as patch:
            patch.setattr(Backbone, "encode_text", lambda *_: pytest.fail("the text tower ran"))
            again = FewShotClassifier.from_pretrained(folder)
            assert np.array_equal(again.predict_proba(images), expected)
        (folder / CLASSES).unlink()
        assert np.array_equal(
            FewShotClassifier.from_pretrained(folder).predict_proba(images), expected
        )


def test_stale_class_embeddings_are_left_alone(model, images, tmp_path):
    import shutil

    import safetensors.torch

    expected = FewShotClassifier.from_pretrained(model).predict_proba(images)
    for change in ("another file", "an old archive"):
        folder = Path(shutil.copytree(model, tmp_path / change))
        if change == "another file":
            wrong = {"weight": torch.randn(4, 40)}
            safetensors.torch.save_file(wrong, folder / CLASSES)
        else:
            settings = json.loads((folder / CONFIG).read_text())
            del settings["classes"]
            settings["checksum"] = checksum(settings)
            (folder / CONFIG).write_text(json.dumps(settings))
        found = FewShotClassifier.from_pretrained(folder).predict_proba(images)
        assert np.allclose(found, expected, atol=1e-6)


def test_names_to_choose_among_are_embedded_once_for_any_number_of_blocks(
    model, images, monkeypatch
):
    embedded = []
    original = Backbone.encode_text
    monkeypatch.setattr(
        Backbone,
        "encode_text",
        lambda self, texts, *rest: embedded.append(len(texts)) or original(self, texts, *rest),
    )
    predictor = Predictor(Question(str(model), ("purple", "red", "orange"), top=9), batch_size=4)
    rows = [
        row for _ in range(3) for batch in predictor.rows(find_images([images])) for row in batch
    ]
    assert embedded == [2], "a trained name is a row"
    assert len(rows) == 3 * 12
    probabilities = predictor.classifier.predict_proba(images, ["purple", "red", "orange"])
    best = {answer["class"]: answer["probability"] for answer in rows[0]["answers"]}
    expected = dict(zip(("purple", "red", "orange"), probabilities[0].tolist(), strict=True))
    assert best == pytest.approx(expected, abs=1e-5)


# Files of predictions


@pytest.mark.parametrize("suffix", [".parquet", ".PARQUET"])
def test_predictions_in_both_formats_agree(shotfit, model, images, tmp_path, suffix):
    parquet = pytest.importorskip("pyarrow.parquet")
    lines, table = tmp_path / "rows.jsonl", tmp_path / f"rows{suffix}"
    assert shotfit("predict", model, images, "--top", 2, "--out", lines)[0] == 0
    assert shotfit("predict", model, images, "--top", 2, "--out", table)[0] == 0
    rows = read(lines)
    assert [row["image"] for row in rows] == list_images(images)
    assert all(len(row["answers"]) == 2 for row in rows)
    found = parquet.read_table(table).to_pylist()
    assert found == [{**row, "error": None} for row in rows]
    assert {p.name for p in tmp_path.iterdir()} == {"images", "rows.jsonl", table.name}


def test_a_broken_image_stops_after_the_rows_before_it_or_is_noted(
    shotfit, model, images, tmp_path
):
    broken = images / "1" / "04.png"
    broken.write_text("no image")
    found = list_images(images)
    assert found is not None
    place = found.index(str(broken))
    out = tmp_path / "rows.jsonl"
    code, _, err = shotfit("predict", model, images, "--out", out, "--batch-size", 3)
    assert code == 3
    assert "04.png is not an image" in err
    assert "--skip-broken" in err
    assert not out.exists()
    assert len(read(tmp_path / "rows.jsonl.partial")) == place == 5
    code, _, _ = shotfit("predict", model, images, "--out", out, "--skip-broken")
    assert code == 0
    rows = read(out)
    assert [row["image"] for row in rows] == list_images(images)
    assert [n for n, row in enumerate(rows) if "error" in row] == [place]
    code, printed, _ = shotfit("predict", model, images, "--skip-broken")
    assert code == 0
    assert f"{broken}: {broken} is not an image" in printed


def test_an_interrupted_command_goes_on_and_embeds_nothing_again(
    shotfit, model, images, tmp_path, monkeypatch
):
    whole, out = tmp_path / "whole.jsonl", tmp_path / "rows.jsonl"
    arguments = ("predict", model, images, "--batch-size", 2, "--out")
    assert shotfit(*arguments, whole)[0] == 0
    encoded = []
    original = Backbone.encode_image

    def encode(self, pixels, *rest):
        if len(encoded) == 3:
            raise KeyboardInterrupt
        encoded.append(len(pixels))
        return original(self, pixels, *rest)

    monkeypatch.setattr(Backbone, "encode_image", encode)
    assert shotfit(*arguments, out)[0] == 130
    partial = tmp_path / "rows.jsonl.partial"
    assert len(read(partial)) == 6
    # A process that is killed while it writes leaves half a line.
    partial.write_text(partial.read_text() + '{"image": "x", "ans')
    encoded.clear()
    monkeypatch.setattr(
        Backbone,
        "encode_image",
        lambda self, pixels, *rest: encoded.append(len(pixels)) or original(self, pixels, *rest),
    )
    assert shotfit(*arguments, out)[0] == 0
    assert sum(encoded) == 12 - 6
    assert out.read_text() == whole.read_text()
    assert not partial.exists()
    assert not (tmp_path / "rows.jsonl.partial.json").exists()


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_rows_of_images_that_were_exchanged_are_answered_again(
    shotfit, model, images, tmp_path, monkeypatch, suffix
):
    """Other pixels under the same names, with the sizes and the times that were there before."""
    whole, out = tmp_path / f"whole.{suffix}", tmp_path / f"rows.{suffix}"
    (images / "2" / "99.png").write_text("no image")
    arguments = ("predict", model, images, "--batch-size", 2, "-q", "--out")
    assert shotfit(*arguments, out)[0] == 3
    partial = tmp_path / f"rows.{suffix}.partial"
    rows = read(partial)
    assert len(rows) == 12 and len({row["content"] for row in rows}) == 12
    listed = list_images(images)
    assert listed is not None
    first, second = listed[6:8]
    facts, pixels = os.stat(second), Path(second).read_bytes()
    Path(second).write_bytes(Path(first).read_bytes()[: len(pixels)].ljust(len(pixels)))
    os.utime(second, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    code, _, error = shotfit(*arguments, out, "--skip-broken")
    assert code == 0
    assert f"{second} is another image by now; 6 rows before it are kept" in error
    assert shotfit(*arguments, whole, "--skip-broken")[0] == 0
    assert out.read_text() == whole.read_text() and "content" not in out.read_text()
    # Rows from before contents were noted, or of nobody, are answered again, too.
    assert shotfit(*arguments, out, "--overwrite")[0] == 3
    lines = partial.read_text().splitlines(keepends=True)
    lines[2] = '["what", "is", "this"]\n'
    partial.write_text("".join(lines))
    assert (
        "; 2 rows before it are kept" in shotfit(*arguments, out, "--overwrite", "--skip-broken")[2]
    )
    assert out.read_text() == whole.read_text()


def test_answers_take_the_place_of_a_file_on_request_alone(shotfit, model, images, tmp_path):
    out = tmp_path / "rows.jsonl"
    out.write_text("my thesis")
    code, _, error = shotfit("predict", model, images, "--out", out)
    assert code == 3 and "rows.jsonl is there already: --overwrite replaces it" in error
    assert out.read_text() == "my thesis" and list(tmp_path.glob("rows*")) == [out]
    assert shotfit("predict", model, images, "--out", out, "--overwrite")[0] == 0
    assert len(read(out)) == 12


def test_rows_of_another_command_are_not_mixed_in(shotfit, model, images, tmp_path):
    out = tmp_path / "rows.jsonl"
    (images / "2" / "99.png").write_text("no image")
    arguments = ("predict", model, images, "--out", out)
    assert shotfit(*arguments)[0] == 3
    before = (tmp_path / "rows.jsonl.partial").read_bytes()
    for change, word in (
        (["--classes", "purple,orange"], "classes"),
        (["--top", 2], "top"),
        (["--int8"], "int8"),
        (["--reduced"], "reduced"),
        ([images / "1" / "01.png"], "images"),
    ):
        code, _, err = shotfit(*arguments, *change)
        assert code == 3
        assert f"with other {word}" in err
    (tmp_path / "rows.jsonl.partial.json").unlink()
    assert "with other model, top" in shotfit(*arguments)[2]
    assert (tmp_path / "rows.jsonl.partial").read_bytes() == before


WRITER = """
import sys, time
from pathlib import Path
from shotfit.apps.predict.output_file import PredictionFile
from shotfit.apps.predict.summary import Summary
with PredictionFile(Path(sys.argv[1]), {"top": 1}) as file:
    file.write([{"image": "1.png", "answers": []}])
    file._file.write(b'{"image": "2.p')
    file._file.flush()
    print("writing", flush=True)
    time.sleep(60)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks")
def test_a_file_has_one_writer_at_a_time_and_a_killed_one_leaves_it_to_the_next(tmp_path):
    path = tmp_path / "rows.jsonl"
    source = str(Path(cli.__file__).parents[2])
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": source},
    ) as writer:
        assert writer.stdout
        assert writer.stdout.readline() == b"writing\n"
        before = (tmp_path / "rows.jsonl.partial").read_bytes()
        for question in ({"top": 1}, {"top": 2}):
            with pytest.raises(DataError, match=r"rows\.jsonl\.partial is being written"):
                PredictionFile(path, question)
        assert (tmp_path / "rows.jsonl.partial").read_bytes() == before, "half a line is its own"
        writer.kill()
    with PredictionFile(path, {"top": 1}) as file:
        assert file.rows == 1
        file.write([{"image": "2.png", "answers": []}])
        file.finish()
    assert [row["image"] for row in read(path)] == ["1.png", "2.png"]


def test_a_file_that_is_finished_while_it_is_opened_is_not_appended_to(tmp_path, monkeypatch):
    path = tmp_path / "rows.jsonl"
    first = PredictionFile(path, {})
    first.write([{"image": "1.png", "answers": []}])
    lock = output_file._lock

    def late(partial):
        monkeypatch.setattr(output_file, "_lock", lock)
        first.finish()
        return lock(partial)

    monkeypatch.setattr(output_file, "_lock", late)
    with PredictionFile(path, {}) as second:
        assert second.rows == 0
        second.write([{"image": "2.png", "answers": []}])
        assert [row["image"] for row in read(path)] == ["1.png"]


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_where_there_are_no_locks_it_goes_on_without(tmp_path, monkeypatch, number):
    fcntl = pytest.importorskip("fcntl")
    path = tmp_path / "rows.jsonl"

    def flock(*_):
        raise OSError(number, "no locks")

    monkeypatch.setattr(fcntl, "flock", flock)
    with PredictionFile(path, {}) as file:
        file.write([{"image": "1.png", "answers": []}])
        file.finish()
    assert len(read(path)) == 1
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_is_refused_as_the_file_before_anything_is_predicted(
    shotfit, model, images, tmp_path
):
    folder = tmp_path / "answers"
    folder.mkdir()
    code, _, err = shotfit("predict", model, images, "--out", folder)
    assert code == 3
    assert "answers is a folder" in err
    assert not list(tmp_path.glob("*.partial*"))


def test_names_that_are_no_unicode_survive(tmp_path):
    name = os.fsdecode(b"caf\xe9.png")
    path = tmp_path / "rows.jsonl"
    with PredictionFile(path, {}) as file:
        file.write([{"image": name, "answers": []}, {"image": "日本.png", "answers": []}])
        file.finish()
    assert [row["image"] for row in read(path)] == [name, "日本.png"]
    assert "日本" in path.read_text()


@pytest.mark.skipif(sys.platform in ("darwin", "win32"), reason="file names are Unicode there")
def test_names_that_are_no_unicode_are_printed_and_tabled(shotfit, model, images, tmp_path):
    table = tmp_path / "rows.parquet"
    names = [str(images / os.fsdecode(name)) for name in (b"caf\xe9.png", b"caf\xea.png")]
    os.rename(images / "1" / "01.png", names[0])
    Path(names[1]).write_text("no image")
    code, out, _ = shotfit("predict", model, images, "--skip-broken", "--json")
    assert code == 0
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["image"] for row in rows[-2:]] == names, "JSON's own escape loses nothing"
    assert names[1] in rows[-1]["error"]
    code, out, _ = shotfit("predict", model, images, "--skip-broken")
    assert code == 0
    assert "caf\\udce9.png: " in out
    parquet = pytest.importorskip("pyarrow.parquet")
    assert shotfit("predict", model, images, "--skip-broken", "--out", table)[0] == 0
    last = parquet.read_table(table).to_pylist()[-1]
    assert last["image"].endswith("caf\\udcea.png")
    assert last["image"] in last["error"]


def test_parquet_without_pyarrow_is_said_before_anything_is_done(
    shotfit, model, images, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    code, _, err = shotfit("predict", model, images, "--out", tmp_path / "rows.parquet")
    assert code == 2
    assert "pip install 'shotfit[datasets]'" in err
    assert not list(tmp_path.glob("rows*"))


def test_memory_does_not_grow_with_the_number_of_images(model, tmp_path, monkeypatch):
    """A hundred thousand names: images are asked for as the model gets to them."""
    file = tmp_path / "1.png"
    Image.new("RGB", (40, 40)).save(file)
    asked = []

    def names(_):
        for number in range(100_000):
            asked.append(number)
            yield str(file)

    monkeypatch.setattr(stream, "find_images", names)
    rows = stream.predictions(Question(str(model)), ["x"], total=100_000, batch_size=8, skip=3)
    assert [len(next(rows)) for _ in range(3)] == [8, 8, 8]
    assert isinstance(rows, Generator)
    rows.close()
    assert len(asked) <= 3 + 8 * 6
    assert not [t for t in threading.enumerate() if t.name.startswith("shotfit-ahead")]


# 8 bits


def test_8_bits_are_as_close_as_8_bits_can_be():
    torch.manual_seed(0)
    layer = nn.Linear(96, 64)
    x = torch.randn(5, 7, 96)
    x[0, 0] = 0
    x[1] *= 1000
    rounded = Int8Linear(layer, 127)
    assert rounded.weight.dtype == torch.int8
    expected, found = layer(x), rounded(x)
    assert found.shape == expected.shape
    assert torch.allclose(found[0, 0], layer.bias, atol=1e-6)
    # By token: the loud ones do not drown the others.
    error = (found - expected).norm(dim=-1) / expected.norm(dim=-1)
    assert error.max() < 0.02
    # Products are exact: integers come out as they are.
    whole = nn.Linear(64, 8, bias=False)
    whole.weight.data = torch.randint(-127, 128, (8, 64)).float()
    whole.weight.data[:, 0] = 127
    tokens = torch.randint(-127, 128, (3, 64)).float()
    tokens[:, 0] = 127
    exact = Int8Linear(whole, 127)(tokens)
    if exact_levels() == 127:
        assert torch.allclose(exact, whole(tokens), rtol=1e-6)


def test_quantize_replaces_the_plain_layers_of_the_image_tower(
    checkpoint, images, tmp_path, monkeypatch
):
    recipe = Recipe((Stage("lora", training={"iterations": 1}),))
    classifier = FewShotClassifier(str(checkpoint), recipe).fit(shapes_dataset(4), shots=1)
    expected = classifier.predict_proba(images)
    folder = classifier.save_pretrained(tmp_path / "saved")
    again = FewShotClassifier.from_pretrained(folder, int8=True)
    vision, text = again.method.backbone.vision, again.method.backbone.text
    count = sum(isinstance(module, Int8Linear) for module in vision.modules())
    assert count == 3 * 3, "LoRA's q, k and v stay; out_proj, fc1 and fc2 of three blocks do not"
    assert not any(isinstance(module, Int8Linear) for module in text.modules())
    found = again.predict_proba(images)
    assert not np.array_equal(found, expected)
    assert np.abs(found - expected).max() < 0.05
    with pytest.raises(UsageError, match="save it before"):
        again.save_pretrained(tmp_path / "again")
    monkeypatch.setattr("shotfit.saving.push", lambda *_, **__: pytest.fail("it was uploaded"))
    with pytest.raises(UsageError, match="save it before"):
        again.push_to_hub("someone/pets")


def test_8_bits_are_for_the_processor(model):
    with pytest.raises(UsageError, match="--device cpu"):
        quantize(make_backbone().to("meta").vision)


def test_evaluate_in_8_bits(shotfit, model, checkpoint):
    command = ("evaluate", model, "animals", "--as-novel", "--no-zero-shot", "--json")
    plain = json.loads(shotfit(*command)[1])
    rounded = json.loads(shotfit(*command, "--int8")[1])
    assert set(plain) == set(rounded)
    assert plain["images"] == rounded["images"] > 0


# Ray


def test_ray_that_is_not_there(shotfit, model, images):
    pytest.importorskip("ray")
    code, _, err = shotfit("predict", model, images, "--ray", "127.0.0.1:9")
    assert code == 3
    assert "No Ray cluster can be reached" in err
    code, _, err = shotfit("predict", model, images, "--ray", "somewhere")
    assert code == 2


def test_a_replica_without_a_gpu_of_its_own_leaves_it_alone(model, images, monkeypatch):
    found = []

    def rows_on_ray(*_, device, **__):
        found.append(device)
        yield []

    monkeypatch.setattr("shotfit.apps.predict.on_ray.rows_on_ray", rows_on_ray)
    for gpus, wish in ((0, None), (0.5, None), (0, "cuda")):
        options = {"total": 12, "device": wish, "ray": RayOptions(gpus=gpus), "quiet": True}
        list(stream.predictions(Question(str(model)), [str(images)], **options))
    assert found == ["cpu", None, "cuda"]


def test_names_are_handed_to_ray_a_part_at_a_time(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray.data", MagicMock())
    asked, handed = [], []

    def answered(data, question, names, *_):
        handed.append((list(names), len(asked)))
        yield [{"image": name} for name in names]

    monkeypatch.setattr(on_ray, "NAMES", 100)
    monkeypatch.setattr(on_ray, "connected", contextlib.nullcontext)
    monkeypatch.setattr(on_ray, "slots", lambda *_: 1)
    monkeypatch.setattr(on_ray, "_predicted", answered)
    names = [f"{number}.png" for number in range(250)]
    images = (asked.append(name) or name for name in names)
    rows = on_ray.rows_on_ray(Question("pets"), images, RayOptions(), batch_size=8, device=None)
    assert [row["image"] for part in rows for row in part] == names
    assert [(len(part), taken) for part, taken in handed] == [(100, 100), (100, 200), (50, 250)]


CALL_FAILS = """ray::MapWorker(MapBatches(Replica)).submit() (pid=15288, ip=192.0.2.2)
  File "/x/predicting.py", line 11, in __call__
    raise RuntimeError("no room")
RuntimeError: no room
left

The above exception was the direct cause of the following exception:

ray.exceptions.UserCodeException: UDF failed to process a data block.
To change retry attempts, configure `ray.data.DataContext.get_current()`."""
LOST = """The actor died unexpectedly before finishing this task.
\tclass_name: MapWorker(MapBatches(Replica))
Retry it, perhaps."""


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (CALL_FAILS, "RuntimeError: no room"),
        (LOST, "The actor died unexpectedly before finishing this task."),
        ("", "Exception"),
    ],
)
def test_the_reason_of_a_failure_on_ray_is_neither_a_traceback_nor_advice(message, reason):
    assert on_ray._reason(Exception(message)) == reason


def test_a_replica_says_itself_what_it_failed_of(model, images, monkeypatch):
    replica = on_ray.Replica(question=Question(str(model)), batch_size=4, device="cpu", workers=1)
    names = {"item": np.array(list_images(images))}
    assert len(replica(names)["row"]) == 12
    monkeypatch.setattr(Predictor, "rows", Mock(side_effect=RuntimeError("no room")))
    assert replica(names) == {"row": ['{"failed": "RuntimeError: no room"}']}
    monkeypatch.setattr(Predictor, "__init__", Mock(side_effect=OSError("no disk")))
    replica = on_ray.Replica(question=Question(str(model)), batch_size=4, device="cpu", workers=1)
    assert replica(names) == {"row": ['{"failed": "OSError: no disk"}']}


def test_a_failure_among_rows_of_other_replicas_is_found():
    rows = [{"image": "/x/1.png", "answers": []}, {"failed": "RuntimeError: no room"}]
    data = MagicMock()
    answered = data.from_items.return_value.map_batches.return_value
    answered.iter_batches.return_value = [{"row": [json.dumps(row) for row in rows]}]
    found = on_ray._predicted(data, Question("pets"), ["1.png", "2.png"], RayOptions(), 1, 8, None)
    with pytest.raises(DataError, match="cannot answer: RuntimeError: no room"):
        list(found)


def replicas() -> list[int]:
    """Ray actors with a classifier below this process."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            command = (folder / "cmdline").read_text()
            ancestor = int(folder.name)
            while ancestor not in (0, 1, os.getpid()):
                ancestor = int((Path("/proc") / str(ancestor) / "stat").read_text().split()[3])
        except (OSError, ValueError, IndexError):
            continue
        if ancestor == os.getpid() and command.startswith("ray::MapWorker"):
            found.append(int(folder.name))
    return found


@pytest.mark.long
@pytest.mark.xdist_group("machine")
@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds processes in /proc")
@pytest.mark.filterwarnings("ignore")
def test_on_ray_rows_are_the_same_and_a_lost_replica_is_survived(model, tmp_path, monkeypatch):
    pytest.importorskip("ray")
    source = str(Path(cli.__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", source)
    monkeypatch.chdir(tmp_path)
    noise = np.random.default_rng(0).integers(0, 256, (9, 12, 3), dtype=np.uint8)
    for number in range(160):
        image = Image.fromarray(np.roll(noise, number)).resize((640, 480))
        (tmp_path / "photos").mkdir(exist_ok=True)
        image.save(tmp_path / "photos" / f"{number:03d}.jpg")
    (tmp_path / "photos" / "007.jpg").write_text("no image")
    (tmp_path / "photos" / "009.jpg").rename(tmp_path / "photos" / os.fsdecode(b"caf\xe9.jpg"))
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    monkeypatch.setattr(on_ray, "NAMES", 100)
    question, places = Question(str(model), ("red", "purple")), ["photos"]
    options = {"total": 160, "batch_size": 2, "skip": 1, "skip_broken": True, "quiet": True}
    expected = [row for rows in stream.predictions(question, places, **options) for row in rows]
    killed = []
    rows = []
    for batch in stream.predictions(question, places, ray=RayOptions(), **options):
        rows += batch
        if not killed:
            killed = replicas()
            for pid in killed:
                os.kill(pid, signal.SIGKILL)
    assert len(killed) == 1
    assert [row["image"] for row in rows] == [row["image"] for row in expected]
    for found, known in zip(rows, expected, strict=True):
        assert found.get("error") == known.get("error")
        assert found.get("answers") == known.get("answers")


# Tables, and what it comes to


@pytest.mark.parametrize(("suffix", "separator"), [(".csv", ","), (".tsv", "\t"), (".CSV", ",")])
def test_a_table_says_what_the_lines_say(shotfit, model, images, tmp_path, suffix, separator):
    lines, table = tmp_path / "rows.jsonl", tmp_path / f"rows{suffix}"
    assert shotfit("predict", model, images, "--out", lines)[0] == 0
    assert shotfit("predict", model, images, "--out", table)[0] == 0
    rows = read(lines)
    with table.open(encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file, delimiter=separator))
    assert list(found[0]) == ["image", "class", "probability"]
    assert [(row["image"], row["class"], float(row["probability"])) for row in found] == [
        (row["image"], row["class"], row["probability"]) for row in rows
    ]
    assert all(row["class"] == row["answers"][0]["class"] for row in rows)


def test_a_table_has_columns_for_what_is_asked(shotfit, model, images, tmp_path):
    strange = images / "0" / 'a,"b".png'
    strange.write_text("no image")
    out = tmp_path / "rows.csv"
    code, _, err = shotfit("predict", model, images, "--top", 2, "--out", out, "--skip-broken")
    assert code == 0
    with out.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["image", "class", "probability", "rank", "error"]
    assert [row["rank"] for row in rows if row["image"] == str(images / "0" / "00.png")] == [
        "1",
        "2",
    ]
    (broken,) = [row for row in rows if row["error"]]
    assert broken["image"] == str(strange) and not broken["class"]
    assert f"1 could not be read and have no answer: {strange}" in err


def test_another_ending_is_refused_before_anything_is_done(shotfit, model, images, tmp_path):
    code, _, err = shotfit("predict", model, images, "--out", tmp_path / "answers.xlsx")
    assert code == 2
    assert ".csv, .tsv, .jsonl, .parquet" in err
    assert not list(tmp_path.glob("answers*"))


def answer(image, name, probability):
    best = {"class": name, "probability": probability}
    return {"image": image, **best, "answers": [best]}


def test_the_summary_counts_by_hand():
    summary = Summary()
    summary.add([answer(f"{n}.png", "cat", p) for n, p in enumerate((0.2, 0.9, 0.95))])
    summary.add([answer("4.png", "dog", 0.4999), {"image": "5.png", "error": "broken"}])
    summary.add([{**answer("6.png", "dog", 0.9), "refused": True}])
    assert str(summary).splitlines() == [
        "6 images: 3 cat, 1 dog",
        "Probability of the answer: half of them with at least 90%, 2 below 50%.",
        "1 fit none of the classes.",
        "1 could not be read and have no answer: 5.png",
    ]
    for number in range(12):
        summary.add([answer("x.png", f"class {number}", 1.0)])
    assert "4 of 4 other classes" in str(summary)


def test_the_summary_of_a_resumed_file_counts_all_of_it(shotfit, model, images, tmp_path):
    out = tmp_path / "rows.csv"
    (images / "1" / "04.png").write_text("no image")
    assert shotfit("predict", model, images, "--out", out, "--batch-size", 2)[0] == 3
    code, _, err = shotfit("predict", model, images, "--out", out, "--skip-broken")
    assert code == 0
    assert f"{len(list_images(images) or ())} images:" in err
    assert "images:" not in shotfit("predict", model, images, "--quiet", "--skip-broken")[2]


def test_a_trained_class_in_another_spelling_is_not_asked_for(shotfit, model, images):
    with pytest.warns(UserWarning, match="'Red' is scored by its name alone.*'red'"):
        shotfit("predict", model, images, "--classes", "Red,blue")
