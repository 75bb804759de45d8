"""What a saved folder keeps of a classifier, and how it tells one model from another."""

import dataclasses
import json
import shutil
import sys

import pytest
import torch
from conftest import make_backbone, shapes_dataset
from example_images import picture

from shotfit import saving
from shotfit.backbone.fingerprint import position_fingerprint
from shotfit.classifier import FewShotClassifier
from shotfit.config import from_dict
from shotfit.data.dataset import Dataset
from shotfit.errors import DataError
from shotfit.experiment import Experiment
from shotfit.recipe import Recipe, Stage, one_stage, two_stage
from shotfit.records import read_record
from shotfit.saving import CARD, CONFIG, OPTIONS, RECORD

RECIPE = Recipe(
    (
        Stage("layernorm", training={"iterations": 1}),
        Stage("linear", training={"iterations": 1}),
    )
)


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
        saving.load(str(saved), device="cpu")


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


def record_in(folder):
    return read_record(folder / RECORD)


def test_a_classifier_fitted_in_python_says_what_made_it(checkpoint, tmp_path):
    classifier = FewShotClassifier(str(checkpoint), RECIPE, seed=3).fit(shapes_dataset(4), shots=2)
    assert set(classifier.metrics) == {
        *("accuracy", "accuracy_low", "accuracy_high", "macro_f1", "calibration_error")
    }
    folder = classifier.save_pretrained(tmp_path / "saved")
    experiment = settings_of(folder)["experiment"]
    assert (experiment["shots"], experiment["seed"]) == (2, 3)
    assert experiment["setting"] == "all_to_all"
    assert experiment["data"] == {"name": "shapes", "reduced": True}
    record = record_in(folder)
    assert record.metrics == settings_of(folder)["metrics"] == classifier.metrics
    assert record.experiment["shots"] == 2 and record.trainable_parameters[0] > 0
    assert "2 images per class of `shapes`, on" in (folder / CARD).read_text()
    assert "| accuracy |" in (folder / CARD).read_text()


def test_a_place_is_kept_with_the_options_it_was_read_with(checkpoint, tmp_path):
    for number, example in enumerate(shapes_dataset(2).train):
        path = tmp_path / "photos" / f"class {example.label}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        picture(example).save(path)
    classifier = FewShotClassifier(str(checkpoint), RECIPE)
    classifier.fit(tmp_path / "photos", full_size=True)
    assert classifier.experiment.source == "folder"
    assert classifier.experiment.data == {"path": str(tmp_path / "photos")}
    assert classifier.experiment.shots is None
    folder = classifier.save_pretrained(tmp_path / "saved")
    assert "all images per class of `photos`" in (folder / CARD).read_text()
    assert "Not evaluated." in (folder / CARD).read_text()


def test_a_second_fit_leaves_nothing_of_the_first(checkpoint, tmp_path):
    classifier = FewShotClassifier(str(checkpoint), RECIPE).fit(shapes_dataset(4), shots=2)
    untested = dataclasses.replace(shapes_dataset(3), test=())
    classifier.fit(untested, shots=1)
    assert classifier.metrics == {}
    folder = classifier.save_pretrained(tmp_path / "saved")
    assert settings_of(folder)["metrics"] == {} == record_in(folder).metrics
    assert settings_of(folder)["experiment"]["shots"] == 1
    assert record_in(folder).experiment["shots"] == 1


def test_saving_in_place_keeps_what_made_it_and_what_others_put_there(fitted, tmp_path):
    folder = fitted.save_pretrained(tmp_path / "saved")
    (folder / OPTIONS).write_bytes(b"# by hand\r\nshots: 4\n")
    (folder / "notes").mkdir()
    (folder / "notes" / "mine.txt").write_text("mine")
    (folder / "picture.png").write_bytes(b"png")
    before = (folder / RECORD).read_bytes()
    again = FewShotClassifier.from_pretrained(folder)
    again.add_classes(["purple"])
    again.save_pretrained(folder)
    assert (folder / RECORD).read_bytes() == before
    assert (folder / OPTIONS).read_bytes() == b"# by hand\r\nshots: 4\n"
    assert (folder / "notes" / "mine.txt").read_text() == "mine"
    assert (folder / "picture.png").read_bytes() == b"png"
    assert FewShotClassifier.from_pretrained(folder).classes[-1] == "purple"
    # Another classifier in its place has its own record, and no options of the first.
    other = FewShotClassifier(fitted.experiment.backbone, "zero_shot")
    other.fit(shapes_dataset(2), shots=1)
    other.save_pretrained(folder)
    assert record_in(folder).id != fitted.experiment.id
    assert not (folder / OPTIONS).exists()
    assert (folder / "picture.png").exists()


def test_the_demo_saves_what_it_ran(tmp_path, monkeypatch):
    from shotfit.apps.demo import showcase

    brief = {"iters_per_shot": 1, "budget": "shared", "first_fraction": 0.5}
    methods = {
        "zero-shot": one_stage("zero_shot"),
        "2SFS": two_stage(**brief),
    }
    monkeypatch.setattr(showcase, "METHODS", methods)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    found = showcase.showcase("interface", 2, 5, tmp_path, quiet=True)
    folder = tmp_path / "classifier"
    experiment = from_dict(Experiment, settings_of(folder)["experiment"])
    assert experiment.recipe == methods["2SFS"]
    assert (experiment.setting, experiment.shots, experiment.seed) == ("base_to_novel", 2, 5)
    assert experiment.data == {"name": "interface"}
    assert record_in(folder).metrics == found["metrics"]["2SFS"] == settings_of(folder)["metrics"]
    assert (
        "2 images per class of `interface`, trained on the first half"
        in (folder / CARD).read_text()
    )
