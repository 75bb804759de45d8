"""What the study runs: recipes, factors on their rates, tasks."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from shotfit.averages import harmonic_mean, mean
from shotfit.bench.grid import find_datasets
from shotfit.data.sources import load_dataset
from shotfit.data.sources.demo import list_tasks
from shotfit.data.task import make_task
from shotfit.errors import UsageError
from shotfit.experiment import Experiment, task_facts
from shotfit.methods import published_names
from shotfit.methods.published import TaskFacts
from shotfit.plan import plan
from shotfit.recipe import Overrides, Recipe, named_recipe
from shotfit.records import Record

TUNING = ("activities", "food", "travel")
"""Where factors are chosen; the shifted suite has one pair of these, which is left out too."""
FACTORS = (0.25, 1.0, 4.0)
SEEDS = (1, 2, 3)
SHIPPED = "2sfs"
"""The row that is also shown with the rates that the embedded model asks for."""
SHOTS, ITERS_PER_SHOT = 4, 100
SAME = {"clip_lora"}
"""Equal to another method under one budget."""
IDEAS = ("2sfs anchor=8", "2sfs linear.leash=10", "2sfs anchor=8 linear.leash=10")
"""Of our own: CLIPFit's anchor in LayerNorm tuning, at its published weight, and CLAP's leash on
the second stage's rows. CLAP's rows keep the length of text embeddings, whose square is some 100 in
CLIP; those of the second stage have length one, and 100 held them too close on the tuning tasks."""


def recipes() -> list[str]:
    """Every method alone, and the second stage on first stages that it can follow."""
    alone = [name for name in published_names() if name not in SAME and name != "linear"]
    firsts = [name for name in published_names() if can_be_first(name)]
    return [*alone, *("2sfs:" + name for name in firsts if name not in SAME), *IDEAS]


@cache
def untuned(name: str) -> Recipe:
    """The recipe that a row's name and options mean, at published rates."""
    word, *options = name.split()
    recipe = named_recipe(word, iters_per_shot=ITERS_PER_SHOT, budget="shared")
    return Overrides(options=dict(one.split("=") for one in options)).applied(recipe)


def can_be_first(name: str) -> bool:
    """Whether a second stage can follow a method."""
    if published_names()[name].options:
        return False
    try:
        plan(named_recipe(f"2sfs:{name}", budget="shared"), FACTS)
    except UsageError:
        return False
    return True


FACTS = TaskFacts("activities", "base_to_novel", SHOTS, 10, 10 * SHOTS)
"""Of any task: published rates do not depend on which of the embedded ones it is."""


def reporting() -> list[str]:
    """The tasks that are reported, in turn unshifted and shifted, so that a study that was cut
    short has both."""
    plain = [name for name in list_tasks() if name not in TUNING]
    shifted = [
        options["name"]
        for _, options in find_datasets("shifted-suite")
        if options["name"].partition("@")[0] not in TUNING
    ]
    order = {name: number for number, name in enumerate(plain)}
    return sorted(
        [*plain, *shifted], key=lambda name: (order[name.partition("@")[0]], name.count("@"), name)
    )


@cache
def facts_of(task: str, seed: int) -> TaskFacts:
    """What a method may know of an unshifted task; a shift changes nothing that is counted."""
    return task_facts(make_task(load_dataset("demo", name=task), "base_to_novel", SHOTS, seed))


@cache
def with_factor(name: str, task: str, seed: int, factor: float | None) -> Experiment:
    """A run with published rates times a factor; without one, as it is shipped."""
    recipe = untuned(name)
    stages = []
    for planned in plan(recipe, facts_of(task.partition("@")[0], seed)):
        training: dict[str, object] = {"precision": "bf16"}
        rates = {one.lr for one in planned.trainings}
        if rates and factor is not None:
            (rate,) = rates
            training["lr"] = float(f"{rate * factor:.6g}")
        stages.append(dataclasses.replace(planned.stage, training=training))
    found = Recipe(tuple(stages), iters_per_shot=ITERS_PER_SHOT, budget="shared")
    return Experiment(data={"name": task}, shots=SHOTS, seed=seed, recipe=found)


def trains(name: str) -> bool:
    """Whether there is a rate to tune."""
    return any(planned.trainings for planned in plan(untuned(name), FACTS))


def tuning(name: str) -> list[Experiment]:
    """The runs that choose the factor of a method; none where nothing is trained."""
    if not trains(name):
        return []
    return [with_factor(name, task, SEEDS[0], factor) for task in TUNING for factor in FACTORS]


def chosen(name: str, found: Mapping[str, Record]) -> float | None:
    """The factor that was best on the tuning tasks; None where nothing is trained, or while a run
    is missing. Of equal ones the published rate, then the smaller."""
    scores = {}
    for factor in FACTORS if trains(name) else ():
        ids = [with_factor(name, task, SEEDS[0], factor).id for task in TUNING]
        runs = [found[key].metrics for key in ids if key in found and found[key].status == "done"]
        if len(runs) < len(TUNING):
            return None
        base = mean([run["base"] for run in runs])
        novel = [run["novel"] for run in runs if "novel" in run]
        scores[factor] = harmonic_mean(base, mean(novel)) if novel else base
    return max(scores, key=lambda one: (scores[one], one == 1, -one)) if scores else None


def reported(
    names: Sequence[str], tasks: Sequence[str], found: Mapping[str, Record]
) -> Iterator[Experiment]:
    """The runs of the tables, task by task."""
    factors = {name: chosen(name, found) for name in names}
    for task in tasks:
        for seed in SEEDS:
            for name, factor in factors.items():
                yield with_factor(name, task, seed, factor)
            yield with_factor(SHIPPED, task, seed, None)
