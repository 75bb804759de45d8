"""A fit that was killed goes on to the same bits; a checkpoint of another one is refused."""

import dataclasses
import json
import os
import random
import shutil
import signal
import warnings

import pytest
import torch
from conftest import make_backbone, shapes_dataset
from example_images import picture, write_images
from safetensors import safe_open

from shotfit.bench.dynamics import dynamics_recipe, load_or_trace
from shotfit.bench.runner import UNFINISHED, run_all
from shotfit.classifier import FewShotClassifier
from shotfit.data.sources.folder import load as load_folder
from shotfit.data.task import make_task
from shotfit.errors import DataError, UsageError
from shotfit.experiment import Experiment, run
from shotfit.methods import get_method, list_methods
from shotfit.methods.published import TrainConfig
from shotfit.recipe import Overrides, named_recipe
from shotfit.system.interrupts import Terminated
from shotfit.training import loop
from shotfit.training.checkpoint import FILE, Checkpoints, read_checkpoint

DATASET = shapes_dataset(4)


class Killed(BaseException):
    pass


def experiment(name, options=None, **changes):
    recipe = named_recipe(name, iters_per_shot=4)
    if "first_fraction" in changes:
        recipe = dataclasses.replace(recipe, first_fraction=changes.pop("first_fraction"))
    recipe = Overrides(options={"training.batch_size": 4, **(options or {})}).applied(recipe)
    values = {"setting": "all_to_all", "shots": 3, "recipe": recipe, "data": {"name": "shapes"}}
    return Experiment(**{**values, **changes})


def fit(of, folder, *, cut=None, resume=False, dataset=DATASET, kill=None, seed=0):
    """The record and the tensors; a fit that is cut has written a checkpoint after every update
    but the last."""
    count = []

    def observe(method, stage, step):
        count.append(step.loss)
        if len(count) == cut:
            (kill or _raise)()

    checkpoints = Checkpoints(folder, resume=resume, every=0)
    record, method = run(
        of,
        dataset=dataset,
        backbone=make_backbone(seed),
        observe=observe,
        checkpoints=checkpoints,
        device="cpu",
        measured=False,
    )
    return record, method.learned_state(), count


def _raise():
    raise Killed


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]), name


# Dropout, cached views, prompts that are averaged over epochs, weights that are kept to choose
# from, two rounds, views that are encoded on the way, and a share that is decided first.
CASES = [
    ("2sfs", {}, {}),
    ("2sfs:lora", {"dropout": 0.3}, {}),
    ("2sfs:coop", {"training.iterations": 6}, {}),
    ("2sfs", {"linear.views": 3}, {}),
    ("2sfs", {"training.optimizer": "sgd"}, {}),
    ("2sfs", {"training.drop_last": True, "training.batch_size": 5}, {}),
    ("2sfs", {}, {"first_fraction": "auto"}),
    ("promptsrc", {"training.iterations": 10}, {}),
    ("cross_modal", {"training.iterations": 7}, {}),
    ("plot_pp", {"training.iterations": 4}, {}),
    ("prolip", {"training.iterations": 7, "views": 3}, {}),
    ("clap", {"training.iterations": 7}, {}),
]


def _slow(case):
    return case if case[0].startswith("2sfs") else pytest.param(*case, marks=pytest.mark.slow)


@pytest.mark.parametrize(("name", "options", "changes"), list(map(_slow, CASES)))
def test_going_on_ends_with_the_same_bits(tmp_path, name, options, changes):
    wanted = experiment(name, options, **changes)
    whole, tensors, losses = fit(wanted, tmp_path / "whole")
    for cut in (len(losses) // 2 + 1, len(losses)):
        folder = tmp_path / str(cut)
        with pytest.raises(Killed):
            fit(wanted, folder, cut=cut)
        record, again, rest = fit(wanted, folder, resume=True)
        assert rest == losses[cut - 1 :]
        assert_same(tensors, again)
        assert record.curve == whole.curve
        assert record.trainable_parameters == whole.trainable_parameters
        assert record.cost["iterations"] == len(losses)


FIRST = ("bitfit", "clip_lora", "clipfit", "ivlp", "kgcoop", "maple", "mma", "mmrl", "tcp")


@pytest.mark.parametrize("name", [name for name in FIRST if name in list_methods()])
def test_every_kind_of_first_stage_is_taken_up_by_the_second(tmp_path, name):
    """Cut in the second stage: what the first has learned comes from the checkpoint alone."""
    wanted = experiment(f"2sfs:{name}", {"training.iterations": 3})
    _, tensors, losses = fit(wanted, tmp_path / "whole")
    assert len(losses) == 6
    with pytest.raises(Killed):
        fit(wanted, tmp_path / "cut", cut=5)
    _, again, rest = fit(wanted, tmp_path / "cut", resume=True)
    assert rest == losses[4:]
    assert_same(tensors, again)


@pytest.mark.parametrize("name", ["2sfs", "2sfs:lora", "2sfs:coop"])
def test_a_fit_that_was_killed_goes_on(tmp_path, name):
    """SIGKILL in a process of its own, three times over: each goes on where the last one was."""
    wanted = experiment(name, {"training.iterations": 5})
    _, tensors, losses = fit(wanted, tmp_path / "whole")
    for resume in (False, True, True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # one thread is all that computes
            child = os.fork()
        if child == 0:
            try:
                torch.set_num_threads(1)
                kill = lambda: os.kill(os.getpid(), signal.SIGKILL)  # noqa: E731
                fit(wanted, tmp_path / "cut", cut=4, resume=resume, kill=kill)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert sorted(path.name for path in (tmp_path / "cut").iterdir()) == [FILE]
    _, again, rest = fit(wanted, tmp_path / "cut", resume=True)
    assert rest == losses[9:]
    assert_same(tensors, again)


def test_what_is_written_is_tensors_and_json(tmp_path):
    with pytest.raises(Killed):
        fit(experiment("2sfs"), tmp_path, cut=3)
    with safe_open(tmp_path / FILE, "pt") as file:
        values = json.loads(file.metadata()["shotfit"])
        assert any(name.startswith("optimizer.0.") for name in file.keys())  # noqa: SIM118
    assert values["iteration"] == 2
    assert values["identity"]["option"]["shots"] == 3


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"seed": 2}, r"option seed was 1 and is 2"),
        ({"shots": 2}, r"option shots was 3 and is 2"),
        ({"options": {"training.lr": 0.5}}, r"option recipe stages 1 training lr was None and is"),
        ({"name": "bitfit"}, r"option recipe stages"),
        ({"backbone": 1}, r"backbone was \w+ and is \w+"),
        ({"images": True}, r"images was \w+ and is \w+"),
        ({"version": True}, r"version shotfit was [\d.]+\S* and is 9\.9"),
    ],
)
def test_the_checkpoint_of_another_fit_is_refused(tmp_path, monkeypatch, other, why):
    with pytest.raises(Killed):
        fit(experiment("2sfs"), tmp_path, cut=3)
    before = (tmp_path / FILE).read_bytes()
    dataset = DATASET
    if other.pop("images", None):
        first, *rest = DATASET.train
        turned = dataclasses.replace(first, image=picture(first).rotate(180))
        dataset = dataclasses.replace(DATASET, train=(turned, *rest))
    if other.pop("version", None):
        monkeypatch.setattr("shotfit.experiment.__version__", "9.9")
    seed = other.pop("backbone", 0)
    wanted = experiment(other.pop("name", "2sfs"), other.pop("options", None), **other)
    shots = {} if wanted.shots == 3 else {"dataset": DATASET}
    with pytest.raises(DataError, match=f"another fit.*{why}"):
        fit(wanted, tmp_path, resume=True, seed=seed, **{"dataset": dataset, **shots})
    assert (tmp_path / FILE).read_bytes() == before


def test_what_is_not_there_or_damaged_is_said(tmp_path):
    with pytest.raises(DataError, match="There is no checkpoint"):
        Checkpoints(tmp_path, resume=True)
    with pytest.raises(Killed):
        fit(experiment("2sfs"), tmp_path, cut=3)
    path = tmp_path / FILE
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match="cannot be read"):
        Checkpoints(tmp_path, resume=True)
    assert Checkpoints(tmp_path, resume=True, lenient=True).found is None


def test_a_full_disk_costs_the_checkpoint_and_not_the_fit(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.warns(UserWarning, match="No checkpoint could be written"):
        record, _, _ = fit(experiment("2sfs"), tmp_path / "file" / "folder")
    assert record.status == "done"


def test_the_time_between_two_is_kept(tmp_path):
    now = [0.0]
    checkpoints = Checkpoints(tmp_path, every=10, clock=lambda: now[0])
    for seconds, due in ((9.0, False), (10.0, True)):
        now[0] = seconds
        assert checkpoints.due() == due


def test_batches_that_were_skipped_stay_skipped(backbone, support):
    """As after an overflow in fp16, which a CPU has not."""
    method = get_method("layernorm")(backbone)
    method.setup(support)
    stream = random.Random()
    stream.setstate(support.stream.getstate())
    training = loop.Training(method, support, TrainConfig(iterations=4, batch_size=4))
    steps = iter(training)
    next(steps)
    training._taken += 1
    next(training._batches)
    state = training.state()
    rest = [step.loss for step in steps]
    other = get_method("layernorm")(make_backbone())
    support.stream.setstate(stream.getstate())
    other.setup(support)
    again = loop.Training(other, support, TrainConfig(iterations=4, batch_size=4), state)
    assert [step.loss for step in again] == rest


# The command, and Python


def test_python_goes_on_with_its_history(checkpoint, tmp_path):
    recipe = named_recipe("2sfs", iters_per_shot=4)

    def classifier():
        return FewShotClassifier(str(checkpoint), recipe)

    whole = classifier().fit(DATASET, shots=2, verbose=False)
    seen = []

    def pressed(*_):
        seen.append(1)
        if len(seen) == 5:
            os.kill(os.getpid(), signal.SIGINT)

    folder = tmp_path / "run"
    first = classifier()
    with pytest.raises(KeyboardInterrupt):
        first.fit(DATASET, shots=2, verbose=False, checkpoint=folder, observe=pressed)
    assert first.unfinished and len(first.history) == 5
    again = classifier().fit(DATASET, shots=2, verbose=False, checkpoint=folder, resume=True)
    assert again.history == whole.history
    assert_same(whole.method.learned_state(), again.method.learned_state())
    assert not folder.exists()
    with pytest.raises(UsageError, match="name the folder"):
        classifier().fit(DATASET, shots=2, verbose=False, resume=True)


def terminated_at(monkeypatch, update):
    """SIGTERM at an update; only once."""
    measure, count = loop._measure, []

    def ending(*arguments):
        count.append(1)
        if len(count) == update:
            os.kill(os.getpid(), signal.SIGTERM)
        return measure(*arguments)

    monkeypatch.setattr(loop, "_measure", ending)


def test_the_command_goes_on_after_sigterm(shotfit, checkpoint, tmp_path, monkeypatch):
    options = ("fit", "digits", "--backbone", checkpoint, "--shots", 1, "--iters-per-shot", 10)
    out, whole = tmp_path / "model", tmp_path / "whole"
    assert shotfit(*options, "--out", whole)[0] == 0
    terminated_at(monkeypatch, 4)
    code, _, err = shotfit(*options, "--out", out)
    assert code == 143 and "Ended by SIGTERM" in err
    assert not out.exists()
    assert [path.name for path in (tmp_path / "model.checkpoint").iterdir()] == [FILE]
    code, _, err = shotfit("fit", "--resume", "--out", out, "--seed", 3)
    assert code == 3 and "option seed was 1 and is 3" in err
    code, text, err = shotfit("fit", "--resume", "--out", out)
    assert code == 0 and "going on from the checkpoint" in err
    assert not (tmp_path / "model.checkpoint").exists()
    for name in ("model.safetensors", "config.yaml"):
        files = [folder / name for folder in (whole, out)]
        assert files[0].read_bytes() == files[1].read_bytes()
    code, _, err = shotfit("fit", "--resume", "--out", out)
    assert code == 3 and "There is no checkpoint" in err


def test_a_folder_that_was_moved_is_the_same_data(shotfit, checkpoint, tmp_path, monkeypatch):
    photos = write_images(tmp_path / "photos", shapes_dataset(3, train=2, test=0).train)
    assert len(load_folder(str(photos / "train")).classnames) == 3
    options = ("--backbone", checkpoint, "--iters-per-shot", 5, "--out", tmp_path / "model")
    terminated_at(monkeypatch, 4)
    assert shotfit("fit", photos / "train", *options)[0] == 143
    shutil.move(photos, tmp_path / "moved")
    code, _, err = shotfit("fit", tmp_path / "moved" / "train", "--resume", *options)
    assert code == 0, err


# Grids and curves


def test_a_grid_goes_on_in_the_middle_of_a_run(tmp_path, monkeypatch):
    wanted = Experiment(
        data={"name": "digits"}, shots=1, recipe=named_recipe("2sfs", iters_per_shot=6)
    )
    (whole,) = [step.record for step in run_all([wanted], tmp_path / "whole") if step.record]
    terminated_at(monkeypatch, 4)
    with pytest.raises(Terminated):
        list(run_all([wanted], tmp_path / "cut"))
    found = read_checkpoint(tmp_path / "cut" / UNFINISHED / wanted.id / FILE)
    assert found.state.iteration == 1 and found.place.stage == 1
    updates = []
    monkeypatch.setattr(loop, "learning_rate", _counted(loop.learning_rate, updates))
    (again,) = [step.record for step in run_all([wanted], tmp_path / "cut") if step.record]
    assert len(updates) == 2
    assert again.curve == whole.curve
    assert again.metrics == whole.metrics
    assert not (tmp_path / "cut" / UNFINISHED / wanted.id).exists()


def _counted(function, calls):
    def counting(*arguments):
        calls.append(1)
        return function(*arguments)

    return counting


def test_a_curve_goes_on(tmp_path, monkeypatch, dataset):
    wanted = Experiment(data={"name": "shapes"}, recipe=dynamics_recipe("layernorm", 6))

    def curve(folder):
        made = load_or_trace(wanted, 2, folder, dataset=dataset, backbone=make_backbone())
        return made[0]

    assert make_task(dataset, "base_to_novel", 4, 1).support.examples
    whole = curve(tmp_path / "whole")
    terminated_at(monkeypatch, 3)
    with pytest.raises(Terminated):
        curve(tmp_path / "cut")
    again = curve(tmp_path / "cut")
    assert again.points == whole.points
    assert [path.suffix for path in (tmp_path / "cut").rglob("*") if path.is_file()] == [".json"]
