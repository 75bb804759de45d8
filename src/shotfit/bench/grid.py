"""Grids of experiments: every combination of methods, datasets, shots and seeds, once."""

import itertools
from collections.abc import Sequence
from pathlib import Path

from shotfit.config import from_dict
from shotfit.data.inputs import SourceOptions, known_names, locate, locate_name
from shotfit.data.sources.demo import list_tasks
from shotfit.data.template import Words, check_template, data_options
from shotfit.errors import UsageError, unknown_name
from shotfit.experiment import Experiment
from shotfit.methods import get_method, published_names
from shotfit.recipe import Overrides, named_recipe

SUITE = "suite"
"""The word for every embedded task."""
SHIFTED = "shifted-suite"
"""The word for the declared tasks under shifts."""
EVERY = "every"
"""The word for every method alone, and the forms that were published under names of their own."""


def expand(
    methods: Sequence[str],
    datasets: Sequence[str],
    *,
    backbones: Sequence[str] = ("iconclip",),
    shots: Sequence[int] = (4,),
    seeds: Sequence[int] = (1,),
    settings: Sequence[str] = ("base_to_novel",),
    overrides: Overrides | None = None,
    template: str | Words | None = None,
    fewshot: str | None = None,
    imbalance: float = 1.0,
    wrong_labels: float = 0.0,
    transfer: Sequence[str] = (),
) -> tuple[Experiment, ...]:
    """Every combination once, seed by seed, so that a grid cut short has whole seeds.

    Methods are named as `shotfit.recipe.named_recipe` has them ("2sfs", "2sfs:lora", "coop"), or
    all of them by "every"; datasets as `find_datasets`. `template` is the prompt of every dataset
    ("specific" for the benchmarks' own), or several; `fewshot`, `imbalance`, `wrong_labels` and
    `transfer` are those of `Experiment`.

    Raises:
        UsageError: for an unknown name, with the nearest known one, or an empty list.
    """
    axes = {
        "method": methods,
        "dataset": datasets,
        "backbone": backbones,
        "number of shots": shots,
        "seed": seeds,
        "setting": settings,
    }
    for axis, values in axes.items():
        if not values:
            raise UsageError(f"The grid names no {axis}.")
    changes = overrides or Overrides()
    words = [
        name for method in methods for name in (published_names() if method == EVERY else [method])
    ]
    recipes = [changes.applied(named_recipe(word)) for word in words]
    if isinstance(template, Words):
        for recipe in recipes:
            get_method(recipe.stages[0].method).check_words(template)
    sources = [source for dataset in datasets for source in find_datasets(dataset)]
    experiments: dict[str, Experiment] = {}
    for backbone, seed, (source, data), count, setting, recipe in itertools.product(
        backbones, seeds, sources, shots, settings, recipes
    ):
        _check_template(template, source)
        values = {
            "source": source,
            "data": {**data, **data_options(template)},
            "fewshot": fewshot,
            "imbalance": imbalance,
            "wrong_labels": wrong_labels,
            "transfer": tuple(transfer),
            "setting": setting.replace("-", "_"),
            "shots": count,
            "seed": seed,
            "backbone": backbone,
            "recipe": recipe,
        }
        experiment = from_dict(Experiment, values)
        experiments.setdefault(experiment.id, experiment)
    return tuple(experiments.values())


def _check_template(template: str | Words | None, source: str) -> None:
    own = source == "coop" and template in ("generic", "specific")
    if isinstance(template, str) and not own:
        check_template(template)


def find_datasets(name: str) -> list[SourceOptions]:
    """The sources, with their options, that a grid means by one word.

    "suite" is every embedded task, "shifted-suite" the declared tasks under shifts; otherwise an
    embedded task, with or without a shift (`symbols@noise`), one of the eleven benchmarks (its key,
    CoOp's name or an alias), or a path to a folder or manifest.

    Raises:
        UsageError: when it is none of these, with the nearest known name.
    """
    if name == SUITE:
        return [("demo", {"name": task}) for task in list_tasks()]
    if name == SHIFTED:
        from shotfit.data.shifts import SHIFTED_SUITE

        return [("demo", {"name": task}) for task in SHIFTED_SUITE]
    # By name first: a folder of that name may be here and not on the next machine.
    found = locate_name(name)
    if found is not None:
        return [found]
    path = Path(name).expanduser()
    if path.exists():
        return [locate(str(path.resolve()))]
    raise unknown_name("dataset", name, [SUITE, SHIFTED, *known_names()])
