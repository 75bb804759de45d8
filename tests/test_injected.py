"""What breaks around a run, injected: each has an outcome that is stated, and none hangs.

A lost node of Ray is in tests/bench/node_loss.py, an accelerator without memory in
tests/training/test_out_of_memory.py, a loss that is not finite in
tests/training/test_divergence.py.
"""

import os
import subprocess
import sys
import threading

import huggingface_hub
import pytest
from conftest import SPEC, make_backbone, shapes_dataset

from shotfit.adaptation import adapt
from shotfit.backbone import hub
from shotfit.backbone.hub import find_checkpoint
from shotfit.data.images import open_image
from shotfit.data.prefetch import Loading, prepared_batches
from shotfit.data.sources import load_dataset
from shotfit.data.task import make_task
from shotfit.data.transforms import prepare
from shotfit.errors import DataError
from shotfit.experiment import support_set, task_facts
from shotfit.recipe import Recipe, Stage


@pytest.fixture
def photos(tmp_path):
    for example in shapes_dataset(4, train=2, test=1).train:
        path = tmp_path / "photos" / example.key
        path.parent.mkdir(parents=True, exist_ok=True)
        open_image(example.image).resize((200, 180)).save(path)
    return tmp_path / "photos"


def test_a_file_that_vanishes_between_two_updates_ends_the_fit_by_its_name(photos):
    """Where images fit into no budget, each is decoded anew at every use."""
    task = make_task(load_dataset("folder", path=str(photos)), "all_to_all", 2, 1)
    backbone = make_backbone()
    gone = photos / "train" / "red" / "0.png"

    def lose(method, stage, step):
        gone.unlink(missing_ok=True)

    nothing = Loading(memory=0, disk=0, workers=2)
    with support_set(task.support, backbone, 1, nothing) as support:
        recipe = Recipe((Stage("layernorm", training={"iterations": 20, "batch_size": 4}),))
        with pytest.raises(DataError, match=r"There is no image file .*red/0\.png"):
            adapt(backbone, support, recipe, task_facts(task), observe=lose)
    assert not [t for t in threading.enumerate() if t.name.startswith("shotfit-")]


@pytest.mark.parametrize("error", [MemoryError("no memory"), SystemExit(1), RuntimeError("died")])
def test_what_a_loader_thread_dies_of_comes_out_and_no_thread_is_left(photos, monkeypatch, error):
    images = sorted(photos.rglob("*.png"))
    calls = []

    def dying(image, spec):
        calls.append(threading.current_thread())
        if len(calls) == 3:
            raise error
        return prepare(image, spec)

    monkeypatch.setattr("shotfit.data.prefetch.prepare", dying)
    batches = prepared_batches(((p, None) for p in images), SPEC, 2, loading=Loading(workers=2))
    with pytest.raises(type(error), match=str(error)):
        list(batches)
    assert not [t for t in threading.enumerate() if t.name.startswith("shotfit-")]


def test_a_hub_that_answers_no_more_is_a_data_error(monkeypatch):
    monkeypatch.setattr(hub, "_hub_reachable", lambda: True)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)

    def slow(name, *, revision, allow_patterns, local_files_only=False):
        if local_files_only:
            raise huggingface_hub.errors.LocalEntryNotFoundError("not here")
        raise TimeoutError("The read operation timed out")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", slow)
    with pytest.raises(DataError, match="Cannot download the model 'who/what': .*timed out"):
        find_checkpoint("who/what", None)


def test_a_broken_torchvision_beside_a_sound_torch_is_named(tmp_path, checkpoint):
    """transformers only says that it cannot load CLIP."""
    package = tmp_path / "torchvision"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('operator nms does not exist')\n")
    facts = tmp_path / "torchvision-0.20.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: torchvision\nVersion: 0.20.0\n")
    code = (
        "import sys; from pathlib import Path; from shotfit.backbone.hub import read_transformers\n"
        "read_transformers(sys.argv[1], Path(sys.argv[1]))"
    )
    source = os.path.dirname(os.path.dirname(os.path.dirname(hub.__file__)))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), source])}
    command = [sys.executable, "-W", "ignore", "-c", code, str(checkpoint)]
    found = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert found.returncode == 1
    assert "torchvision is installed and cannot be imported (operator nms does not exist)" in (
        found.stderr
    )
    assert "pip uninstall torchvision" in found.stderr


@pytest.mark.parametrize(("number", "words"), [(28, "No space left on device"), (13, "Permission")])
def test_what_the_disk_answers_ends_with_exit_code_3_wherever_it_is_met(
    shotfit, monkeypatch, number, words
):
    def full(*_):
        raise OSError(number, os.strerror(number), "/somewhere/file")

    monkeypatch.setattr("shotfit.saved_settings.read_settings", full)
    code, _, error = shotfit("info", "model")
    assert code == 3 and error.startswith(f"shotfit: /somewhere/file: {words}")
