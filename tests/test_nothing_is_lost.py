"""What is already there when something is saved: it stays, or is replaced as a whole."""

import json
import os
import shutil

import pytest
from conftest import shapes_dataset

from shotfit.backbone.hub import find_checkpoint
from shotfit.classifier import FewShotClassifier
from shotfit.errors import DataError
from shotfit.saving import OWN_FILES, check_target
from shotfit.system import folders


@pytest.fixture(scope="module")
def fitted(checkpoint):
    return FewShotClassifier(str(checkpoint), "zero_shot").fit(shapes_dataset(3))


def contents(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_a_pretrained_model_is_no_saved_classifier_whatever_its_files_are_called(fitted, tmp_path):
    """The embedded one has a shotfit.json and a model.safetensors, as a saved classifier has."""
    model = shutil.copytree(find_checkpoint("iconclip", None), tmp_path / "my-model")
    before = contents(model)
    with pytest.raises(DataError, match="is not a saved classifier; it is left as it is"):
        check_target(model)
    with pytest.raises(DataError, match="left as it is"):
        fitted.save_pretrained(model)
    assert contents(model) == before


def test_fitting_onto_the_model_itself_is_refused_before_training(checkpoint, tmp_path, shotfit):
    model = shutil.copytree(checkpoint, tmp_path / "my-model")
    (model / "shotfit.json").write_text('{"crop_scale_min": 0.5}')
    before = contents(model)
    code, _, error = shotfit("fit", "digits", "--backbone", model, "--out", model)
    assert code == 3 and "left as it is" in error and "stage 1" not in error
    assert contents(model) == before


@pytest.mark.parametrize("spoiled", ["weights", "config", "checksum"])
def test_a_folder_whose_files_are_others_by_now_is_left_as_it_is(fitted, tmp_path, spoiled):
    folder = fitted.save_pretrained(tmp_path / "saved")
    if spoiled == "weights":
        shutil.copy(find_checkpoint("iconclip", None) / "model.safetensors", folder)
    if spoiled == "config":
        (folder / "shotfit.json").write_text('["not", "ours"]')
    if spoiled == "checksum":
        settings = json.loads((folder / "shotfit.json").read_text())
        (folder / "shotfit.json").write_text(json.dumps({**settings, "template": "{}"}))
    before = contents(folder)
    with pytest.raises(DataError, match="left as it is"):
        fitted.save_pretrained(folder)
    assert contents(folder) == before


def test_a_save_that_is_refused_the_exchange_leaves_the_old_one(fitted, tmp_path, monkeypatch):
    folder = fitted.save_pretrained(tmp_path / "saved")
    before = contents(folder)

    def busy(one, other):
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(folders, "_exchanged", busy)
    with pytest.raises(DataError, match="busy"):
        fitted.save_pretrained(folder)
    assert contents(folder) == before
    assert list(tmp_path.iterdir()) == [folder]


def test_a_classifier_that_a_kill_left_hidden_is_found_again(fitted, tmp_path):
    folder = fitted.save_pretrained(tmp_path / "saved")
    hidden = tmp_path / ".shotfit-previous-x1"
    hidden.mkdir()
    folder.rename(hidden / "saved")
    assert FewShotClassifier.from_pretrained(folder).classes == fitted.classes
    assert list(tmp_path.iterdir()) == [folder]


def test_a_mount_that_holds_a_classifier_is_told_before_training(fitted, tmp_path, monkeypatch):
    folder = fitted.save_pretrained(tmp_path / "saved")
    monkeypatch.setattr("os.path.ismount", lambda path: str(path) == str(folder))
    with pytest.raises(DataError, match="holds a classifier and cannot be exchanged"):
        check_target(folder)


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_every_file_of_a_folder_can_be_read_by_whoever_may_read_the_folder(fitted, tmp_path, umask):
    before = os.umask(umask)
    try:
        folder = fitted.save_pretrained(tmp_path / "saved")
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o777 == 0o777 & ~umask
    found = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert "model.safetensors" in found and set(found) <= set(OWN_FILES)
    assert set(found.values()) == {0o666 & ~umask}


def test_a_private_file_that_a_user_put_there_stays_private(fitted, tmp_path):
    folder = fitted.save_pretrained(tmp_path / "saved")
    (folder / "key.txt").write_text("mine")
    (folder / "key.txt").chmod(0o600)
    fitted.save_pretrained(folder)
    assert (folder / "key.txt").stat().st_mode & 0o777 == 0o600
