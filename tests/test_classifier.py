"""The facade: fit, predict, classes by name, and the folder it is saved in."""

import json
import shutil

import numpy as np
import pytest
import torch
from conftest import shapes_dataset, tiny_clip
from example_images import picture
from PIL import Image
from safetensors.torch import load_file, save_file

from shotfit.backbone import Backbone
from shotfit.classifier import FewShotClassifier
from shotfit.errors import DataError, UsageError
from shotfit.methods.base import Method
from shotfit.methods.linear import LinearClassifier
from shotfit.recipe import Recipe, Stage
from shotfit.saved_settings import CONFIG, SHOTS, WEIGHTS, checksum, sha256
from shotfit.saving import CLASSES, RECORD

RECIPE = Recipe(
    (
        Stage("layernorm", training={"iterations": 4, "lr": 1e-2}),
        Stage("linear", training={"iterations": 4, "lr": 1e-2}),
    )
)


@pytest.fixture(scope="module")
def fitted(checkpoint):
    return FewShotClassifier(str(checkpoint), RECIPE).fit(shapes_dataset(4), shots=2)


@pytest.fixture
def images(tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    for number, example in enumerate(shapes_dataset(4).test[:5]):
        picture(example).save(folder / f"{number}.png")
    return folder


@pytest.fixture
def saved(fitted, tmp_path):
    return fitted.save_pretrained(tmp_path / "saved")


def test_one_in_one_out_many_in_many_out(fitted, images):
    single = fitted.predict(images / "0.png")
    assert single in fitted.classes
    assert fitted.predict(str(images / "0.png")) == single
    assert fitted.predict(Image.open(images / "0.png")) == single
    assert fitted.predict(np.asarray(Image.open(images / "0.png"))) == single
    assert fitted.predict([images / "0.png"]) == [single]
    assert fitted.predict(images)[0] == single
    assert len(fitted.predict(str(images / "*.png"))) == 5
    assert fitted.predict_proba(images).shape == (5, 4)
    assert fitted.predict_proba(images / "0.png").shape == (4,)
    assert np.allclose(fitted.predict_proba(images).sum(axis=1), 1, atol=1e-5)


def test_saved_and_loaded_gives_the_same_bits(fitted, saved, images):
    again = FewShotClassifier.from_pretrained(saved)
    assert again.classes == fitted.classes
    assert np.array_equal(again.predict_proba(images), fitted.predict_proba(images))
    names = ["purple", "red", "yellow"]
    assert np.array_equal(again.predict_proba(images, names), fitted.predict_proba(images, names))


def test_same_seed_same_bits(fitted, checkpoint):
    other = FewShotClassifier(str(checkpoint), RECIPE).fit(shapes_dataset(4), shots=2)
    for name, value in fitted.method.learned_state().items():
        assert torch.equal(value, other.method.learned_state()[name])


def test_the_folder_holds_only_what_changed(saved):
    import safetensors.torch

    state = safetensors.torch.load_file(saved / WEIGHTS)
    assert "weight" in state
    assert all(k == "weight" or ".norm" in k for k in state)
    assert sorted(p.name for p in saved.iterdir()) == [
        "README.md",
        CLASSES,
        WEIGHTS,
        RECORD,
        CONFIG,
        SHOTS,
    ]


def test_classes_by_name(checkpoint, images):
    classifier = FewShotClassifier(str(checkpoint), RECIPE).fit(shapes_dataset(4), shots=2)
    before = classifier.predict_proba(images)
    classifier.add_classes(["purple", "orange"])
    assert classifier.classes == ("red", "green", "blue", "yellow", "purple", "orange")
    after = classifier.predict_proba(images)
    assert np.allclose(after[:, :4] / after[:, :4].sum(1, keepdims=True), before, atol=1e-5)
    classifier.remove_classes(["red", "orange"])
    assert classifier.classes == ("green", "blue", "yellow", "purple")
    assert classifier.predict_proba(images).shape == (5, 4)
    with pytest.raises(UsageError, match="no class 'red'"):
        classifier.remove_classes(["red"])
    with pytest.raises(DataError, match="empty"):
        classifier.add_classes([" "])
    with pytest.raises(DataError, match="tokens"):
        classifier.add_classes(["red " * 90])
    assert classifier.classes == ("green", "blue", "yellow", "purple")
    with pytest.warns(UserWarning, match="exist already"):
        classifier.add_classes(["green"])
    assert len(classifier.classes) == 5


def test_a_removed_class_that_is_added_again_is_the_trained_one(checkpoint, images):
    classifier = FewShotClassifier(str(checkpoint), RECIPE).fit(shapes_dataset(4), shots=2)
    before = classifier.predict_proba(images)
    classifier.metrics = {"accuracy": 50.0}
    classifier.remove_classes(["red"])
    assert classifier.metrics == {}
    classifier.add_classes(["red"])
    assert classifier.classes == ("green", "blue", "yellow", "red")
    assert np.allclose(classifier.predict_proba(images), np.roll(before, -1, axis=1), atol=1e-6)


def test_added_classes_are_saved(checkpoint, images, tmp_path):
    classifier = FewShotClassifier(str(checkpoint), RECIPE).fit(shapes_dataset(4), shots=2)
    classifier.add_classes(["purple"])
    classifier.remove_classes(["green"])
    again = FewShotClassifier.from_pretrained(classifier.save_pretrained(tmp_path / "s"))
    assert again.classes == ("red", "blue", "yellow", "purple")
    assert np.array_equal(again.predict_proba(images), classifier.predict_proba(images))


def test_equal_names_are_kept_apart(checkpoint, images):
    dataset = shapes_dataset(4)
    pairs = [(e.image, dataset.classnames[e.label]) for e in dataset.train]
    twins = dataset.__class__("twins", ("red", "red", "blue", "blue"), dataset.train)
    with pytest.warns(UserWarning, match="More than one class"):
        classifier = FewShotClassifier(str(checkpoint), RECIPE).fit(twins, shots=2)
    assert classifier.predict_proba(images).shape == (5, 4)
    rows = classifier.method.encode_classes(classifier.classes)
    assert rows.rows == (0, 1, 2, 3)
    assert not torch.equal(rows.weight[0], rows.weight[1])
    classifier = FewShotClassifier(str(checkpoint), RECIPE).fit(pairs)
    assert classifier.classes == ("red", "green", "blue", "yellow")


def test_nothing_is_embedded_twice(fitted, images, monkeypatch):
    """Trained names are rows: the text tower runs only for names it has not embedded yet."""
    fitted.predict(images)
    calls = []
    original = Method.encode_classes
    monkeypatch.setattr(
        Method,
        "encode_classes",
        lambda self, names: calls.append(tuple(names)) or original(self, names),
    )
    fitted.predict(images)
    assert calls == []
    assert isinstance(fitted.method, LinearClassifier)
    fitted.predict(images, ["red", "purple", "blue"])
    assert calls == [("purple",)]


def test_no_images_have_no_answers_and_no_classes_are_refused(fitted, images):
    assert fitted.predict([]) == []
    assert fitted.predict_proba([]).shape == (0, len(fitted.classes))
    assert fitted.predict_proba([], ["purple", "red"]).shape == (0, 2)
    assert fitted.predict_proba([]).dtype == np.float32
    for found in (fitted.predict, fitted.predict_proba):
        with pytest.raises(UsageError, match="no class names"):
            found(images, [])


def test_not_fitted_and_bad_calls(checkpoint, fitted, images, tmp_path):
    with pytest.raises(UsageError, match="call fit first"):
        FewShotClassifier(str(checkpoint)).predict(images)
    with pytest.raises(UsageError, match="as a list"):
        fitted.predict(images, "red")
    with pytest.raises(DataError, match="no image file"):
        fitted.predict(tmp_path / "none.png")
    with pytest.raises(DataError, match="No images in"):
        fitted.predict(str(tmp_path / "*.tiff"))
    with pytest.raises(UsageError, match="uint8"):
        fitted.predict(np.zeros((4, 4)))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: (f / WEIGHTS).unlink(), "model.safetensors is missing"),
        (lambda f: (f / WEIGHTS).write_bytes(b"no"), "model.safetensors has been altered"),
        (lambda f: (f / CONFIG).unlink(), "not a saved classifier"),
        (lambda f: (f / CONFIG).write_text("{"), "cannot be read"),
        (lambda f: (f / CONFIG).write_text('{"format": 99}'), "format 99"),
        (
            lambda f: (f / CONFIG).write_text((f / CONFIG).read_text().replace("red", "rat")),
            "altered",
        ),
    ],
)
def test_damaged_folders_are_refused(saved, spoil, message):
    spoil(saved)
    with pytest.raises(DataError, match=message):
        FewShotClassifier.from_pretrained(saved)


def test_another_backbone_is_noticed(fitted, saved, checkpoint, tmp_path):
    other = shutil.copytree(checkpoint, tmp_path / "other")
    tiny_clip(seed=5).save_pretrained(other)
    with pytest.raises(DataError, match="weights differ"):
        FewShotClassifier.from_pretrained(saved, backbone=str(other))


def test_per_prompt_embeddings_saved_under_their_former_name_are_read(
    checkpoint, images, tmp_path, monkeypatch
):
    recipe = Recipe((Stage("plot_pp", training={"iterations": 1, "epochs": None}),))
    fitted = FewShotClassifier(str(checkpoint), recipe).fit(shapes_dataset(4), shots=1)
    saved = fitted.save_pretrained(tmp_path / "saved")
    tensors = load_file(saved / CLASSES)
    save_file({"weight": tensors["weight"], "views": tensors["per_prompt"]}, saved / CLASSES)
    settings = json.loads((saved / CONFIG).read_text())
    settings["classes"] = sha256(saved / CLASSES)
    settings["checksum"] = checksum(settings)
    (saved / CONFIG).write_text(json.dumps(settings))
    again = FewShotClassifier.from_pretrained(saved)
    monkeypatch.setattr(Backbone, "encode_text", lambda *_: pytest.fail("names embedded anew"))
    assert np.array_equal(again.predict_proba(images), fitted.predict_proba(images))


def test_a_model_in_a_folder_is_found_from_anywhere_and_moves_along(
    checkpoint, images, tmp_path, monkeypatch
):
    project = tmp_path / "project"
    shutil.copytree(checkpoint, project / "clip")
    monkeypatch.chdir(project)
    fitted = FewShotClassifier("clip", RECIPE).fit(shapes_dataset(4), shots=2)
    fitted.save_pretrained("fits/mine")
    expected = fitted.predict_proba(images)
    monkeypatch.chdir(tmp_path)
    again = FewShotClassifier.from_pretrained(project / "fits" / "mine")
    assert np.array_equal(again.predict_proba(images), expected)
    # A copy that is saved elsewhere finds it too, and so does the whole project elsewhere.
    again.save_pretrained(project / "fits" / "deeper" / "copy")
    project.rename(tmp_path / "moved")
    moved = FewShotClassifier.from_pretrained("moved/fits/deeper/copy")
    assert np.array_equal(moved.predict_proba(images), expected)
    shutil.rmtree("moved/clip")
    with pytest.raises(DataError, match="was fitted with a model that is needed"):
        FewShotClassifier.from_pretrained("moved/fits/mine")


def test_a_revision_is_asked_of_the_hub_and_refused_elsewhere(
    checkpoint, monkeypatch, tmp_path, shotfit
):
    import huggingface_hub

    asked = []

    def snapshot(name, revision, **_):
        asked.append((name, revision))
        return checkpoint

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    classifier = FewShotClassifier("org/clip", "zero_shot", revision="v2").fit(shapes_dataset(2))
    FewShotClassifier.from_pretrained(classifier.save_pretrained(tmp_path / "saved"))
    assert asked == [("org/clip", "v2")] * 2
    with pytest.raises(UsageError, match="here already"):
        Backbone.from_pretrained(str(checkpoint), "v2")
    code, _, error = shotfit("fit", "digits", "--revision", "v2", "--out", str(tmp_path / "out"))
    assert (code, "here already" in error) == (2, True)


def test_saving_over_something_else_is_refused(fitted, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    with pytest.raises(DataError, match="left as it is"):
        fitted.save_pretrained(tmp_path / "mine")
    folder = fitted.save_pretrained(tmp_path / "again")
    fitted.save_pretrained(folder)
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []
