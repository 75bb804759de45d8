"""What a saved folder keeps of a classifier, and how it tells one model from another."""

import json
import shutil

import pytest
import torch
from conftest import make_backbone, shapes_dataset

from shotfit import saving
from shotfit.backbone.fingerprint import position_fingerprint
from shotfit.classifier import FewShotClassifier
from shotfit.data.dataset import Dataset
from shotfit.errors import DataError
from shotfit.saving import CARD, CONFIG


@pytest.fixture(scope="module")
def other_template() -> Dataset:
    plain = shapes_dataset(3)
    return Dataset(plain.name, plain.classnames, plain.train, (), plain.test, "a {} on a plate.")


@pytest.fixture
def fitted(checkpoint, other_template):
    return FewShotClassifier(str(checkpoint), "zero_shot").fit(other_template)


def settings_of(folder):
    return json.loads((folder / CONFIG).read_text())


@pytest.mark.parametrize("tower", ["vision", "text"])
def test_the_fingerprint_is_of_both_towers(tower):
    one, same, other = make_backbone(), make_backbone(), make_backbone()
    assert (
        position_fingerprint(one)
        == position_fingerprint(same)
        != position_fingerprint(make_backbone(seed=1))
    )
    with torch.no_grad():
        getattr(other, tower).position_embedding[0, 0] += 1e-3
    assert position_fingerprint(other) != position_fingerprint(one)
    assert len(position_fingerprint(one)) == 12


@pytest.mark.parametrize("tower", ["vision_model", "text_model"])
def test_a_model_with_one_other_tower_is_refused(other_template, checkpoint, tmp_path, tower):
    import safetensors.torch

    folder = shutil.copytree(checkpoint, tmp_path / "clip")
    fitted = FewShotClassifier(str(folder), "zero_shot").fit(other_template)
    saved = fitted.save_pretrained(tmp_path / "saved")
    weights = folder / "model.safetensors"
    state = safetensors.torch.load_file(weights)
    name = f"{tower}.embeddings.position_embedding.weight"
    state[name] = state[name] + 1e-2
    safetensors.torch.save_file(state, weights, metadata={"format": "pt"})
    with pytest.raises(DataError, match="weights differ"):
        saving.load(str(saved), device="cpu", revision=None)


def test_the_template_comes_back(fitted, tmp_path):
    again = FewShotClassifier.from_pretrained(fitted.save_pretrained(tmp_path / "saved"))
    assert again.method.template == "a {} on a plate."
    assert again.method.class_text("dark_red") == "a dark red on a plate."
    # Names asked for later are embedded with it too, not only those that were saved.
    expected = fitted.method.encode_classes(["purple"]).weight
    assert torch.equal(again.method.encode_classes(["purple"]).weight, expected)


def test_metrics_come_back_and_are_on_the_card(fitted, tmp_path):
    fitted.metrics = {"all": 87.5, "base": 12.345}
    folder = fitted.save_pretrained(tmp_path / "saved")
    assert settings_of(folder)["metrics"] == fitted.metrics
    assert FewShotClassifier.from_pretrained(folder).metrics == {"all": 87.5, "base": 12.345}
    card = (folder / CARD).read_text()
    assert "| all | 87.50 |" in card and "| base | 12.35 |" in card
