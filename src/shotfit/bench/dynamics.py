"""Learning dynamics: base and novel accuracy on held-out images along training, and their break.

Paper: Farina et al., Rethinking Few-Shot Adaptation of Vision-Language Models in Two Stages,
CVPR 2025, section 3.2 and appendix "Extended preliminary analysis",
https://arxiv.org/abs/2503.11609.

A curve is what an ordinary run shows to an observer: looking changes no mode, draws no random
number, and leaves the run bit-equal to one that nobody looked at.
"""

import dataclasses
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shotfit.adaptation import Observe
from shotfit.backbone import Backbone
from shotfit.bench.contents import is_current, refuse_changed
from shotfit.config import digest
from shotfit.data.checks import check_test_images
from shotfit.data.contents import task_content
from shotfit.data.dataset import Dataset, Split
from shotfit.data.images import open_image
from shotfit.data.sources import load_dataset
from shotfit.errors import DataError, UsageError
from shotfit.evaluation.metrics import evaluate
from shotfit.experiment import Experiment, environment, fit_task, pick_device, task_of
from shotfit.methods import get_method
from shotfit.methods.base import Method
from shotfit.recipe import Recipe, Stage
from shotfit.records.dynamics import DynamicsPoint, LearningDynamics, read_dynamics, write_dynamics
from shotfit.system.interrupts import Terminated, noticed_interrupt
from shotfit.training.checkpoint import Checkpoints
from shotfit.training.loop import TrainStep

UNFINISHED = ".unfinished"
"""The folder of checkpoints among the curves."""
# Test images of a task up to this many are decoded once and not at every evaluation.
KEEP_DECODED = 4000


def dynamics_recipe(
    method: str,
    iterations: int,
    *,
    options: Mapping[str, Any] | None = None,
    training: Mapping[str, Any] | None = None,
) -> Recipe:
    """The recipe of the study: one method without a second stage, its cosine over `iterations`."""
    changes = {**(training or {}), "iterations": iterations}
    return Recipe((Stage(method, options=dict(options or {}), training=changes),))


def dynamics_id(experiment: Experiment, every: int) -> str:
    """Twelve hex digits that name a curve: equal for equal experiments and intervals."""
    return digest({"experiment": experiment.plain(), "every": every})


def trace(
    experiment: Experiment,
    every: int = 100,
    *,
    root: str | None = None,
    dataset: Dataset | None = None,
    backbone: Backbone | None = None,
    device: str | None = None,
    observe: Observe | None = None,
    checkpoints: Checkpoints | None = None,
) -> LearningDynamics:
    """Carries out a one-stage experiment and evaluates it every `every` iterations. With
    `checkpoints`, one that was broken off goes on.

    Raises:
        UsageError: for an interval below 1, an experiment of two stages or without novel classes,
            or a method that cannot score them.
        DataError: as `load_dataset`; without test images, or with a single novel class.
    """
    method_name = _check(experiment, every)
    dataset = dataset or load_dataset(experiment.source, root=root, **experiment.data)
    task = task_of(experiment, dataset, root)
    check_test_images(dataset)
    if len(task.tests["novel"].classnames) < 2:
        raise DataError(
            f"{dataset.name} has one novel class, and among one name every answer is right: "
            "learning dynamics need at least four classes."
        )
    content = task_content(task)
    tests = {key: _decoded(split) for key, split in task.tests.items()}
    backbone = backbone or Backbone.from_pretrained(experiment.backbone, experiment.revision)
    backbone = backbone.to(pick_device(device))
    curve = _Curve(tests, every, observe)
    if checkpoints is not None:
        checkpoints.keep("curve", curve)
    curve.start(get_method("zero_shot")(backbone, template=task.support.template))
    fit_task(
        experiment,
        task,
        backbone=backbone,
        observe=curve,
        device=device,
        checkpoints=checkpoints,
    )
    return LearningDynamics(
        id=dynamics_id(experiment, every),
        experiment=experiment.plain(),
        dataset=dataset.name,
        method=method_name,
        seed=experiment.seed,
        every=every,
        points=tuple(curve.points),
        split_hash=task.split_hash,
        content=content,
        cost={
            "seconds": curve.seconds,
            "evaluation_seconds": curve.evaluation_seconds,
        },
        environment=environment(),
    )


def _check(experiment: Experiment, every: int) -> str:
    """The name of the experiment's one method."""
    if every < 1:
        raise UsageError(f"The interval of evaluations must be at least 1, got {every}.")
    if len(experiment.recipe.stages) != 1:
        raise UsageError("Learning dynamics are those of one method alone: give one stage.")
    if experiment.setting != "base_to_novel":
        raise UsageError("Learning dynamics need novel classes: use the setting base_to_novel.")
    name = experiment.recipe.stages[0].method
    if not get_method(name).open_vocabulary:
        raise UsageError(f"{name!r} cannot score novel classes, so it has no novel curve.")
    return name


def _decoded(split: Split) -> Split:
    """The split with its images decoded, when there are few enough to keep."""
    if len(split.examples) > KEEP_DECODED:
        return split
    examples = tuple(
        dataclasses.replace(example, image=open_image(example.image, example.key))
        for example in split.examples
    )
    return dataclasses.replace(split, examples=examples)


class _Curve:
    """An observer that evaluates as it goes along."""

    def __init__(self, tests: Mapping[str, Split], every: int, observe: Observe | None) -> None:
        self.points: list[DynamicsPoint] = []
        self.evaluation_seconds = 0.0
        self._tests = tests
        self._every = every
        self._observe = observe
        self._losses: list[float] = []
        self._done = 0
        self._started = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Since it was made, with those before it was broken off."""
        return time.perf_counter() - self._started

    def plain(self) -> dict[str, Any]:
        """What goes along with a checkpoint."""
        return {
            "points": [dataclasses.astuple(point) for point in self.points],
            "losses": self._losses,
            "done": self._done,
            "seconds": self.seconds,
            "evaluation_seconds": self.evaluation_seconds,
        }

    def load(self, values: dict[str, Any]) -> None:
        """Takes up the curve of a run that was broken off, in the place of its start."""
        self.points = [DynamicsPoint(*point) for point in values["points"]]
        self._losses, self._done = list(values["losses"]), values["done"]
        self._started -= values["seconds"]
        self.evaluation_seconds += values["evaluation_seconds"]

    def start(self, method: Method) -> None:
        """The point before training."""
        self._add(method, None)

    def __call__(self, method: Method, stage: int, step: TrainStep) -> None:
        self._done += 1
        self._losses.append(step.loss)
        if self._done % self._every == 0 or step.iteration == step.total:
            self._add(method, sum(self._losses) / len(self._losses))
            self._losses.clear()
        if self._observe is not None:
            self._observe(method, stage, step)

    def _add(self, method: Method, loss: float | None) -> None:
        started = time.perf_counter()
        metrics = evaluate(method, self._tests)
        self.evaluation_seconds += time.perf_counter() - started
        self.points.append(
            DynamicsPoint(
                self._done,
                round(metrics["base"], 4),
                round(metrics["novel"], 4),
                None if loss is None else round(loss, 6),
            )
        )


def curve_path(folder: Path, experiment: Experiment, every: int) -> Path:
    """Where the curve of an experiment is kept: readable names first, its identity last."""
    dataset = str(experiment.data.get("name") or experiment.source)
    method = experiment.recipe.stages[0].method
    stem = f"{dataset}-{method}-seed{experiment.seed}-{dynamics_id(experiment, every)}"
    return folder / f"{Path(stem).name}.json"


def load_or_trace(
    experiment: Experiment, every: int, folder: Path, *, overwrite: bool = False, **options: Any
) -> tuple[LearningDynamics, bool]:
    """The curve from `folder`, or run and kept there; and whether it had to be run.

    A curve that was broken off goes on from its last checkpoint. `options` are those of `trace`.

    Raises:
        DataError: for a curve of other images than there are now, unless `overwrite`, which runs
            it again.
    """
    path = curve_path(folder, experiment, every)
    if path.is_file():
        kept = read_dynamics(path)
        if is_current(experiment, kept.content, options.get("root"), options.get("dataset")):
            return kept, False
        refuse_changed([] if overwrite else [path])
    with noticed_interrupt(signal.SIGTERM) as interrupt:
        interrupt.armed = True
        checkpoints = Checkpoints(
            folder / UNFINISHED / dynamics_id(experiment, every),
            resume=True,
            lenient=True,
            terminated=lambda: interrupt.terminated,
        )
        record = trace(experiment, every, checkpoints=checkpoints, **options)
    write_dynamics(path, record)
    checkpoints.remove()
    if interrupt.terminated:
        raise Terminated
    return record, True
