"""What is already there when something is saved: it stays, or is replaced as a whole."""

import json
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import shapes_dataset
from example_images import write_images

from shotfit.apps.commands.add_classes import add_classes
from shotfit.apps.commands.remove_classes import remove_classes
from shotfit.apps.rescue import save_somewhere
from shotfit.backbone.hub import find_checkpoint
from shotfit.classifier import FewShotClassifier
from shotfit.errors import DataError
from shotfit.report.figures.canvas import new_figure, save
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


def test_a_finished_classifier_is_replaced_on_request_alone(tmp_path, shotfit):
    out = tmp_path / "model"
    fit = ("fit", "digits", "--shots", 1, "--out", out, "-q", "-o", "training.iterations=1")
    assert shotfit(*fit)[0] == 0
    before = contents(out)
    code, _, error = shotfit(*fit, "--seed", 2)
    assert code == 3 and "holds a classifier already: --overwrite replaces it" in error
    assert contents(out) == before
    assert shotfit(*fit, "--seed", 2, "--overwrite")[0] == 0
    assert contents(out) != before
    # What a fit has left that was interrupted is there to be finished.
    record = json.loads((out / "record.json").read_text())
    (out / "record.json").write_text(json.dumps({**record, "status": "interrupted"}))
    check_target(out, overwrite=False)


def test_what_was_trained_is_saved_elsewhere_when_its_place_fails(fitted, tmp_path, monkeypatch):
    out = tmp_path / "there" / "model"
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    def full(folder):
        if folder.is_relative_to(tmp_path / "there"):
            raise OSError(28, "No space left on device")
        return _scratch(folder)

    _scratch = folders._scratch
    monkeypatch.setattr(folders, "_scratch", full)
    with pytest.raises(DataError, match="No space left") as raised:
        save_somewhere(fitted, out)
    (rescued,) = (tmp_path / "here").iterdir()
    assert str(rescued) in str(raised.value)
    assert FewShotClassifier.from_pretrained(rescued).classes == fitted.classes


@pytest.mark.parametrize("damage", ["gone", "text", "folder"])
def test_an_unreadable_test_image_is_told_before_training(tmp_path, shotfit, damage):
    dataset = shapes_dataset(2, train=2, test=2)
    write_images(tmp_path / "data", (*dataset.train, *dataset.test))
    lines = ["path,label,split"]
    lines += [f"{p.relative_to(tmp_path / 'data')},{p.parts[-2]},{p.parts[-3]}"
              for p in sorted((tmp_path / "data").rglob("*.png"))]  # fmt: skip
    (tmp_path / "data" / "all.csv").write_text("\n".join(lines) + "\n")
    broken = tmp_path / "data" / "test" / "red" / "1.png"
    broken.unlink()
    if damage == "text":
        broken.write_text("no image")
    if damage == "folder":
        broken.mkdir()
    code, _, error = shotfit("fit", tmp_path / "data" / "all.csv", "--out", tmp_path / "model")
    assert code == 3 and "test/red/1.png" in error
    assert "stage 1" not in error and not (tmp_path / "model").exists()


def test_a_table_and_a_figure_take_the_place_of_nothing_else(tmp_path, shotfit):
    out = tmp_path / "table.md"
    table = ("table", "b2n", "--format", "markdown", "--out", out)
    assert shotfit(*table)[0] == 0
    made = out.read_bytes()
    assert shotfit(*table)[0] == 0, "the same again changes nothing"
    out.write_text("my thesis")
    code, _, error = shotfit(*table)
    assert code == 3 and "--overwrite replaces it" in error
    assert out.read_text() == "my thesis"
    assert shotfit(*table, "--overwrite")[0] == 0 and out.read_bytes() == made
    pytest.importorskip("matplotlib")
    figure, drawing = tmp_path / "figure.svg", new_figure(2, 2)
    figure.write_text("my drawing")
    with pytest.raises(DataError, match="other content"):
        save(drawing, figure, overwrite=False)
    assert figure.read_text() == "my drawing"
    save(drawing, figure)
    assert "<svg" in figure.read_text()


def test_classes_that_are_added_at_once_are_all_there(fitted, tmp_path, monkeypatch):
    """Each reads, adds and saves, the reading slow: the last to save has what the others added."""
    folder = fitted.save_pretrained(tmp_path / "saved")
    load = FewShotClassifier.from_pretrained

    def slow(*arguments, **options):
        loaded = load(*arguments, **options)
        time.sleep(0.1)
        return loaded

    monkeypatch.setattr(FewShotClassifier, "from_pretrained", slow)
    names = ["cyan", "teal", "pink"]
    with ThreadPoolExecutor(max_workers=3) as threads:
        done = [threads.submit(add_classes, folder, [name], None, None) for name in names]
        done.append(threads.submit(remove_classes, folder, [fitted.classes[0]], None, None))
        assert [one.result() for one in done] == [None] * 4
    classes = load(folder).classes
    assert classes[:2] == fitted.classes[1:] and sorted(classes[2:]) == sorted(names)
    assert list(tmp_path.iterdir()) == [folder]


def test_an_evaluation_takes_the_place_of_a_file_on_request_alone(fitted, tmp_path, shotfit):
    folder = fitted.save_pretrained(tmp_path / "saved")
    for option in ("--csv", "--keep-predictions"):
        kept = tmp_path / "kept"
        kept.write_text("my thesis")
        command = ("evaluate", folder, "digits", "--classes", "three,seven", option, kept, "-q")
        code, _, error = shotfit(*command)
        assert code == 3 and "kept is there already: --overwrite replaces it" in error
        assert kept.read_text() == "my thesis"
        assert shotfit(*command, "--overwrite")[0] == 0
        assert kept.read_text() != "my thesis"


@pytest.mark.parametrize("there", ["demo.png", "classifier"])
def test_a_demo_is_told_before_it_starts_what_it_would_replace(fitted, tmp_path, shotfit, there):
    if there == "classifier":
        fitted.save_pretrained(tmp_path / there)
    else:
        (tmp_path / there).write_text("my drawing")
    before = contents(tmp_path)
    code, out, error = shotfit("demo", "--out", tmp_path)
    assert code == 3 and "already: --overwrite replaces it" in error and not out
    assert contents(tmp_path) == before
