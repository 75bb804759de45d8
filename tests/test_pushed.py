"""What `push_to_hub` hands to the hub's client, and how; the client itself is in tests/system."""

import io
import json

import pytest
import yaml
from conftest import shapes_dataset
from hub_uploads import Uploads
from PIL import ExifTags, Image

from shotfit.classifier import FewShotClassifier
from shotfit.errors import DataError
from shotfit.recipe import named_recipe
from shotfit.saved_settings import CONFIG


@pytest.fixture(scope="module")
def fitted(checkpoint):
    recipe = named_recipe("2sfs", iters_per_shot=2)
    return FewShotClassifier(str(checkpoint), recipe).fit(shapes_dataset(4), shots=2)


def test_what_is_uploaded_points_at_no_folder_beside_it(fitted, monkeypatch):
    hub = Uploads()
    monkeypatch.setattr("huggingface_hub.hub_mixin.HfApi", hub)
    assert fitted.push_to_hub("me/mine") == "https://huggingface.co/me/mine/commit/1"
    assert (hub.asked["private"], hub.asked["revision"]) == (None, None)
    assert hub.asked["commit_message"]
    settings = json.loads(hub.files[CONFIG])
    assert settings["backbone_folder"] is None
    assert settings["signature"] is None
    config = json.loads(hub.files["config.json"])
    assert list(config["id2label"].values()) == list(fitted.classes)
    assert "/" not in config["backbone"], "where the model lay is nobody's business"


def test_the_mixin_is_asked_in_its_own_words(fitted, monkeypatch):
    hub = Uploads()
    monkeypatch.setattr("huggingface_hub.hub_mixin.HfApi", hub)
    fitted.push_to_hub(
        "me/mine", private=True, token="hf_x", create_pr=True, branch="v2", commit_message="Why"
    )
    expected = {"private": True, "token": "hf_x", "create_pr": True, "revision": "v2"}
    assert expected.items() <= hub.asked.items()
    assert hub.asked["commit_message"] == "Why"


def test_an_example_is_shown_by_its_pixels_alone(fitted, monkeypatch, tmp_path):
    hub = Uploads()
    monkeypatch.setattr("huggingface_hub.hub_mixin.HfApi", hub)
    exif = Image.Exif()
    exif.get_ifd(ExifTags.IFD.GPSInfo)[ExifTags.GPS.GPSLatitude] = (46.0, 4.0, 0.0)
    photo = tmp_path / "photo.jpg"
    Image.new("RGB", (900, 600), "red").save(photo, exif=exif)
    fitted.push_to_hub("me/mine", example=photo)
    shown = Image.open(io.BytesIO(hub.files["example.png"]))
    assert shown.size == (512, 341)
    assert not shown.getexif() and not shown.info
    card = hub.files["README.md"].decode()
    [widget] = yaml.safe_load(card.split("---\n")[1])["widget"]
    found = dict(zip(fitted.classes, fitted.predict_proba(photo).tolist(), strict=True))
    assert widget["src"] == "example.png"
    assert widget["example_title"] == widget["output"][0]["label"] == fitted.predict(photo)
    assert {one["label"]: one["score"] for one in widget["output"]} == {
        one["label"]: round(found[one["label"]], 4) for one in widget["output"]
    }
    assert "![An image](example.png)" in card
    with pytest.raises(DataError):
        fitted.push_to_hub("me/mine", example=tmp_path)
