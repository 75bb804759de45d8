"""The embedded model and suite: whole, small, and drawn apart from what was trained on."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import sys
import zipfile
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from plain_clip import pooled
from safetensors.numpy import load

ROOT = Path(__file__).resolve().parents[2]
ASSETS = ROOT / "src" / "shotfit" / "assets"
MODEL = ASSETS / "iconclip"
TASKS = [
    "activities",
    "animals",
    "digits",
    "flags",
    "food",
    "interface",
    "objects",
    "people",
    "smileys",
    "symbols",
    "travel",
]

sys.path.insert(0, str(ROOT / "tools"))
import splits  # noqa: E402


@cache
def manifest(task: str) -> dict:
    with zipfile.ZipFile(ASSETS / "suite" / f"{task}.zip") as archive:
        return json.loads(archive.read("manifest.json"))


def pictures(task: str) -> list[np.ndarray]:
    with zipfile.ZipFile(ASSETS / "suite" / f"{task}.zip") as archive:
        return [
            np.asarray(Image.open(io.BytesIO(archive.read(entry["file"]))).convert("RGB"))
            for entry in manifest(task)["images"]
        ]


@cache
def training_list() -> tuple[list[str], dict[str, np.ndarray]]:
    text = gzip.decompress((ROOT / "tools" / "training_list.txt.gz").read_bytes()).decode()
    return text.split("\n"), load(
        gzip.decompress((ROOT / "tools" / "training_list.safetensors.gz").read_bytes())
    )


@cache
def clip():
    from transformers import AutoTokenizer, CLIPModel

    model = CLIPModel.from_pretrained(MODEL, dtype=torch.float32).eval()
    return model, AutoTokenizer.from_pretrained(MODEL)


def test_suite_is_complete_and_small():
    files = sorted((ASSETS / "suite").glob("*.zip"))
    assert [path.stem for path in files] == TASKS
    assert sum(path.stat().st_size for path in files) <= 20e6


@pytest.mark.parametrize("task", TASKS)
def test_every_class_has_enough_images(task):
    data = manifest(task)
    assert len(set(data["classnames"])) == len(data["classnames"])
    train = Counter(i["label"] for i in data["images"] if i["split"] == "train")
    test = Counter(i["label"] for i in data["images"] if i["split"] == "test")
    for label in range(len(data["classnames"])):
        assert train[label] >= (16 if task == "digits" else 4)
        assert test[label] >= 2
        assert train[label] + test[label] >= 6


@pytest.mark.parametrize("task", TASKS)
def test_splits_and_images_have_the_hashes_written_down(task):
    data = manifest(task)
    lines = [*data["classnames"]]
    with zipfile.ZipFile(ASSETS / "suite" / f"{task}.zip") as archive:
        for entry in data["images"]:
            digest = hashlib.sha256(archive.read(entry["file"])).hexdigest()
            assert digest == entry["sha256"]
            lines.append(f"{entry['file']} {entry['label']} {entry['split']} {digest}")
    total = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    index = json.loads((ASSETS / "suite" / "suite.json").read_text())
    assert total == data["sha256"] == index[task]["sha256"]


@pytest.mark.parametrize("task", TASKS)
def test_images_are_64_by_64(task):
    assert {picture.shape for picture in pictures(task)} == {(64, 64, 3)}


@pytest.mark.parametrize("task", [task for task in TASKS if task != "digits"])
def test_every_style_is_seen_in_training_and_test(task):
    images = manifest(task)["images"]
    by_split = [{i["style"] for i in images if i["split"] == part} for part in ("train", "test")]
    assert by_split[0] == by_split[1]


def test_styles_of_the_suite_are_held_out():
    trained = {icon.split(":")[0] for icon in training_list()[0]}
    assert not trained & splits.HELD_OUT
    shown = {i["source"].split(":")[0] for task in TASKS for i in manifest(task)["images"]}
    assert shown <= splits.HELD_OUT | {"sklearn-digits"}
    assert len(set(splits.HELD_OUT_EMOJI) & shown) >= 7
    assert len(set(splits.HELD_OUT_ICONS) & shown) >= 5


@pytest.mark.parametrize("key", ["drawing", "render"])
def test_no_drawing_or_rendering_of_the_suite_was_trained_on(key):
    icons, tensors = training_list()
    assert len(icons) == len(tensors[key])
    trained = {row.tobytes().hex() for row in tensors[key]}
    for task in TASKS:
        for entry in manifest(task)["images"]:
            assert entry[key] not in trained, entry["source"]


@pytest.mark.long
def test_no_near_duplicate_of_the_suite_was_trained_on():
    from training_list import near_duplicates, thumbnails

    packed = training_list()[1]["thumbnail"]
    trained = np.empty((len(packed), 64), np.uint8)
    trained[:, ::2], trained[:, 1::2] = packed >> 4, packed & 15
    suite = np.concatenate([thumbnails(np.stack(pictures(task))) for task in TASKS])
    # The suite's colours are quantised, so its thumbnails differ by a rounding from those by
    # which the training list was cleaned: ask for a slightly closer match.
    assert not near_duplicates(suite, trained, near=0.025).any()


def test_model_is_small_and_wired_as_clip():
    assert sum(path.stat().st_size for path in MODEL.iterdir()) <= 12e6
    model, tokenizer = clip()
    config = model.config.to_dict()
    text, vision = config["text_config"], config["vision_config"]
    assert vision["hidden_act"] == text["hidden_act"] == "quick_gelu"
    assert text["eos_token_id"] == tokenizer.eos_token_id == len(tokenizer) - 1
    assert model.logit_scale.exp() <= 100.01


@torch.inference_mode()
def test_text_embedding_is_read_at_end_of_text():
    model, tokenizer = clip()
    texts = ["a photo of a dog.", "a photo of a red apple."]
    short = tokenizer(texts, padding=True, return_tensors="pt")
    long = tokenizer(texts, padding="max_length", return_tensors="pt")
    assert long["input_ids"].shape[1] == 77
    alone = tokenizer(texts[:1], return_tensors="pt")
    embeds = [pooled(model.get_text_features(**batch)) for batch in (short, long, alone)]
    torch.testing.assert_close(embeds[0], embeds[1], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(embeds[2], embeds[0][:1], atol=1e-5, rtol=1e-5)


def test_tokenizer_lowercases_and_covers_any_text():
    _, tokenizer = clip()
    ids = tokenizer("A Photo of a DOG.")["input_ids"]
    assert ids == tokenizer("a photo of a dog.")["input_ids"]
    assert ids[0] == tokenizer.bos_token_id and ids[-1] == tokenizer.eos_token_id
    for text in ("".join(map(chr, range(33, 127))), "naïve café Zürich", "犬 🐕 собака"):
        inner = tokenizer(text)["input_ids"][1:-1]
        assert inner and tokenizer.unk_token_id not in inner
        plain = tokenizer.decode(inner).replace(" ", "")
        assert plain == text.lower().replace(" ", "")


@torch.inference_mode()
def test_zero_shot_leaves_chance_far_behind():
    from zero_shot_suite import Model, evaluate_task

    numbers = evaluate_task(Model(MODEL), ASSETS / "suite" / "animals.zip")
    assert numbers["base"] > 20
