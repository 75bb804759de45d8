"""What `shotfit demo` does: three methods on one embedded task, then names it never trained on."""

import importlib.util
import random
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from shotfit.apps.demo.results import Curve, Prediction
from shotfit.classifier import FewShotClassifier
from shotfit.data.dataset import Dataset
from shotfit.data.sources import load_dataset
from shotfit.data.task import Task, make_task
from shotfit.evaluation.metrics import evaluate
from shotfit.experiment import Experiment, run
from shotfit.methods.base import Method
from shotfit.observers.progress import fit_progress
from shotfit.recipe import Recipe, one_stage, two_stage
from shotfit.records import Record
from shotfit.saving import check_target
from shotfit.system.files import check_new
from shotfit.system.terminal import printable
from shotfit.training.loop import TrainStep

# A third of the published 300 iterations per shot, so that a visitor waits a minute.
BUDGET = {"iters_per_shot": 100, "budget": "shared"}
METHODS: dict[str, Recipe] = {
    "zero-shot": one_stage("zero_shot"),
    "LayerNorm": one_stage("layernorm", **BUDGET),
    "2SFS": two_stage(**BUDGET),
}
# Points of the curve in the picture; each costs an evaluation of the whole test set.
POINTS = 12
COLUMNS = ("base", "novel", "harmonic_mean", "joint")


def showcase(
    name: str, shots: int, seed: int, out: Path, *, quiet: bool, overwrite: bool = True
) -> dict[str, Any]:
    """Runs the demo, prints what it finds, and writes `demo.png` and the classifier into `out`.

    Raises:
        UsageError: for an unknown task.
        DataError: when either is there and not `overwrite`, or cannot be written.
    """
    check_target(out / "classifier", overwrite=overwrite)
    check_new(out / "demo.png", overwrite=overwrite)
    started = time.perf_counter()
    console = Console(quiet=quiet)
    data = {"name": name}
    dataset = load_dataset("demo", **data)
    task = make_task(dataset, "base_to_novel", shots, seed)
    base, novel = task.tests["base"].classnames, task.tests["novel"].classnames
    console.print(
        f"Task [bold]{name}[/]: {len(base)} base classes with {shots} images each, "
        f"{len(novel)} novel classes known by name only."
    )
    results: dict[str, dict[str, float]] = {}
    curve = Curve()
    made: tuple[Record, Method] | None = None
    for title, recipe in METHODS.items():
        experiment = Experiment(data=data, shots=shots, seed=seed, recipe=recipe)
        watched = curve if title == "2SFS" else None
        made = _run(experiment, dataset, task, watched, quiet=quiet)
        results[title] = made[0].metrics
    assert made is not None
    record, method = made
    _print_table(console, results)
    predictions = _predict(method, task, seed)
    _print_predictions(console, predictions)
    classifier = FewShotClassifier().take(method, record, added=novel)
    out.mkdir(parents=True, exist_ok=True)
    saved = classifier.save_pretrained(out / "classifier")
    written = {"classifier": str(saved)}
    if importlib.util.find_spec("matplotlib") is None:
        console.print("For the picture: pip install 'shotfit\\[plots]'.")
    else:
        from shotfit.apps.demo.picture import draw

        written["picture"] = str(draw(out / "demo.png", name, results, curve, predictions))
    seconds = time.perf_counter() - started
    paths = printable(", ".join(written.values()))
    console.print(f"Written in {seconds:.0f} s: {paths}", markup=False)
    return {"task": name, "metrics": results, "seconds": seconds, **written}


def _run(
    experiment: Experiment, dataset: Dataset, task: Task, curve: Curve | None, *, quiet: bool
) -> tuple[Record, Method]:
    stages = [stage.method for stage in experiment.recipe.stages]
    done = 0
    with fit_progress(stages, quiet=quiet or stages == ["zero_shot"]) as progress:

        def observe(method: Method, stage: int, step: TrainStep) -> None:
            nonlocal done
            done += 1
            progress.observe(method, stage, step)
            if curve is None:
                return
            if stage == 0 and step.iteration == step.total:
                curve.switch = done
            every = max(1, step.total * len(stages) // POINTS)
            if done == 1 or step.iteration % every == 0 or step.iteration == step.total:
                curve.add(done, evaluate(method, task.tests))

        return run(experiment, dataset=dataset, observe=observe, announce=progress.announce)


def _predict(method: Method, task: Task, seed: int) -> list[Prediction]:
    """A few test images of base and of novel classes, classified among all names together."""
    stream = random.Random(seed)
    base, novel = task.tests["base"], task.tests["novel"]
    names = (*base.classnames, *novel.classnames)
    chosen = [(base, e) for e in stream.sample(base.examples, 3)]
    chosen += [(novel, e) for e in stream.sample(novel.examples, 7)]
    classifier = FewShotClassifier().take(method)
    images = [example.image for _, example in chosen]
    answers = classifier.predict(images, classnames=names)
    return [
        Prediction(example, split.classnames[example.label], answer, split is base)
        for (split, example), answer in zip(chosen, answers, strict=True)
    ]


def _print_table(console: Console, results: dict[str, dict[str, float]]) -> None:
    table = Table("accuracy, %", "base", "novel", "harmonic mean", "all names together")
    for column in table.columns[1:]:
        column.justify = "right"
    for title, metrics in results.items():
        table.add_row(title, *(f"{metrics[key]:.1f}" for key in COLUMNS))
    console.print(table)


def _print_predictions(console: Console, predictions: list[Prediction]) -> None:
    table = Table("test image of", "classified as", "class was", "")
    for prediction in predictions:
        right = prediction.answer == prediction.truth
        table.add_row(
            prediction.truth,
            prediction.answer,
            "trained" if prediction.trained else "never trained on",
            "[green]right[/]" if right else "[red]wrong[/]",
        )
    console.print(table)
