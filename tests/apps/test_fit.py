"""What `fit` says and does about images and names that are not as they should be."""

import json
from typing import Any

import pytest
import yaml
from conftest import shapes_dataset
from example_images import picture
from huggingface_hub import constants
from PIL import Image

from shotfit.backbone import Backbone
from shotfit.config import options_of
from shotfit.data.broken import without_broken
from shotfit.data.sources.folder import load
from shotfit.errors import DataError
from shotfit.experiment import Experiment
from shotfit.learning import unsuited
from shotfit.methods.gda import GDAConfig
from shotfit.methods.published import TrainConfig
from shotfit.system.paths import mistyped_folder


@pytest.fixture
def photos(tmp_path):
    for example in shapes_dataset(3, train=3, test=0).train:
        path = (tmp_path / "photos" / example.key).with_suffix(".jpg")
        path.parent.mkdir(parents=True, exist_ok=True)
        picture(example).resize((200, 150)).save(path, quality=90)
    return tmp_path / "photos" / "train"


def spoil(photos):
    """An image cut off in the middle, as after a broken download."""
    path = photos / "red" / "1.jpg"
    path.write_bytes(path.read_bytes()[:-500])
    return path


def test_broken_images_are_left_out_and_named(shotfit, photos, checkpoint, tmp_path):
    path = spoil(photos)
    options = ("--backbone", checkpoint, "--iters-per-shot", 4)
    options += ("--out", tmp_path / "model", "--overwrite")
    code, _, err = shotfit("fit", photos, *options)
    assert code == 3 and str(path) in err
    code, out, _ = shotfit("fit", photos, *options, "--skip-broken")
    assert code == 0
    assert f"Left out 1 images: {path} cannot be read" in out
    assert yaml.safe_load((tmp_path / "model" / "config.yaml").read_text())["skip_broken"] is True
    code, out, _ = shotfit("fit", photos, *options, "--skip-broken", "--json", "-q")
    assert str(path) in json.loads(out)["skipped"][0]


def test_a_class_of_broken_images_is_an_error(photos):
    spoil(photos)
    dataset, errors = without_broken(load(str(photos)))
    assert len(dataset.train) == 8 and len(errors) == 1
    for path in (photos / "red").iterdir():
        path.write_text("no image")
    with pytest.raises(DataError, match="No training image of class 'red' can be read"):
        without_broken(load(str(photos)))


def test_photographs_ask_for_a_model_that_has_seen_some(shotfit, photos, tmp_path, checkpoint):
    options = ("--preset", "instant", "--out", tmp_path / "model", "--overwrite")
    _, _, err = shotfit("fit", photos, *options)
    assert "knows nothing of photographs" in err
    assert "--backbone openai/clip-vit-base-patch16" in err
    assert "photographs" not in shotfit("fit", photos, *options, "--backbone", checkpoint)[2]
    assert unsuited("iconclip", shapes_dataset(3)) is None
    assert "photographs" in str(unsuited("iconclip", load(str(photos))))


def test_a_mistyped_folder_is_no_error_of_the_hub(shotfit, tmp_path, monkeypatch):
    (tmp_path / "pets").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("socket.socket.connect", None)  # nothing is asked of a network
    for name in ("pest", "./pest", str(tmp_path / "pest")):
        code, _, err = shotfit("predict", name, "image.png")
        assert code == 3 and "Did you mean" in err and "pets'" in err
        with pytest.raises(DataError, match="Did you mean"):
            Backbone.from_pretrained(name)
    assert mistyped_folder("openai/clip-vit-base-patch16") is None
    (tmp_path / "openai").mkdir()
    assert "no folder 'openai/clip'" in str(mistyped_folder("openai/clip"))


def test_without_a_network_it_says_what_is_here(tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    snapshot = tmp_path / "models--someone--tiny" / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps({"model_type": "clip"}))
    with pytest.raises(DataError, match="Here are: iconclip, someone/tiny"):
        Backbone.from_pretrained("openai/clip-vit-base-patch16")


def test_a_setting_has_one_spelling_and_both_are_taken(shotfit, checkpoint, tmp_path):
    spellings: tuple[Any, ...] = ("base-to-novel", "base_to_novel")
    one, other = (Experiment(setting=name) for name in spellings)
    assert one == other and one.id == other.id
    for name in spellings:
        _, out, _ = shotfit("bench", "--dry-run", "--setting", name, "--datasets", "digits")
        assert "base-to-novel" in out and "base_to_novel" not in out
    options = ("--backbone", checkpoint, "--shots", 1, "--iters-per-shot", 4)
    assert shotfit("fit", "digits", *options, "--out", tmp_path / "m", "-q")[0] == 0
    assert yaml.safe_load((tmp_path / "m" / "config.yaml").read_text())["setting"] == "all-to-all"


def test_options_say_their_values():
    found = {option.name: option for option in options_of(TrainConfig())}
    assert found["lr"] == ("lr", 2e-4, "number, not negative")
    assert found["batch_size"].values == "whole number, at least 1"
    assert found["optimizer"].values == "adamw | adam | sgd"
    assert found["micro_batch"].values == "whole number, at least 1 or auto or none"
    assert {option.name for option in options_of(GDAConfig())} >= {"alpha", "estimator", "passes"}


def test_methods_are_listed_with_their_options(shotfit):
    rows = {row["name"]: row for row in json.loads(shotfit("list-methods", "--json")[1])}
    assert rows["2sfs"]["kind"] == "method" and rows["instant"]["kind"] == "preset"
    views = next(o for o in rows["fast"]["options"] if o["name"] == "linear.views")
    assert views["default"] == 8
    out = shotfit("list-methods", "2sfs:lora")[1]
    for name in ("rank", "training.cosine_iterations", "linear.inner_dropout", "--first-fraction"):
        assert f" {name} " in out
    code, _, err = shotfit("list-methods", "lorra")
    assert code == 2 and "Did you mean 'lora'" in err


def test_an_image_is_opened_once_for_its_pixels_and_its_hash(photos, checkpoint, monkeypatch):
    from shotfit.classifier import FewShotClassifier
    from shotfit.data import decoded, image_hashes
    from shotfit.data.image_hashes import image_hash

    opened = []

    def counting(module):
        original = module.opened_image

        def opened_image(image, *rest, **options):
            opened.append(str(image))
            return original(image, *rest, **options)

        monkeypatch.setattr(module, "opened_image", opened_image)

    counting(decoded)
    counting(image_hashes)
    classifier = FewShotClassifier(str(checkpoint), "zero_shot")
    classifier.fit(str(photos), verbose=False)
    files = sorted(map(str, photos.rglob("*.jpg")))
    assert sorted(opened) == files
    assert classifier.trained_images == {image_hash(Image.open(file)) for file in files}
