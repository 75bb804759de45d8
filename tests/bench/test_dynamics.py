"""Learning dynamics: looking changes nothing, curves are kept whole, breaks are where they are."""

import dataclasses
import json
import random

import pytest
import torch
from conftest import make_backbone, shapes_dataset
from torch import nn
from typer.testing import CliRunner

from shotfit.apps.cli import app
from shotfit.apps.studies import Surroundings, _draw_dynamics
from shotfit.averages import estimate
from shotfit.bench.ablation import load_or_measure_gain, second_stage_gain, sweep_runs
from shotfit.bench.dynamics import curve_path, dynamics_recipe, load_or_trace, trace
from shotfit.data.task import make_task
from shotfit.errors import DataError, UsageError
from shotfit.experiment import Experiment, fit_task
from shotfit.methods import get_method, list_methods
from shotfit.recipe import two_stage
from shotfit.records import load_records
from shotfit.records.dynamics import DynamicsPoint, read_dynamics
from shotfit.report.figures.studies import plot_dynamics, plot_gain, plot_sweep
from shotfit.report.phases import mean_points, phase_break, smooth


def study(method="layernorm", iterations=6, **changes):
    values = {"data": {"name": "shapes"}, "recipe": dynamics_recipe(method, iterations)}
    return Experiment(**{**values, **changes})


STUDIED = [name for name in ("layernorm", "bitfit", "lora", "coop") if name in list_methods()]


@pytest.mark.parametrize("name", STUDIED)
def test_looking_leaves_the_run_bit_equal(name, dataset):
    experiment = study(name)
    curve, states = [], []
    watched = trace(
        experiment,
        2,
        dataset=dataset,
        backbone=make_backbone(),
        observe=lambda method, stage, step: states.append((method, step.loss)),
    )
    task = make_task(dataset, "base_to_novel", experiment.shots, experiment.seed)
    method = fit_task(
        experiment,
        task,
        backbone=make_backbone(),
        observe=lambda method, stage, step: curve.append(step.loss),
    )
    assert [loss for _, loss in states] == curve
    seen = states[-1][0].state_dict()
    assert all(torch.equal(value, seen[key]) for key, value in method.state_dict().items())
    assert [point.iteration for point in watched.points] == [0, 2, 4, 6]


def test_looking_keeps_mode_and_generator_of_a_method_with_dropout(dataset, monkeypatch):
    """A method that draws from its generator in training, as LoRA's dropout does."""
    layernorm = get_method("layernorm")

    class Noisy(layernorm):
        def encode_images(self, pixels):
            embeds = super().encode_images(pixels)
            if not self.training:
                return embeds
            keep = torch.rand(embeds.shape, generator=self.generator) > 0.25
            return nn.functional.normalize(embeds * keep, dim=-1)

    for module in ("plan", "adaptation"):
        monkeypatch.setattr(f"shotfit.{module}.get_method", lambda name: Noisy)
    state, python_state = torch.get_rng_state(), random.getstate()
    losses = []
    for every in (1, 100):
        run = []
        trace(
            study(),
            every,
            dataset=dataset,
            backbone=make_backbone(),
            observe=lambda method, stage, step, run=run: run.append((step.loss, method.training)),
        )
        losses.append(run)
    assert losses[0] == losses[1]
    assert all(training for _, training in losses[0])
    assert torch.equal(state, torch.get_rng_state())
    assert random.getstate() == python_state


def test_first_point_is_zero_shot(dataset):
    curve = trace(study(), 3, dataset=dataset, backbone=make_backbone())
    from shotfit.evaluation.metrics import evaluate

    task = make_task(dataset, "base_to_novel", 4, 1)
    metrics = evaluate(get_method("zero_shot")(make_backbone()), task.tests)
    assert curve.points[0] == DynamicsPoint(
        0, round(metrics["base"], 4), round(metrics["novel"], 4)
    )


def test_curves_are_kept_whole_and_not_run_twice(dataset, tmp_path):
    experiment = study()
    path = curve_path(tmp_path, experiment, 2)

    def interrupt(method, stage, step):
        if step.iteration == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load_or_trace(
            experiment, 2, tmp_path, dataset=dataset, backbone=make_backbone(), observe=interrupt
        )
    assert list(tmp_path.iterdir()) == []
    first, ran = load_or_trace(experiment, 2, tmp_path, dataset=dataset, backbone=make_backbone())
    assert ran
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    again, ran = load_or_trace(experiment, 2, tmp_path)
    assert not ran
    assert again == first
    assert curve_path(tmp_path, experiment, 3) != path


def test_a_foreign_or_broken_file_is_refused(tmp_path):
    path = tmp_path / "curve.json"
    for text, message in (("{", "no learning dynamics"), ('{"schema": 99}', "format 99")):
        path.write_text(text)
        with pytest.raises(DataError, match=message):
            read_dynamics(path)


def test_what_has_no_dynamics_is_refused(dataset):
    with pytest.raises(UsageError, match="one stage"):
        trace(study(recipe=two_stage()), dataset=dataset)
    with pytest.raises(UsageError, match="novel"):
        trace(study(setting="all_to_all"), dataset=dataset)
    with pytest.raises(UsageError, match="at least 1"):
        trace(study(), 0, dataset=dataset)


# The break, on curves whose break is known.


def synthetic(shape, noise, seed=0, count=81, step=100):
    stream = random.Random(seed)
    return [
        DynamicsPoint(i * step, *(value + stream.gauss(0, noise) for value in shape(i / count)))
        for i in range(count)
    ]


def peak(at, rise=12.0, fall=10.0):
    def shape(x):
        novel = rise * (1 - (1 - x / at) ** 2) if x < at else rise - fall * (x - at) / (1 - at)
        return 50 + 30 * x**0.5, 40 + novel

    return shape


def found_break(points):
    found = phase_break(points)
    assert found is not None
    return found


@pytest.mark.parametrize("at", [0.2, 0.4, 0.6])
@pytest.mark.parametrize("noise", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_break_of_two_phases_is_found_under_noise(at, noise, seed):
    found = found_break(synthetic(peak(at), noise, seed))
    assert found.pattern == "two_phases"
    assert abs(found.iteration - at * 8100) <= 1000
    assert found.novel_gain > 8
    assert found.novel_loss > 6


@pytest.mark.parametrize(
    ("shape", "pattern"),
    [
        (lambda x: (60 + 20 * x, 40 + 10 * min(1, x / 0.2)), "saturates"),
        (lambda x: (60 + 20 * x, 40 + 10 * x), "rising"),
        (lambda x: (60 + 20 * x, 40 - 10 * x), "falling"),
        (lambda x: (60 + 20 * x, 40.0), "falling"),
        (
            lambda x: (
                60 + 20 * min(x, 0.3) - 5 * max(0, x - 0.3),
                40 + 12 * min(x, 0.3) / 0.3 - 20 * max(0, x - 0.3),
            ),
            "together",
        ),
    ],
)
@pytest.mark.parametrize("noise", [0.0, 0.4])
def test_patterns(shape, pattern, noise):
    assert found_break(synthetic(shape, noise)).pattern == pattern


def test_a_single_outlier_is_no_break():
    points = synthetic(peak(0.4), 0.3)
    points[70] = dataclasses.replace(points[70], novel=points[32].novel + 4)
    assert abs(found_break(points).iteration - 3200) <= 700


def test_too_few_points_have_no_break():
    assert phase_break(synthetic(peak(0.4), 0)[:4]) is None


def test_smoothing_keeps_straight_lines():
    line = [3 + 2 * i for i in range(20)]
    assert smooth(line, 5) == pytest.approx(line)


def test_mean_of_curves_takes_common_iterations():
    one = [DynamicsPoint(0, 10, 20), DynamicsPoint(5, 20, 30), DynamicsPoint(9, 0, 0)]
    other = [DynamicsPoint(0, 30, 40), DynamicsPoint(5, 40, 10)]
    assert mean_points([one, other]) == (DynamicsPoint(0, 20, 30), DynamicsPoint(5, 30, 20))


# Sweeps and the ablation.


def test_sweep_runs_differ_in_the_swept_value_alone():
    bases = [Experiment(recipe=two_stage(), seed=seed) for seed in (1, 2)]
    runs = sweep_runs(["alpha"], bases)
    assert [run.point[0] for run in runs[::2]] == [0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]
    assert all(run.experiment.recipe.first_fraction == run.point[0] for run in runs)
    assert [run.experiment.seed for run in runs[:2]] == [1, 2]
    runs = sweep_runs(["iters-per-shot"], bases[:1])
    assert [run.experiment.recipe.iters_per_shot for run in runs] == [100, 300, 500]
    runs = sweep_runs(["batch-size"], bases[:1], [[4]])
    assert [stage.training for stage in runs[0].experiment.recipe.stages] == [{"batch_size": 4}] * 2
    runs = sweep_runs(["rank"], [Experiment(recipe=two_stage("lora"))], [[4]])
    assert runs[0].experiment.recipe.stages[0].options == {"rank": 4}
    with pytest.raises(UsageError, match="Did you mean 'alpha'"):
        sweep_runs(["alhpa"], bases)
    with pytest.raises(UsageError, match="whole"):
        sweep_runs(["batch-size"], bases, [[1.5]])


def test_any_option_is_swept_and_two_at_once():
    base = Experiment(recipe=two_stage("lora"))
    runs = sweep_runs(["training.lr", "rank"], [base], [[1e-4, 2e-4], None])
    assert [run.point for run in runs] == [(lr, r) for lr in (1e-4, 2e-4) for r in (1, 2, 4, 8, 16)]
    stages = runs[-1].experiment.recipe.stages
    assert [stage.training for stage in stages] == [{"lr": 2e-4}] * 2
    assert stages[0].options == {"rank": 16}
    assert len({run.experiment.id for run in runs}) == 10
    (run,) = sweep_runs(["linear.views"], [base], [[2.0]])
    assert run.experiment.recipe.stages[1].options == {"views": 2}
    (run,) = sweep_runs(["training.optimizer"], [base], [["sgd"]])
    assert run.experiment.recipe.stages[0].training == {"optimizer": "sgd"}
    for axes, values, said in (
        (["training.lr"], [], "Give the values of training.lr"),
        (["training.lrr"], [[1.0]], "Did you mean 'training.lr'"),
        (["alpha", "alpha"], [], "given twice"),
        (["alpha"], [["half"]], "numbers, got 'half'"),
    ):
        with pytest.raises(UsageError, match=said):
            sweep_runs(axes, [base], values)


def small(**changes):
    recipe = two_stage(iters_per_shot=3)
    return Experiment(**{"data": {"name": "shapes"}, "recipe": recipe, **changes})


def test_gain_measures_the_first_stage_as_if_it_were_alone(dataset, tmp_path):
    gain = second_stage_gain(small(), dataset=dataset, backbone=make_backbone())
    first = small(recipe=dynamics_recipe("layernorm", int(0.6 * 12)))
    curve = trace(first, 7, dataset=dataset, backbone=make_backbone())
    assert gain.after_first["base"] == pytest.approx(curve.points[-1].base, abs=1e-3)
    assert gain.after_first["novel"] == pytest.approx(curve.points[-1].novel, abs=1e-3)
    kept, ran = load_or_measure_gain(small(), tmp_path, dataset=dataset, backbone=make_backbone())
    assert ran
    assert (
        load_or_measure_gain(small(), tmp_path)[0].after_first
        == kept.after_first
        == gain.after_first
    )
    with pytest.raises(UsageError, match="two stages"):
        second_stage_gain(study(), dataset=dataset)


# Figures and commands.


def test_figures_are_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    record = trace(study(), 1, dataset=shapes_dataset(4), backbone=make_backbone())
    curves = [
        dataclasses.replace(record, points=tuple(synthetic(peak(0.3), 0.5, seed)), seed=seed)
        for seed in (1, 2)
    ]
    found = plot_dynamics(curves, tmp_path / "a" / "dynamics.png")
    assert found is not None and found.pattern == "two_phases"
    rows = [
        ((0.2,), {"base": estimate([1.0, 2.0]), "novel": estimate([3.0, 4.0])}),
        ((0.4,), {"base": estimate([2.0]), "novel": estimate([4.0])}),
    ]
    plot_sweep(rows, ["share"], "title", tmp_path / "sweep.png")
    pairs = [
        ((x, y), {"accuracy": estimate([50.0 + x * len(y)])})
        for x in (0.2, 0.4, 0.8)
        for y in ("sgd", "adamw")
        if (x, y) != (0.4, "sgd")
    ]
    plot_sweep(pairs, ["share", "optimizer"], "title", tmp_path / "pairs.png")
    runs = {"x": [1.0, 2.0], "y": [-1.0]}
    plot_gain({"x": 1.4, "y": -1.0}, runs, "title", tmp_path / "gain.png")
    for name in ("a/dynamics.png", "sweep.png", "pairs.png", "gain.png"):
        assert (tmp_path / name).stat().st_size > 5000


@pytest.fixture
def shapes_as_animals(monkeypatch):
    """Commands on a made-up dataset and backbone, under an embedded task's name."""
    pytest.importorskip("matplotlib")
    data, backbone = shapes_dataset(4), classmethod(lambda *_: make_backbone())
    monkeypatch.setattr("shotfit.apps.studies.load_dataset", lambda *_, **__: data)
    monkeypatch.setattr("shotfit.bench.dynamics.Backbone.from_pretrained", backbone)
    for module in ("bench.ablation", "experiment", "bench.cost", "bench.contents"):
        monkeypatch.setattr(f"shotfit.{module}.load_dataset", lambda *_, **__: data)


def command(*words):
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.output


def test_dynamics_command_draws_and_resumes(tmp_path, shapes_as_animals):
    folders = ["--results", tmp_path / "records", "--out", tmp_path / "figures"]
    words = ["dynamics", "--method", "layernorm", "bitfit", "--data", "animals", "--seeds", 1, 2]
    for _ in range(2):
        command(*words, "--shots", 2, "--iterations", 6, "--every", 1, "-q", *folders)
    figures = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert figures == ["dynamics_shapes_bitfit.png", "dynamics_shapes_layernorm.png"]
    records = [json.loads(path.read_text()) for path in (tmp_path / "records").iterdir()]
    assert sorted(record["seed"] for record in records) == [1, 1, 2, 2]


def test_sweep_command_draws_a_sweep_and_the_gain(tmp_path, shapes_as_animals):
    folders = ["--out", tmp_path / "figures", "--data", "animals", "--seeds", 1, "-q"]
    budget = ["--shots", 2, "--iters-per-shot", 3]
    for _ in range(2):
        text = command(
            "sweep", "alpha", "--values", 0.4, 0.6, *budget, *folders, "--results", tmp_path / "a"
        )
        assert "alpha 0.4: base" in text
        command("sweep", "second-stage", *budget, *folders, "--results", tmp_path / "b")
    alone = ["sweep", "alpha", "--values", 0.4, *budget, *folders, "--results", tmp_path / "d"]
    command(*alone, "-o", "training.precision=bf16")
    (kept,) = load_records(tmp_path / "d")
    assert [s["training"]["precision"] for s in kept.experiment["recipe"]["stages"]] == ["bf16"] * 2
    pair = ["sweep", "alpha", "training.lr", "--values", 0.4, 0.6, "--second-values", 1e-4, 2e-4]
    text = command(*pair, *budget, *folders, "--results", tmp_path / "c")
    assert "alpha 0.4, training.lr 0.0001: base" in text
    assert len(list((tmp_path / "c").rglob("*.json"))) == 4
    assert len(list((tmp_path / "a").rglob("*.json"))) == 2
    assert len(list((tmp_path / "b").rglob("*.json"))) == 1
    figures = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert [name.split("_")[0] for name in figures] == [
        "second-stage",
        *("sweep", "sweep", "sweep"),
    ]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (lambda n: 60 - 20 * n, "falling, no break (novel accuracy never rises above its start)"),
        (lambda n: 40 + 20 * n, "rising, no break (novel accuracy is highest at the end)"),
        (lambda n: 60 - 80 * (n - 0.5) ** 2, "two phases, break at 50"),
    ],
)
def test_the_line_says_of_a_break_what_the_figure_says(tmp_path, capsys, values, said):
    pytest.importorskip("matplotlib")
    record = trace(study(), 6, dataset=shapes_dataset(4), backbone=make_backbone())
    points = tuple(DynamicsPoint(n, 50 + n / 5, values(n / 100)) for n in range(0, 101, 5))
    curve = dataclasses.replace(record, points=points)
    _draw_dynamics([curve], Surroundings(tmp_path, tmp_path), "curve")
    assert said in capsys.readouterr().err
    assert found_break(points).exists == ("no break" not in said)


def test_one_novel_class_has_no_curve():
    """Whatever a method does, the only name there is is right."""
    for classes in (2, 3):
        with pytest.raises(DataError, match="one novel class"):
            trace(study(), 6, dataset=shapes_dataset(classes), backbone=make_backbone())
    untested = dataclasses.replace(shapes_dataset(4), test=())
    with pytest.raises(DataError, match="no test images"):
        trace(study(), 6, dataset=untested, backbone=make_backbone())
