"""Where this machine keeps things is in no file that leaves it, and in a saved folder only where
that is read again."""

import dataclasses
import json
import shutil
import zipfile
from pathlib import Path

import pytest
import yaml
from conftest import shapes_dataset
from example_images import write_images
from hub_uploads import Uploads

from shotfit import FewShotClassifier
from shotfit.apps.app.project import Project
from shotfit.backbone.reference import OutsideModelError
from shotfit.experiment import Experiment
from shotfit.export.adapter import export_peft
from shotfit.export.merged import export_merged
from shotfit.export.onnx import export_onnx
from shotfit.records import read_record
from shotfit.saved_settings import CONFIG
from shotfit.sharing import OPTIONS, RECORD, model_name, shared_experiment, shared_provenance
from shotfit.verification import verify


@pytest.fixture(scope="module")
def home(tmp_path_factory, checkpoint):
    """A person's folder with a model and pictures, both of which are told by their whole paths."""
    home = tmp_path_factory.mktemp("home") / "ann-secret"
    shutil.copytree(checkpoint, home / "models" / "tiny")
    write_images(home / "work" / "shapes", shapes_dataset(3).train)
    return home


@pytest.fixture
def saved(home, shotfit, tmp_path):
    folder, options = tmp_path / "ann-secret" / "saved", ("--iters-per-shot", "1", "-q")
    photos, model = home / "work" / "shapes" / "train", home / "models" / "tiny"
    command = ("fit", photos, "--backbone", model, "--shots", "2", *options, "--out", folder)
    code, _, error = shotfit(*command)
    assert code == 0, error
    return folder


def telling(files):
    """The files that hold the person's name, and how often."""
    counts = {name: content.count(b"ann-secret") for name, content in files.items()}
    return {name: count for name, count in counts.items() if count}


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_saved_folder_tells_what_is_read_again(saved, home):
    # The model's place as it was given and as seen from here, since either of both may be moved
    # alone; and the options as typed.
    assert telling(contents(saved)) == {CONFIG: 2, OPTIONS: 2}
    experiment = json.loads((saved / CONFIG).read_text())["experiment"]
    assert experiment["backbone"] == str(home / "models" / "tiny")
    assert experiment["data"]["path"] == "train"
    record = read_record(saved / RECORD)
    assert (record.experiment["backbone"], record.experiment["data"]["path"]) == ("tiny", "train")
    moved = Path(shutil.move(saved, saved.parent.parent / "moved"))
    assert all(check.passed for check in verify(moved)), "it finds its model, wherever it lies"


def test_nothing_that_is_uploaded_tells_it(saved, home, shotfit, monkeypatch, tmp_path):
    hub = Uploads()
    monkeypatch.setattr("huggingface_hub.hub_mixin.HfApi", hub)
    assert shotfit("push", saved, "me/mine")[0] == 0
    assert {CONFIG, RECORD, OPTIONS, "README.md", "config.json"} <= hub.files.keys()
    assert not telling(hub.files)
    options = yaml.safe_load(hub.files[OPTIONS])
    assert (options["data"], options["backbone"], options["shots"]) == ("train", "tiny", 2)
    # It is whole, and loads by those who have the model and say where.
    folder = tmp_path / "downloaded"
    folder.mkdir()
    for name, content in hub.files.items():
        (folder / name).write_bytes(content)
    with pytest.raises(OutsideModelError, match="'tiny'"):
        FewShotClassifier.from_pretrained(folder)
    model = str(home / "models" / "tiny")
    assert all(check.passed for check in verify(folder, backbone=model))
    run = read_record(folder / RECORD)
    assert run.id == read_record(saved / RECORD).id, "it is the same run"


@pytest.mark.filterwarnings("ignore:Unsupported layer type", "ignore:.is_gradient_checkpointing")
@pytest.mark.parametrize("export", [export_merged, export_peft, export_onnx])
def test_nothing_that_is_exported_does(export, saved, tmp_path):
    classifier = FewShotClassifier.from_pretrained(saved)
    export(classifier, tmp_path / "out")
    assert not telling(contents(tmp_path / "out"))
    if export is export_peft:
        config = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
        assert (config["base_model_name_or_path"], config["revision"]) == ("tiny", None)
        card = (tmp_path / "out" / "README.md").read_text()
        assert "AutoModel.from_pretrained('tiny')" in card and "'a photo of a {}.'" in card


def test_nor_the_page_of_a_report(saved, shotfit, tmp_path):
    assert shotfit("report", saved, "--out", tmp_path / "page.html", "-q")[0] == 0
    page = (tmp_path / "page.html").read_bytes()
    assert not telling({"page": page}) and b"tiny" in page


def test_nor_what_the_app_packs(saved, home, tmp_path):
    project = Project(tmp_path / "ann-secret" / "project")
    project.fitted = FewShotClassifier.from_pretrained(saved)
    with zipfile.ZipFile(project.archive()) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    assert "classifier/README.md" in files and not telling(files)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("iconclip", "iconclip"),
        ("openai/clip-vit-base-patch32", "openai/clip-vit-base-patch32"),
        ("/home/ann/models/tiny", "tiny"),
        ("/home/ann/models/tiny/", "tiny"),
        ("~/models/tiny", "tiny"),
        ("../ann/tiny", "tiny"),
        (r"C:\Users\ann\models\tiny", "tiny"),
        (r"\\server\ann\tiny", "tiny"),
    ],
)
def test_names_of_models(given, told):
    assert model_name(given) == told


def test_a_folder_is_one_though_it_looks_like_an_id(tmp_path, monkeypatch):
    (tmp_path / "models" / "tiny").mkdir(parents=True)
    assert model_name("models/tiny") == "models/tiny"
    monkeypatch.chdir(tmp_path)
    assert model_name("models/tiny") == "tiny"


def test_what_is_no_path_stays():
    data = {"name": "digits", "template": "/ {} /", "words": {"templates": ["~ {}"]}}
    experiment = Experiment(data=data, fewshot="splits/{dataset}")
    assert shared_experiment(experiment) == experiment
    own = dataclasses.replace(experiment, fewshot="/home/ann/splits", backbone="/home/ann/tiny")
    shared = shared_experiment(own, keep_model=True)
    assert (shared.fewshot, shared.backbone) == ("splits", "/home/ann/tiny")


def test_what_cannot_be_read_is_not_passed_on():
    deep = b"[" * 100_000
    for content in (b"/home/ann", b"\xff", deep, b'{"backbone": 1}', b"{{"):
        assert shared_provenance({RECORD: content, OPTIONS: content}) == {}
    kept = {OPTIONS: b"data: /home/ann/photos"}
    assert shared_provenance(kept, keep_options=True) == kept
    assert yaml.safe_load(shared_provenance(kept)[OPTIONS]) == {"data": "photos"}
