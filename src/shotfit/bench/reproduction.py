"""What has to be run for a table of the paper: the grids and their command lines."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from shotfit.experiment import Experiment
from shotfit.methods import get_method, published_names
from shotfit.paper import BACKBONES, PaperTable
from shotfit.recipe import Overrides, named_recipe

SEEDS = (1, 2, 3)
PUBLISHED_PRECISION = "fp16"
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
    fewshot: str | None = None
    """The folder of few-shot lists, as `Experiment.fewshot`; None draws by the rule."""
    precision: str = "fp32"

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
        if self.fewshot:
            words += ["--fewshot", shlex.quote(self.fewshot)]
        if self.precision != "fp32":
            words += ["-o", f"training.precision={self.precision}"]
        return " ".join(words)

    def experiments(self) -> list[Experiment]:
        """Its runs, seed by seed."""
        changed = {} if self.precision == "fp32" else {"training.precision": self.precision}
        overrides = Overrides({"iters_per_shot": self.iters_per_shot}, changed)
        return [
            Experiment(
                source="coop",
                data={"name": dataset} | ({"template": self.template} if self.template else {}),
                setting=self.setting,  # type: ignore[arg-type]
                shots=self.shots,
                seed=seed,
                backbone=HUB_IDS[self.backbone],
                recipe=overrides.applied(named_recipe(method)),
                fewshot=self.fewshot,
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


def reproduction(
    table: PaperTable,
    seeds: Sequence[int] = SEEDS,
    fewshot: str | None = None,
    precision: str = PUBLISHED_PRECISION,
) -> Reproduction:
    """What has to be run for a table of the paper; `fewshot` is that of `Experiment`.

    The printed numbers were trained in fp16, and so they are here, but for methods that its loss
    scaling cannot serve: those train in fp32. Zero-shot is run with dataset-specific prompts, as
    printed, and once: no seed changes it.
    """
    recipes: dict[tuple[int, str], list[str]] = {}
    missing = []
    for method in table.methods:
        name, _, inside = method.partition("[M=")
        recipe = recipe_of(name)
        if recipe is None:
            missing.append(name)
        elif name != "zero_shot":
            per_shot = int(inside.rstrip("]") or 300)
            recipes.setdefault((per_shot, _precision(recipe, precision)), []).append(recipe)
    grids = []
    for backbone in table.backbones:
        common = (table.datasets, table.setting, table.shots)
        for (per_shot, used), methods in recipes.items():
            which = (backbone, tuple(methods), *common, tuple(seeds), per_shot)
            grids.append(Grid(*which, fewshot=fewshot, precision=used))
        if "zero_shot" in table.methods:
            once = (("zero_shot",), *common, tuple(seeds)[:1])
            grids.append(Grid(backbone, *once, template="specific", fewshot=fewshot))
    return Reproduction(tuple(grids), tuple(missing))


def _precision(recipe: str, wanted: str) -> str:
    """The precision that a recipe can be trained in, where `wanted` may not serve it."""
    first = named_recipe(recipe).stages[0].method
    return wanted if wanted != "fp16" or get_method(first).additive_loss else "fp32"


def recipe_of(method: str) -> str | None:
    """The paper's method as `named_recipe` has it; None when this version lacks it."""
    inner = method.removeprefix("2sfs_")
    if inner not in published_names():
        return None
    return inner if "2sfs_" not in method else f"2sfs:{inner}"
