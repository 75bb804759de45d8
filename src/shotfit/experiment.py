"""One run, from a frozen config to a record.

The only file that seeds, picks the device and measures cost.
"""

import os
import platform
import random
import resource
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch

from shotfit import __version__
from shotfit.backbone import Backbone
from shotfit.config import digest, to_dict
from shotfit.data import load_dataset
from shotfit.data.checks import check_split
from shotfit.data.dataset import Dataset, Setting, Split, Task, make_task
from shotfit.data.loading import SupportSet
from shotfit.evaluation import evaluate
from shotfit.methods.base import Method, TaskFacts
from shotfit.recipe import Observe, Recipe, adapt, two_stage
from shotfit.training import TrainStep

SCHEMA = 1
"""Version of the record's format; a record of another version is refused, not guessed at."""


@dataclass(frozen=True)
class Experiment:
    """Everything that decides a run's numbers. Its hash is the run's identity.

    `source` and `data` name the dataset: the source module and what its `load` takes. The root
    folder of datasets is not part of it, so that a record means the same on every machine.
    """

    source: str = "demo"
    data: dict[str, Any] = field(default_factory=lambda: {"name": "animals"})
    setting: Setting = "base_to_novel"
    shots: int | None = 4
    """None takes every training image."""
    seed: int = 1
    backbone: str = "iconclip"
    revision: str | None = None
    recipe: Recipe = field(default_factory=two_stage)

    @property
    def id(self) -> str:
        """Twelve hex digits: equal for equal experiments, on every machine."""
        return digest(self)


@dataclass(frozen=True)
class Record:
    """What a run left: config, metrics in percent, loss curve, cost, environment."""

    id: str
    experiment: dict[str, Any]
    dataset: str
    status: str
    metrics: dict[str, float] = field(default_factory=dict)
    curve: list[list[float]] = field(default_factory=list)
    """[stage, iteration, loss, learning rate], thinned to at most 200 points a stage."""
    trainable_parameters: list[int] = field(default_factory=list)
    """Per stage."""
    cost: dict[str, float] = field(default_factory=dict)
    """`seconds` of training and evaluation, `iterations`, `peak_memory_bytes`."""
    split_hash: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    error: str = ""
    schema: int = SCHEMA


def run(
    experiment: Experiment,
    *,
    root: str | None = None,
    dataset: Dataset | None = None,
    backbone: Backbone | None = None,
    observe: Observe | None = None,
    device: str | None = None,
) -> tuple[Record, Method]:
    """Carries out an experiment; the record and the adapted method.

    `dataset` and `backbone` may be given when already loaded; a backbone is used up by the run.

    Raises:
        UsageError, DataError: for a config or data that cannot be used.
    """
    dataset = dataset or load_dataset(experiment.source, root=root, **experiment.data)
    task = make_task(dataset, experiment.setting, experiment.shots, experiment.seed)
    log = _Log()

    def watch(method: Method, stage: int, step: TrainStep) -> None:
        log.add(method, stage, step)
        if observe is not None:
            observe(method, stage, step)

    started = time.perf_counter()
    method = fit_task(experiment, task, backbone=backbone, observe=watch, device=device)
    fitted = time.perf_counter()
    measurable = all(split.examples for split in task.tests.values())
    metrics = evaluate(method, task.tests) if measurable else {}
    record = Record(
        id=experiment.id,
        experiment=to_dict(experiment),
        dataset=dataset.name,
        status="done",
        metrics=metrics,
        curve=log.curve(),
        trainable_parameters=log.trainable,
        cost={
            "seconds": fitted - started,
            "evaluation_seconds": time.perf_counter() - fitted,
            "iterations": float(log.count),
            "peak_memory_bytes": float(peak_memory_bytes()),
        },
        split_hash=task.split_hash,
        environment=environment(),
    )
    return record, method


def fit_task(
    experiment: Experiment,
    task: Task,
    *,
    backbone: Backbone | None = None,
    observe: Observe | None = None,
    device: str | None = None,
) -> Method:
    """The method that an experiment's recipe makes of its backbone on a task's support set."""
    check_split(task.support)
    backbone = backbone or Backbone.from_pretrained(experiment.backbone, experiment.revision)
    backbone = backbone.to(pick_device(device))
    return adapt(
        backbone,
        support_set(task.support, backbone, experiment.seed),
        experiment.recipe,
        task_facts(task),
        validation=support_set(task.validation, backbone, experiment.seed + 1),
        generator=torch.Generator().manual_seed(experiment.seed),
        observe=observe,
    )


def task_facts(task: Task) -> TaskFacts:
    """What hyper-parameters may depend on. Without a number of shots, the most images of a class
    count as shots, up to the 16 that the published budgets end at."""
    most = max(Counter(task.support.labels).values(), default=0)
    return TaskFacts(
        dataset=task.name,
        setting=task.setting,
        shots=task.shots or min(most, 16),
        classes=len(task.support.classnames),
        images=len(task.support.examples),
    )


def support_set(split: Split, backbone: Backbone, seed: int) -> SupportSet:
    """A split as a method sees it, its order and augmentation decided by `seed`."""
    # A string seed goes through SHA-512: no correlation with the stream that sampled the shots.
    stream = random.Random(f"augmentation {seed}")
    return SupportSet(split, backbone.image_spec, stream, threads=min(8, os.cpu_count() or 1))


def pick_device(device: str | None = None) -> torch.device:
    """The device asked for; without a wish the first accelerator, else the CPU."""
    if device is not None:
        return torch.device(device)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("cpu")


def environment() -> dict[str, str]:
    """Versions and hardware that numbers may depend on."""
    from importlib.metadata import version

    packages = ("torch", "transformers", "pillow", "numpy")
    facts = {"shotfit": __version__, **{package: version(package) for package in packages}}
    facts["python"] = platform.python_version()
    facts["platform"] = f"{platform.system()} {platform.machine()}"
    facts["processors"] = str(os.cpu_count())
    facts["threads"] = str(torch.get_num_threads())
    if torch.cuda.is_available():
        facts["accelerator"] = torch.cuda.get_device_name()
    return facts


def peak_memory_bytes() -> int:
    """The most memory this process has held (on an accelerator: the most allocated there)."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


class _Log:
    """Steps as they come, thinned for the record."""

    def __init__(self) -> None:
        self.count = 0
        self.trainable: list[int] = []
        self._points: list[list[float]] = []

    def add(self, method: Method, stage: int, step: TrainStep) -> None:
        self.count += 1
        while len(self.trainable) <= stage:
            self.trainable.append(trainable_parameters(method))
        every = max(1, step.total // 200)
        if step.iteration == 1 or step.iteration % every == 0 or step.iteration == step.total:
            self._points.append([stage, step.iteration, step.loss, step.lr])

    def curve(self) -> list[list[float]]:
        return self._points


def trainable_parameters(method: Method) -> int:
    """The number of values that training changes."""
    return sum(p.numel() for p in method.parameters() if p.requires_grad)
