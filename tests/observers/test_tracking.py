"""Each tracker's own package, offline: what is read back is what a run has shown."""

import importlib
import importlib.util
import json
import socket
import struct
import sys
from typing import Any

import pytest
from conftest import make_backbone, shapes_dataset

from shotfit.classifier import FewShotClassifier
from shotfit.errors import UsageError
from shotfit.methods import get_method
from shotfit.methods.linear import LinearClassifier
from shotfit.observers import tracking
from shotfit.observers.trackers import WRITERS
from shotfit.observers.tracking import Tracker, observe
from shotfit.recipe import named_recipe
from shotfit.training.loop import TrainStep

VARIABLES = (*tracking.SETTINGS, "TRACKIO_DIR", "WANDB_MODE", "MLFLOW_TRACKING_URI")
CONFIG = {"seed": 3, "recipe": {"stages": [{"method": "layernorm"}, {"method": "linear"}]}}
LOSSES = [2.0, 1.5, 1.25]


@pytest.fixture(autouse=True)
def nothing_leaves(monkeypatch):
    """No setting of the person who runs this, no address but of this machine, and none kept."""
    for name in VARIABLES:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    connect = socket.socket.connect

    def here_alone(self, address):
        assert self.family == socket.AF_UNIX or address[0] in ("127.0.0.1", "localhost", "::1")
        return connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", here_alone)


def show(tracker, losses=LOSSES):
    """Two stages of updates, then what the run was worth."""
    tracker.config(CONFIG)
    backbone = make_backbone()
    for stage, name in enumerate(("layernorm", "linear")):
        method = get_method("layernorm")(backbone)
        if name == "linear":
            method = LinearClassifier(method)
        for number, loss in enumerate(losses, start=1):
            tracker(method, stage, TrainStep(number, len(losses), loss + stage, 50.0, 1e-3))
    tracker.metrics({"accuracy": 87.5})


def tensorboard(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "pets")).Reload()
    curve = [(event.step, event.value) for event in events.Scalars("2-LinearClassifier/loss")]
    (text,) = events.Tensors("config/text_summary")
    worth = events.Scalars("metrics/accuracy")[0].value
    said = text.tensor_proto.string_val[0].decode()
    return curve, worth, "| recipe.stages.1.method | layernorm |" in said


def records(data):
    """The records of a file of Weights & Biases: a head, then parts in blocks of 32 KiB."""
    place, whole = 7, b""
    while place + 7 <= len(data):
        if (left := 32768 - place % 32768) < 7:
            place += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, place)
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # in one piece, or the last one
            yield whole
            whole = b""


def wandb(folder):
    import wandb

    wandb.teardown()  # its program has written all of it
    protocol: Any = importlib.import_module("wandb.proto.wandb_internal_pb2")
    (file,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    curve, worth, config = [], None, {}
    for data in records(file.read_bytes()):
        record = protocol.Record.FromString(data)
        for item in (*record.run.config.update, *record.config.update):
            config[item.key or "/".join(item.nested_key)] = json.loads(item.value_json)
        row = {
            item.key or "/".join(item.nested_key): json.loads(item.value_json)
            for item in record.history.item
        }
        if "2-LinearClassifier/loss" in row:
            curve.append((row["2-LinearClassifier/update"], row["2-LinearClassifier/loss"]))
        worth = row.get("metrics/accuracy", worth)
    return curve, worth, config.get("recipe.stages.1.method") == "layernorm"


def mlflow(folder):
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    found = client.get_experiment_by_name("shotfit")
    assert found is not None
    (run,) = client.search_runs([found.experiment_id])
    assert (run.info.run_name, run.info.status) == ("pets", "FINISHED")
    history = client.get_metric_history(run.info.run_id, "2-LinearClassifier/loss")
    curve = sorted((metric.step, metric.value) for metric in history)
    worth = run.data.metrics["metrics/accuracy"]
    return curve, worth, run.data.params["recipe.stages.1.method"] == "layernorm"


def trackio(folder):
    storage: Any = importlib.import_module("trackio.sqlite_storage").SQLiteStorage
    rows = storage.get_logs("shotfit", "pets")
    key = "2-LinearClassifier/loss"
    curve = [(row["step"], row[key]) for row in rows if key in row]
    (worth,) = (row["metrics/accuracy"] for row in rows if "metrics/accuracy" in row)
    config = storage.get_run_config("shotfit", "pets") or {}
    return curve, worth, config.get("recipe.stages.1.method") == "layernorm"


READ = {"tensorboard": tensorboard, "wandb": wandb, "mlflow": mlflow, "trackio": trackio}


# Weights & Biases starts a program of its own, MLflow makes a database; both take seconds.
SLOW = ("wandb", "mlflow")
TRIED = [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in WRITERS]


@pytest.mark.parametrize("name", TRIED)
def test_a_tracker_has_the_curves_the_config_and_the_metrics(name, tmp_path, capsys):
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    with observe(name, folder=tmp_path, name="pets") as tracker:
        show(tracker)
    curve, worth, has_config = READ[name](tmp_path)
    assert curve == [(1, 3.0), (2, 2.5), (3, 2.25)]
    assert worth == 87.5
    assert has_config
    assert capsys.readouterr().out == ""


class Kept:
    """A writer that keeps what it is given, or has a full disk."""

    def __init__(self, full=False):
        self.full, self.rows, self.noted, self.failed = full, [], {}, None

    def config(self, values):
        self.noted |= values

    def scalars(self, values, step):
        if self.full:
            raise OSError("No space left on device")
        self.rows.append((step, dict(values)))

    def close(self, *, failed):
        self.failed = failed


def test_long_stages_are_thinned_as_records_are():
    kept = Kept()
    tracker, method = Tracker("tensorboard", lambda: kept), get_method("zero_shot")(make_backbone())
    for number in range(1, 1001):
        tracker(method, 0, TrainStep(number, 1000, 1.0, 50.0, 1e-3))
    assert [step for step, _ in kept.rows] == [1, *range(5, 1001, 5)]
    assert kept.rows[0][1].keys() == {f"1-ZeroShot/{key}" for key in ("loss", "accuracy", "lr")}


def test_a_tracker_that_fails_is_told_once_and_costs_no_fit(checkpoint):
    tracker = Tracker("wandb", lambda: Kept(full=True))
    classifier = FewShotClassifier(str(checkpoint), named_recipe("2sfs", iters_per_shot=2))
    with pytest.warns(UserWarning, match="wandb gets nothing more of this run: No space") as told:
        classifier.fit(shapes_dataset(3), shots=1, observe=tracker, verbose=False)
    assert len(told) == 1
    assert classifier.predict(shapes_dataset(3).test[0].image) in classifier.classes


def test_a_run_that_ends_with_an_error_is_told_so(monkeypatch, tmp_path):
    kept = Kept()
    monkeypatch.setitem(WRITERS, "tensorboard", lambda folder, name: kept)
    with pytest.raises(KeyboardInterrupt), observe("tensorboard", folder=tmp_path) as tracker:
        tracker.metrics({"accuracy": 1.0})
        raise KeyboardInterrupt
    assert kept.failed is True
    with observe("tensorboard", folder=tmp_path):
        pass
    assert list(tmp_path.iterdir()) == [], "a run that showed nothing has not begun"


@pytest.mark.parametrize("name", WRITERS)
def test_a_package_that_is_not_there_is_named_before_anything_else(name, monkeypatch, shotfit):
    monkeypatch.setitem(sys.modules, name, None)
    code, _, error = shotfit("fit", "no-such-folder", "--observe", name)
    assert code == 2
    assert f"pip install 'shotfit[{name}]'" in error


def test_an_unknown_tracker_is_told_which_there_are(shotfit):
    with (
        pytest.raises(UsageError, match="tensorboard, wandb, mlflow, trackio"),
        observe("neptune"),  # pyright: ignore[reportArgumentType] a wrong name is what is tested
    ):
        pass
    assert shotfit("fit", "digits", "--observe", "neptune")[0] == 2


def test_the_command_shows_a_run_beside_what_it_saves(tmp_path, shotfit, checkpoint):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    words = ("fit", "digits", "--shots", 1, "--iters-per-shot", 2, "--backbone", checkpoint, "-q")
    out = tmp_path / "numbers"
    where = ("--observe", "tensorboard", "--observe-in", tmp_path / "runs", "--out", out)
    code, text, _ = shotfit(*words, *where, "--json")
    assert code == 0
    record = json.loads(text)["record"]
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("numbers-2")
    events = EventAccumulator(str(folder)).Reload()
    shown = [
        (stage, event.step, event.value)
        for stage, name in enumerate(("1-LayerNorm", "2-LinearClassifier"))
        for event in events.Scalars(f"{name}/loss")
    ]
    assert shown == [(p[0], p[1], pytest.approx(p[2], rel=1e-5)) for p in record["curve"]]
    assert events.Scalars("metrics/accuracy")[0].value == pytest.approx(
        record["metrics"]["accuracy"]
    )
