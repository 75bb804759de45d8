"""What has to be run for a table: the grid, its command lines, and what it will cost."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shotfit.data.benchmark.facts import benchmarks
from shotfit.errors import UsageError
from shotfit.experiment import Experiment
from shotfit.methods import list_methods
from shotfit.methods.published import TaskFacts
from shotfit.paper import PaperTable
from shotfit.recipe import FORMS, named_recipe, plan
from shotfit.report.protocol import BACKBONES
from shotfit.training.loop import total_iterations

SEEDS = (1, 2, 3)
SECONDS_PER_ITERATION = {"ViT-B/16": 0.15, "ViT-B/32": 0.08, "ViT-L/14": 0.45}
"""Assumed for one current data-centre GPU; measure one run and give `reproduce` the real value."""
FORWARD_SHARE = 1 / 3
"""A forward pass as a share of an iteration: the backward pass costs about twice as much."""
BATCH = 32
HUB_IDS = {name: hub_id for hub_id, name in BACKBONES.items()}


@dataclass(frozen=True)
class Grid:
    """The runs of one backbone and M: a `shotfit bench` command line."""

    backbone: str
    methods: tuple[str, ...]
    """As `named_recipe` has them."""
    datasets: tuple[str, ...]
    setting: str
    shots: int
    seeds: tuple[int, ...]
    iters_per_shot: int = 300
    template: str | None = None

    @property
    def command(self) -> str:
        """The command line that runs it."""
        words = ["shotfit bench", "--methods", *self.methods, "--datasets", *self.datasets]
        words += ["--backbones", HUB_IDS[self.backbone], "--setting", self.setting]
        words += ["--shots", str(self.shots), "--seeds", *map(str, self.seeds)]
        if self.iters_per_shot != 300:
            words += ["--iters-per-shot", str(self.iters_per_shot)]
        if self.template:
            words += ["--template", self.template]
        return " ".join(words)

    def experiments(self) -> list[Experiment]:
        """Its runs, seed by seed."""
        return [
            Experiment(
                source="coop",
                data={"name": dataset} | ({"template": self.template} if self.template else {}),
                setting=self.setting,  # type: ignore[arg-type]
                shots=self.shots,
                seed=seed,
                backbone=HUB_IDS[self.backbone],
                recipe=named_recipe(method, iters_per_shot=self.iters_per_shot),
            )
            for seed in self.seeds
            for dataset in self.datasets
            for method in self.methods
        ]


@dataclass(frozen=True)
class Reproduction:
    """The grids of a table, and the printed methods that this version does not have."""

    grids: tuple[Grid, ...]
    missing: tuple[str, ...]

    def experiments(self) -> list[Experiment]:
        """Every run once."""
        runs = [experiment for grid in self.grids for experiment in grid.experiments()]
        return list({run.id: run for run in runs}.values())


def reproduction(table: PaperTable, seeds: Sequence[int] = SEEDS) -> Reproduction:
    """What has to be run for a table of the paper.

    Zero-shot is run with dataset-specific prompts, as printed, and once: no seed changes it.
    """
    recipes: dict[int, list[str]] = {}
    missing = []
    for method in table.methods:
        name, _, inside = method.partition("[M=")
        recipe = recipe_of(name)
        if recipe is None:
            missing.append(name)
        elif name != "zero_shot":
            recipes.setdefault(int(inside.rstrip("]") or 300), []).append(recipe)
    grids = []
    for backbone in table.backbones:
        common = (table.datasets, table.setting, table.shots)
        for per_shot, methods in recipes.items():
            grids.append(Grid(backbone, tuple(methods), *common, tuple(seeds), per_shot))
        if "zero_shot" in table.methods:
            zero = Grid(backbone, ("zero_shot",), *common, tuple(seeds)[:1], template="specific")
            grids.append(zero)
    return Reproduction(tuple(grids), tuple(missing))


def recipe_of(method: str) -> str | None:
    """The paper's method as `named_recipe` has it; None when this version lacks it."""
    inner = method.removeprefix("2sfs_")
    if inner not in (*list_methods(), *FORMS):
        return None
    return inner if "2sfs_" not in method else f"2sfs:{inner}"


def device_hours(
    experiments: Sequence[Experiment], seconds_per_iteration: Mapping[str, float]
) -> float:
    """Estimated hours on one device: training iterations, then one pass over the test images.

    `seconds_per_iteration` goes by the paper's names of backbones.

    Raises:
        UsageError: when a backbone has no such number.
    """
    return sum(run_seconds(run, seconds_per_iteration) for run in experiments) / 3600


def run_seconds(experiment: Experiment, seconds_per_iteration: Mapping[str, float]) -> float:
    """Estimated seconds of one run on a benchmark dataset (see `device_hours`)."""
    backbone = BACKBONES.get(experiment.backbone, experiment.backbone)
    if backbone not in seconds_per_iteration:
        raise UsageError(f"Give the seconds per iteration of {backbone}.")
    benchmark = benchmarks()[experiment.data["name"]]
    half = experiment.setting == "base_to_novel"
    classes = math.ceil(benchmark.classes / 2) if half else benchmark.classes
    assert experiment.shots is not None, "published runs have a number of shots"
    facts = TaskFacts(
        dataset=benchmark.key,
        setting=experiment.setting,
        shots=experiment.shots,
        classes=classes,
        images=classes * experiment.shots,
    )
    trainings = [training for _, _, stage in plan(experiment.recipe, facts) for training in stage]
    iterations = sum(total_iterations(training, facts.images) for training in trainings)
    testing = benchmark.sizes["test"] / BATCH * FORWARD_SHARE
    return (iterations + testing) * seconds_per_iteration[backbone]
