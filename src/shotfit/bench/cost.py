"""What a grid will cost, from what earlier runs of its kind took.

Every estimate says what it rests on. From records when there are some of the same method and
backbone; otherwise from a rough figure per iteration, which may be wrong by a factor of several.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

from shotfit.data.benchmark.facts import find_benchmark
from shotfit.data.checks import check_test_images, missing_files
from shotfit.data.dataset import Dataset
from shotfit.data.sources import load_dataset
from shotfit.data.task import split_base_novel
from shotfit.data.transfer import transfer_targets
from shotfit.errors import DataError, UsageError
from shotfit.experiment import Experiment, task_facts, task_of
from shotfit.methods.published import TaskFacts
from shotfit.paper import BACKBONES
from shotfit.plan import plan
from shotfit.records import Record
from shotfit.training.loop import total_iterations

SECONDS_PER_ITERATION = {"ViT-B/16": 0.15, "ViT-B/32": 0.08, "ViT-L/14": 0.45, "iconclip": 0.08}
"""Seconds of an iteration with 32 images: the paper's backbones on one current data-centre GPU, the
embedded model on one CPU core. Orders of magnitude, for a first plan only."""
OTHER_SECONDS = 0.25
"""The same for any other backbone."""
FORWARD_SHARE = 1 / 3
"""A forward pass as a share of an iteration: the backward pass costs about twice as much."""
BATCH = 32

Basis = Literal["same run", "same method", "rough"]


@dataclass(frozen=True)
class RunEstimate:
    """The cost of one run: its training iterations, its seconds, and what they rest on.

    "same run": runs that differ in the seed only; "same method": seconds per iteration of the same
    recipe and backbone on other data; "rough": `SECONDS_PER_ITERATION`.
    """

    experiment: Experiment
    iterations: int
    seconds: float
    basis: Basis


def check_runs(experiments: Sequence[Experiment], root: str | None) -> dict[str, int]:
    """The training iterations of every run by id, after checking all that can be checked.

    Every dataset is read, every task drawn, every recipe planned; images are only checked for being
    there.

    Raises:
        UsageError: for a recipe that makes no sense.
        DataError: for data that is missing or cannot be used.
    """
    iterations: dict[str, int] = {}
    for group in by_dataset(experiments):
        dataset = _load(group[0], root)
        check_test_images(dataset)
        missing = missing_files(dataset)
        if missing:
            raise DataError(
                f"{len(missing)} images of {dataset.name} are missing, the first is {missing[0]}. "
                "Nothing was run; `shotfit datasets` says how the folders are laid out."
            )
        for experiment in group:
            transfer_targets(experiment.transfer, root)
            iterations[experiment.id] = _iterations(experiment, _facts(experiment, dataset, root))
    return iterations


def estimate_runs(
    experiments: Sequence[Experiment], records: Iterable[Record], root: str | None
) -> list[RunEstimate]:
    """The cost of every run; benchmarks need not be there, their sizes are known.

    Raises:
        UsageError, DataError: as `check_runs`, for other data.
    """
    done = [record for record in records if record.status == "done" and record.cost]
    estimates: dict[str, RunEstimate] = {}
    for group in by_dataset(experiments):
        dataset = None
        if group[0].source != "coop":
            dataset = _load(group[0], root)
        for experiment in group:
            if dataset is None:
                facts = _published_facts(experiment)
            else:
                facts = _facts(experiment, dataset, root)
            iterations = _iterations(experiment, facts)
            seconds, basis = _seconds(experiment.plain(), iterations, done)
            estimates[experiment.id] = RunEstimate(experiment, iterations, seconds, basis)
    return [estimates[experiment.id] for experiment in experiments]


def device_hours(
    experiments: Sequence[Experiment], seconds_per_iteration: Mapping[str, float]
) -> float:
    """Estimated hours on one device: training iterations, then one pass over the test images.

    `seconds_per_iteration` goes by the paper's names of backbones.

    Raises:
        UsageError: when a backbone has no such number.
    """
    seconds = 0.0
    for experiment in experiments:
        backbone = BACKBONES.get(experiment.backbone, experiment.backbone)
        if backbone not in seconds_per_iteration:
            raise UsageError(f"Give the seconds per iteration of {backbone}.")
        testing = find_benchmark(experiment.data["name"]).sizes["test"] / BATCH * FORWARD_SHARE
        iterations = _iterations(experiment, _published_facts(experiment))
        seconds += (iterations + testing) * seconds_per_iteration[backbone]
    return seconds / 3600


def by_dataset(experiments: Sequence[Experiment]) -> list[list[Experiment]]:
    """Runs on the same data together, so that one dataset is in memory at a time."""
    groups: dict[str, list[Experiment]] = {}
    for experiment in experiments:
        groups.setdefault(f"{experiment.source} {experiment.data}", []).append(experiment)
    return list(groups.values())


def _load(experiment: Experiment, root: str | None) -> Dataset:
    name = experiment.data.get("name", experiment.source)
    if experiment.source == "coop":
        if root is None:
            raise UsageError(
                f"{name} is a benchmark: say where the datasets lie, with --root or SHOTFIT_DATA."
            )
        if not Path(root).expanduser().is_dir():
            raise DataError(f"There is no folder {root} with datasets (--root or SHOTFIT_DATA).")
    return load_dataset(experiment.source, root=root, **experiment.data)


def _facts(experiment: Experiment, dataset: Dataset, root: str | None) -> TaskFacts:
    return task_facts(task_of(experiment, dataset, root))


def _published_facts(experiment: Experiment) -> TaskFacts:
    benchmark = find_benchmark(experiment.data["name"])
    classes = benchmark.classes
    if experiment.setting == "base_to_novel":
        classes = len(split_base_novel(classes)[0])
    shots = experiment.shots or 16
    return TaskFacts(benchmark.key, experiment.setting, shots, classes, classes * shots)


def _iterations(experiment: Experiment, facts: TaskFacts) -> int:
    return sum(
        total_iterations(training, facts.images)
        for _, _, trainings in plan(experiment.recipe, facts)
        for training in trainings
    )


def _seconds(
    wanted: dict[str, Any], iterations: int, records: Sequence[Record]
) -> tuple[float, Basis]:
    same = [r for r in records if _without(r.experiment, "seed") == _without(wanted, "seed")]
    if same:
        return median(map(_total, same)), "same run"
    kind = (_methods(wanted), wanted["backbone"])
    alike = [r for r in records if (_methods(r.experiment), r.experiment["backbone"]) == kind]
    trained = [r for r in alike if r.cost.get("iterations")]
    if trained:
        rate = median(record.cost["seconds"] / record.cost["iterations"] for record in trained)
        rest = median(record.cost.get("evaluation_seconds", 0.0) for record in trained)
        return rate * iterations + rest, "same method"
    if alike:
        return median(map(_total, alike)), "same method"
    backbone = str(BACKBONES.get(wanted["backbone"], wanted["backbone"]))
    rate = SECONDS_PER_ITERATION.get(backbone, OTHER_SECONDS)
    return rate * max(iterations, 1), "rough"


def _without(experiment: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in experiment.items() if name != key}


def _methods(experiment: dict[str, Any]) -> list[str]:
    return [stage["method"] for stage in experiment["recipe"]["stages"]]


def _total(record: Record) -> float:
    return record.cost.get("seconds", 0.0) + record.cost.get("evaluation_seconds", 0.0)
