"""Records, grids, what they cost, and how they survive."""

import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from example_images import picture

import shotfit.bench.runner
from shotfit.apps.arguments import spread
from shotfit.bench.cost import check_runs, estimate_runs
from shotfit.bench.grid import expand
from shotfit.bench.reproduction import reproduction
from shotfit.bench.runner import _isolated, run_all
from shotfit.data.fewshot_lists import write_fewshot
from shotfit.data.sources import load_dataset
from shotfit.data.task import sample_shots
from shotfit.errors import DataError, UsageError
from shotfit.experiment import Experiment, run, task_of
from shotfit.methods import published_names
from shotfit.paper import paper_table
from shotfit.recipe import Overrides
from shotfit.records import Record, load_records, read_record, record_files, write_record
from shotfit.system.ray_cluster import RayOptions, _start

METHODS = ["2sfs", "zero_shot"]
FEW = Overrides({"iters_per_shot": 2})


@pytest.fixture
def grid(checkpoint):
    """Two methods, two tasks, two seeds: eight runs of two iterations each."""
    return expand(
        METHODS,
        ["animals", "digits"],
        backbones=[str(checkpoint)],
        shots=[1],
        seeds=[1, 2],
        overrides=FEW,
    )


def record(name="0123456789ab", **changes):
    values = {"id": name, "experiment": {"seed": 1}, "dataset": "d", "status": "done"}
    return Record(**{**values, **changes})


def test_a_record_survives_the_round_trip_and_leaves_no_draft(tmp_path):
    kept = record(metrics={"base": 50.0, "novel": 1 / 3}, curve=[[0, 1, 2.5, 1e-4]])
    path = write_record(tmp_path / "new", kept)
    assert read_record(path) == kept
    assert [p.name for p in path.parent.iterdir()] == [f"d--all-images--seed1--{kept.id}.json"]
    assert "  [0, 1, 2.5, 0.0001]\n" in path.read_text(), "a line a point"
    assert load_records(tmp_path / "nowhere") == []


def test_a_record_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    path = write_record(tmp_path, record(dataset="old"))

    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr("shotfit.system.files.os.fsync", full)
    with pytest.raises(DataError, match="no space left"):
        write_record(tmp_path, record(dataset="new"))
    assert read_record(path).dataset == "old"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"schema": 99}', "format 99"),
        ('{"schema": 1, "id"', "cannot be read"),
        ("[]", "no record"),
        ('{"schema": 1, "id": "x"}', "lacks experiment, dataset, status"),
        (json.dumps({**dataclasses.asdict(record()), "cost": 3}), "damaged"),
    ],
)
def test_bad_records_are_refused_by_name(tmp_path, text, message):
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(DataError, match=message) as error:
        load_records(tmp_path)
    assert "bad.json" in str(error.value)
    assert (tmp_path / "bad.json").read_text() == text


def test_expand_makes_every_combination_once():
    runs = expand(
        ["2sfs", "2sfs:layernorm", "layernorm"],
        ["animals", "dtd", "DescribableTextures"],
        shots=[4, 8],
        seeds=[1, 2],
        settings=["base-to-novel", "all_to_all"],
    )
    assert len(runs) == 2 * 2 * 2 * 2 * 2
    assert len({run.id for run in runs}) == len(runs)
    assert [run.seed for run in runs] == [1] * 16 + [2] * 16
    assert {run.source for run in runs} == {"demo", "coop"}
    assert (
        expand(["2sfs"], ["suite"])[0].data["name"]
        == expand(["2sfs"], ["activities"])[0].data["name"]
    )


def test_overrides_reach_their_stage_and_mean_the_same_however_written():
    words = {"all_norms": "true", "training.batch_size": "16", "linear.views": "8"}
    values = {"all_norms": True, "training.batch_size": 16, "linear.views": 8}
    one, other = (
        expand(["2sfs"], ["animals"], overrides=Overrides({"iters_per_shot": 5}, options))[0]
        for options in (words, values)
    )
    assert one.id == other.id
    first, second = one.recipe.stages
    assert first.options == {"all_norms": True}
    assert second.options == {"views": 8}
    assert first.training == second.training == {"batch_size": 16}
    assert one.recipe.iters_per_shot == 5
    with pytest.raises(UsageError, match=r"training\.NAME"):
        expand(["2sfs"], ["animals"], overrides=Overrides(options={"lineer.views": 8}))


@pytest.mark.parametrize(
    ("methods", "datasets", "message"),
    [
        (["2sfz"], ["animals"], "2sfs"),
        (["2sfs"], ["animal"], "Did you mean 'animals'"),
        (["2sfs"], ["eurosatt"], "Did you mean 'eurosat'"),
        (["2sfs"], [], "no dataset"),
    ],
)
def test_unknown_names_are_refused(methods, datasets, message):
    with pytest.raises(UsageError, match=message):
        expand(methods, datasets)


def test_checks_find_missing_data_and_bad_options_beforehand(tmp_path):
    benchmark = expand(["2sfs"], ["dtd"])
    with pytest.raises(UsageError, match="SHOTFIT_DATA"):
        check_runs(benchmark, None)
    with pytest.raises(DataError, match="nowhere"):
        check_runs(benchmark, str(tmp_path / "nowhere"))
    wrong = expand(["2sfs"], ["animals"], overrides=Overrides(options={"no_such": 1}))
    with pytest.raises(UsageError, match="no_such"):
        check_runs(wrong, None)


def test_a_grid_runs_once_and_continues_after_an_interruption(grid, tmp_path, monkeypatch):
    real, calls = shotfit.bench.runner.run, []

    def interrupted(experiment, **options):
        calls.append(experiment.id)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return real(experiment, **options)

    monkeypatch.setattr(shotfit.bench.runner, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(run_all(grid, tmp_path))
    assert [r.status for r in load_records(tmp_path)] == ["done"] * 3
    steps = list(run_all(grid, tmp_path))
    assert len(calls) == 4 + 5, "finished runs are not made again"
    assert {r.id for r in load_records(tmp_path)} == {run.id for run in grid}
    ended = [step for step in steps if step.record is not None]
    assert [step.done for step in ended] == [4, 5, 6, 7, 8]
    assert all(step.skipped == 3 and step.total == 8 for step in steps)
    assert [step.running for step in steps] == [1, 0] * 5
    assert ended[-1].seconds_left == 0
    assert list(run_all(grid, tmp_path)) == []
    kept = read_record(record_files(tmp_path)[grid[0].id])
    assert {"base", "novel"} < set(kept.metrics)
    assert kept.cost["iterations"] == 2
    assert kept.split_hash


def test_records_have_names_for_people_and_those_of_earlier_versions_count(grid, tmp_path):
    first, second = (
        Record(run.id, run.plain(), run.data["name"], "done", curve=[[0, 1, 1 / 3, 1e-4]])
        for run in grid[:2]
    )
    path = write_record(tmp_path, first)
    name = f"animals--2sfs-layernorm--1shots--seed1--{first.id}.json"
    assert path.relative_to(tmp_path) == Path("base-to-novel") / name
    earlier = tmp_path / f"{second.id}.json"
    earlier.write_text(json.dumps(dataclasses.asdict(second), indent=1))
    (tmp_path / "dynamics").mkdir()
    (tmp_path / "dynamics" / "a--b.json").write_text("{}")
    assert load_records(tmp_path) == sorted((first, second), key=lambda record: record.id)
    assert list(run_all(grid[:2], tmp_path)) == []
    again = dataclasses.replace(second, dataset="again")
    assert write_record(tmp_path, again) == earlier
    assert read_record(earlier) == again


def test_failed_runs_are_recorded_and_retried_when_asked(grid, tmp_path, monkeypatch):
    def broken(experiment, **_):
        raise FloatingPointError("the loss is nan")

    with monkeypatch.context() as patch:
        patch.setattr(shotfit.bench.runner, "run", broken)
        steps = list(run_all(grid[:2], tmp_path))
    assert (steps[-1].done, steps[-1].failed) == (0, 2)
    kept = read_record(record_files(tmp_path)[grid[0].id])
    assert kept.status == "failed"
    assert "Traceback" in kept.error
    assert "the loss is nan" in kept.error
    assert list(run_all(grid[:2], tmp_path)) == []
    steps = list(run_all(grid[:2], tmp_path, retry_failed=True))
    assert (steps[-1].done, steps[-1].failed) == (2, 0)
    assert read_record(record_files(tmp_path)[grid[0].id]).status == "done"


def test_a_record_of_another_version_stops_a_grid_before_it_starts(grid, tmp_path):
    (tmp_path / f"{grid[1].id}.json").write_text('{"schema": 0}')
    with pytest.raises(DataError, match="format 0"):
        next(run_all(grid, tmp_path))


def test_estimates_say_what_they_rest_on(grid):
    iterations = check_runs(grid, None)
    assert sorted(iterations.values()) == [0] * 4 + [2] * 4
    rough = estimate_runs(grid, [], None)
    assert {estimate.basis for estimate in rough} == {"rough"}
    trained = next(run for run in grid if run.recipe.stages[0].method != "zero_shot")
    old = record(
        experiment=trained.plain(),
        cost={"seconds": 6.0, "evaluation_seconds": 1.0, "iterations": 2.0},
    )
    for estimate in estimate_runs(grid, [old], None):
        run = estimate.experiment
        if run.recipe != trained.recipe:
            assert estimate.basis == "rough"
        else:
            assert estimate.basis == ("same run" if run.data == trained.data else "same method")
            assert estimate.seconds == pytest.approx(7.0)
    absent = estimate_runs(expand(["2sfs"], ["dtd"], shots=[4]), [], None)
    assert absent[0].iterations == 1200


@pytest.mark.long
@pytest.mark.slow
def test_an_isolated_run_may_die_without_taking_the_grid_along(grid, tmp_path):
    steps = list(run_all(grid[:1], tmp_path, isolate=True))
    assert steps[-1].done == 1
    assert _isolated(_die, grid[1]).status == "failed"


def _die(experiment):
    os.abort()


def test_lists_on_the_command_line():
    lists = {"--shots", "--methods", "-o"}
    same = ["--shots", "4", "--shots", "8", "--shots", "16"]
    assert spread(["--shots", "4", "8", "16"], lists) == same
    assert spread(["--shots", "4,8", "16"], lists) == same
    assert spread(["--shots=4,8,16"], lists) == same
    assert spread(same, lists) == same
    assert spread(["--shots", "4", "8", "--quiet", "x"], lists) == [*same[:4], "--quiet", "x"]
    assert spread(["--shots", "-1"], lists) == ["--shots", "-1"]
    assert spread(["--shots", "4", "--", "8"], lists) == ["--shots", "4", "--", "8"]
    assert spread(["-o", "a=1,2", "b=3"], lists) == ["-o", "a=1,2", "-o", "b=3"]
    assert spread(["--shots"], lists) == ["--shots"]
    implied = {"--ray": "local"}
    assert spread(["--ray", "--shots", "4"], lists, implied) == ["--ray", "local", "--shots", "4"]
    assert spread(["--ray", "host:1"], lists, implied) == ["--ray", "host:1"]
    assert spread(["--ray"], lists, implied) == ["--ray", "local"]


def test_an_unreachable_cluster_is_an_error_within_seconds(grid, tmp_path):
    pytest.importorskip("ray")
    started = time.monotonic()
    with pytest.raises(DataError, match="127.0.0.1:9"):
        list(run_all(grid, tmp_path, executor="ray", ray=RayOptions("127.0.0.1:9")))
    assert time.monotonic() - started < 5
    with pytest.raises(UsageError, match="host:port"):
        list(run_all(grid, tmp_path, executor="ray", ray=RayOptions("somewhere")))


@pytest.mark.parametrize(
    ("gpus", "wish", "device"),
    [(0, None, "cpu"), (0.5, None, None), (0, "cuda", "cuda"), (1, "cpu", "cpu")],
)
def test_a_worker_on_ray_without_a_gpu_of_its_own_leaves_it_alone(
    grid, tmp_path, monkeypatch, gpus, wish, device
):
    works = []
    monkeypatch.setattr(
        "shotfit.bench.runner.run_on_ray", lambda runs, work, *_: works.append(work) or iter([])
    )
    list(run_all(grid, tmp_path, executor="ray", device=wish, ray=RayOptions(gpus=gpus)))
    assert works[0].keywords["device"] == device


@pytest.mark.long
@pytest.mark.xdist_group("machine")
@pytest.mark.slow
def test_a_grid_survives_the_loss_of_a_node(grid, checkpoint, tmp_path):
    pytest.importorskip("ray")
    script = Path(__file__).with_name("node_loss.py")
    paths = os.pathsep.join(str(script.parent.parent / part) for part in ("src", "tests"))
    out = subprocess.run(
        [sys.executable, str(script), str(checkpoint), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert out.returncode == 0, out.stderr
    assert sorted(out.stdout.split()) == sorted(run.id for run in grid)
    kept = load_records(tmp_path)
    assert [r.status for r in kept] == ["done"] * len(grid)
    assert {r.id for r in kept} == {run.id for run in grid}
    assert len(list(tmp_path.rglob("*.json"))) == len(grid)


def test_template_and_few_shot_lists_are_part_of_a_run():
    plain, other, listed = (
        expand(["coop"], ["digits"], template=template, fewshot=fewshot)[0]
        for template, fewshot in ((None, None), ("a {}.", None), (None, "lists"))
    )
    assert len({plain.id, other.id, listed.id}) == 3
    assert other.data["template"] == "a {}."
    # Records from before the field keep their identity.
    assert "fewshot" not in plain.plain()
    with pytest.raises(UsageError, match="hold {} once"):
        expand(["coop"], ["digits"], template="specific")


def test_a_run_trains_on_the_images_of_its_lists(checkpoint, tmp_path):
    dataset = load_dataset("demo", name="digits")
    for seed in (1, 2):
        drawn = sample_shots(dataset, 2, seed=3 - seed)
        write_fewshot(dataset, tmp_path / "digits", 2, seed, drawn)
    options = {"shots": [2], "backbones": [str(checkpoint)]}
    (listed,) = expand(["zero_shot"], ["digits"], fewshot="{dataset}", seeds=[1], **options)
    (drawn,) = expand(["zero_shot"], ["digits"], seeds=[2], **options)
    ours, _ = run(listed, root=str(tmp_path))
    theirs, _ = run(drawn)
    assert ours.split_hash == theirs.split_hash
    with pytest.raises(DataError, match="is missing"):
        run(dataclasses.replace(listed, seed=3), root=str(tmp_path))
    with pytest.raises(UsageError, match="number of shots"):
        run(dataclasses.replace(listed, shots=None), root=str(tmp_path))


def test_every_method_is_one_word():
    names = {
        run.recipe.stages[0].method + str(run.recipe.stages[0].options)
        for run in expand(["every", "coop"], ["animals"])
    }
    expected = {entry.method + str(dict(entry.options)) for entry in published_names().values()}
    assert names == expected
    assert "tip_adapter{'finetune': True}" in names


def test_data_without_test_images_is_no_benchmark(tmp_path, shotfit):
    from conftest import shapes_dataset

    for number, example in enumerate(shapes_dataset(2).train):
        path = tmp_path / "photos" / str(example.label) / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        picture(example).save(path)
    words = ("bench", "--datasets", tmp_path / "photos", "--methods", "zero_shot", "--shots", "2")
    code, _, error = shotfit(*words, "--results", tmp_path / "records", "-q")
    assert code == 3
    assert "no test images" in error and "Traceback" not in error
    assert not (tmp_path / "records").exists()


@pytest.mark.parametrize(
    ("fewshot", "folder"),
    [
        ("{folder}/split_fewshot", "caltech-101/split_fewshot"),
        ("lists/{dataset}", "lists/caltech101"),
        ("plain", "plain"),
    ],
)
def test_lists_are_found_by_the_dataset_or_by_its_published_folder(tmp_path, fewshot, folder):
    from conftest import shapes_dataset

    dataset = dataclasses.replace(shapes_dataset(4), name="caltech101")
    # The rule's draw of another seed: nobody would draw it for seed 1.
    lists = sample_shots(dataset, 2, 5)
    write_fewshot(dataset, tmp_path / folder, 2, 1, lists)
    experiment = Experiment(setting="all_to_all", shots=2, seed=1, fewshot=fewshot)
    task = task_of(experiment, dataset, str(tmp_path))
    assert {e.key for e in task.support.examples} == {e.key for e in lists[0]}
    own = dataclasses.replace(dataset, name="photos")
    write_fewshot(own, tmp_path / "of photos", 2, 1, lists)
    task_of(dataclasses.replace(experiment, fewshot="of {folder}"), own, str(tmp_path))


@pytest.mark.parametrize(
    "fewshot",
    ["{nosuch}", "{dataset.nothing}", "{dataset.__class__}", "{dataset[a]}", "{dataset[0]}"]
    + ["{dataset:>999999999999}", "{dataset!r}", "{}", "{0}", "{dataset"],
)
def test_a_folder_of_lists_asks_for_nothing_but_these_names(fewshot):
    from conftest import shapes_dataset

    experiment = Experiment(setting="all_to_all", shots=2, seed=1, fewshot=fewshot)
    with pytest.raises(UsageError, match="may contain {dataset} and {folder}"):
        task_of(experiment, shapes_dataset(4))


def test_reproduce_takes_lists(shotfit):
    lists = "{folder}/split_fewshot"
    code, out, _ = shotfit("reproduce", "b2n", "--fewshot", lists)
    commands = [line for line in out.splitlines() if line.startswith("shotfit bench")]
    assert code == 0 and commands
    assert all(f"--fewshot '{lists}'" in command for command in commands)
    plan = reproduction(paper_table("b2n"), fewshot=lists)
    assert {experiment.fewshot for experiment in plan.experiments()} == {lists}
    assert "--fewshot" not in shotfit("reproduce", "b2n")[1]


def test_ray_on_this_machine_does_not_join_a_cluster_that_runs_here():
    """Ray joins one by itself, and then refuses a number of CPUs."""
    calls = []
    fake = SimpleNamespace(init=lambda **options: calls.append(options))
    _start(fake, None)
    _start(fake, "auto")
    assert calls[0]["address"] == "local" and calls[0]["num_cpus"] >= 1
    assert calls[1]["address"] == "auto" and "num_cpus" not in calls[1]


def test_a_cluster_that_cannot_be_joined_may_want_a_token(monkeypatch):
    """Seen with `ray start --head` of Ray 2.60, whose refusal says nothing of tokens."""

    def refuse(**options):
        raise ConnectionError("Failed to connect.")

    fake = SimpleNamespace(init=refuse, shutdown=lambda: None)
    monkeypatch.setattr("shotfit.system.ray_cluster._check_reachable", lambda address: None)
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    with pytest.raises(DataError, match="RAY_AUTH_MODE=token"):
        _start(fake, "head:6379")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    with pytest.raises(DataError, match="Failed to connect. No record was lost"):
        _start(fake, "head:6379")


@pytest.mark.parametrize("written", ["ViT-B/16", "vit-b/16", "openai/clip-vit-base-patch16"])
def test_a_backbone_has_one_name_however_it_is_written(written):
    (one,) = expand(["coop"], ["food"], backbones=[written])
    assert one.backbone == "openai/clip-vit-base-patch16"
    assert one == Experiment(**{**vars(one), "backbone": written})
    assert one.id == expand(["coop"], ["food"], backbones=["openai/clip-vit-base-patch16"])[0].id


def test_the_papers_backbones_are_known():
    from shotfit.backbone.catalogue import KNOWN_NAMES, PAPERS
    from shotfit.paper import BACKBONES

    assert set(PAPERS.values()) <= KNOWN_NAMES
    assert {name: hub for hub, name in BACKBONES.items()}.items() <= PAPERS.items()


def test_reproduce_plans_the_printed_precision_where_a_method_can_train_in_it(shotfit):
    plan = reproduction(paper_table("b2n"))
    used = {
        (stages[0].method, len(stages)): [stage.training.get("precision") for stage in stages]
        for stages in (run.recipe.stages for run in plan.experiments())
    }
    assert used["layernorm", 2] == ["fp16", "fp16"]
    assert used["coop", 1] == ["fp16"]
    # It combines gradients itself, which loss scaling does not reach.
    assert used["prograd", 1] == [None]
    commands = [grid.command for grid in plan.grids]
    assert sum("-o training.precision=fp16" in command for command in commands) == 1
    assert {len(command.split("--methods")[1].split("--")[0].split()) for command in commands} > {1}
    for grid in plan.grids:
        assert len({run.id for run in grid.experiments()}) == len(grid.experiments())
    code, out, _ = shotfit("reproduce", "b2n", "--precision", "fp32")
    assert code == 0 and "training.precision" not in out
    code, _, error = shotfit("reproduce", "b2n", "--precision", "fp8")
    assert code == 2 and "fp8" in error
