"""Every method with the same tuning: one factor on its rates, chosen on three tasks.

    python benchmarks/tuned.py                                  # what is missing; again, it goes on
    python benchmarks/tuned.py --part 1/2 & python benchmarks/tuned.py --part 2/2    # two processes
    python benchmarks/tuned.py --write docs/comparison.md       # the tables of the records

Base to novel, four shots, one budget of 100 iterations a shot (M), bf16. First every method runs on
the three tuning tasks with a quarter of its published rates, with them, and with four times them
(seed 1); the factor with the best harmonic mean there is its own, base accuracy where it scores
base classes alone. Then it runs so on the other tasks and on shifted ones, three seeds each. A
two-stage recipe has one factor for both stages, over published rates: what the embedded model asks
for is left out, but for one row as it is shipped. CLIP-LoRA is LoRA under one budget.
"""

import argparse
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import torch
from page import put

from shotfit.averages import harmonic_mean, mean
from shotfit.bench.grid import find_datasets
from shotfit.bench.runner import run_all
from shotfit.data.sources import load_dataset
from shotfit.data.sources.demo import list_tasks
from shotfit.data.task import make_task
from shotfit.errors import UsageError
from shotfit.experiment import Experiment, task_facts
from shotfit.methods import published_names
from shotfit.methods.published import TaskFacts
from shotfit.plan import plan
from shotfit.recipe import Overrides, Recipe, named_recipe
from shotfit.records import Record, load_records
from shotfit.report.labels import method_label
from shotfit.report.paired import compare_report
from shotfit.report.protocol import Run, method_name, run_of
from shotfit.report.render import render
from shotfit.report.suite import rows_of, tables_of_runs

TUNING = ("activities", "food", "travel")
"""Where factors are chosen; the shifted suite has one pair of these, which is left out too."""
FACTORS = (0.25, 1.0, 4.0)
SEEDS = (1, 2, 3)
SHIPPED = "2sfs"
"""The row that is also shown with the rates that the embedded model asks for."""
SHOTS, ITERS_PER_SHOT = 4, 100
SAME = {"clip_lora"}
"""Equal to another method under one budget."""
IDEAS = ("2sfs anchor=8", "2sfs linear.leash=10", "2sfs linear.leash=100")
"""Of our own: CLIPFit's anchor in LayerNorm tuning, at its published weight, and CLAP's leash on
the second stage's rows. CLAP's rows keep the length of text embeddings, whose square is some 100
in CLIP; those of the second stage have length one."""
DEAR = {"cocoop", "plot_pp"}
"""Not first stages here: an iteration costs four to six times one of LayerNorm tuning."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Parses the command line; runs what is missing, or writes the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=Path("results/tuned"))
    parser.add_argument("--part", default="1/1", help="of the runs that are missing")
    parser.add_argument("--tasks", nargs="+", help="only these [the other tasks and the shifted]")
    parser.add_argument("--methods", nargs="+", help="only these [all]")
    parser.add_argument("--write", type=Path, help="put what was found into this page")
    options = parser.parse_args(arguments)
    names = options.methods or recipes()
    if options.write is not None:
        put(options.write, "tuned", tables(options.results, names))
        return
    part, parts = map(int, options.part.split("/"))
    if parts > 1:
        # Processes of several threads each would wait for one another's.
        torch.set_num_threads(1)
    wanted = [one for name in names for one in tuning(name)]
    run_missing(wanted[part - 1 :: parts], options.results)
    wait_for = {one.id for one in wanted}
    found = {record.id: record for record in load_records(options.results)}
    if not wait_for <= found.keys():
        print("The other part has not ended its tuning: run again when it has.", flush=True)
        return
    wanted = list(reported(names, options.tasks or reporting(), found))
    run_missing(wanted[part - 1 :: parts], options.results)


def recipes() -> list[str]:
    """Every method alone, and the second stage on first stages that it can follow."""
    alone = [name for name in published_names() if name not in SAME and name != "linear"]
    firsts = [name for name in published_names() if can_be_first(name)]
    return [*alone, *("2sfs:" + name for name in firsts if name not in SAME), *IDEAS]


def untuned(name: str) -> Recipe:
    """The recipe that a row's name and options mean, at published rates."""
    word, *options = name.split()
    recipe = named_recipe(word, iters_per_shot=ITERS_PER_SHOT, budget="shared")
    return Overrides(options=dict(one.split("=") for one in options)).applied(recipe)


def can_be_first(name: str) -> bool:
    """Whether a second stage can follow a method, in the time that there is."""
    if published_names()[name].options or name in DEAR:
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
def with_factor(name: str, task: str, seed: int, factor: float | None) -> Experiment:
    """A run with published rates times a factor; without one, as it is shipped."""
    recipe = untuned(name)
    facts = task_facts(make_task(load_dataset("demo", name=task), "base_to_novel", SHOTS, seed))
    stages = []
    for planned in plan(recipe, facts):
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


def run_missing(experiments: Sequence[Experiment], folder: Path) -> None:
    """Runs them one after another; a line for each."""
    for step in run_all(experiments, folder):
        if step.record is not None:
            told = {key: round(value, 1) for key, value in step.record.metrics.items()}
            print(step.record.dataset, step.record.id, step.record.status, told, flush=True)


def tables(folder: Path, names: Sequence[str]) -> str:
    """Markdown: what was chosen, averages, and differences from 2SFS, unshifted and shifted."""
    found = {record.id: record for record in load_records(folder) if record.status == "done"}
    begun = [name for name in names if has_begun(name, found)]
    factors = {name: chosen(name, found) for name in begun}
    told = [
        f"{row_label(name)} {factor:g}" for name, factor in factors.items() if factor is not None
    ]
    parts = ["Factors chosen on " + ", ".join(TUNING) + ": " + ", ".join(told) + "."]
    if missing := [row_label(name) for name in names if name not in begun]:
        parts.append("Not run yet: " + ", ".join(missing) + ".")
    for title, shifted in (("Equally tuned", False), ("Equally tuned, shifted", True)):
        tasks = [task for task in reporting() if ("@" in task) == shifted]
        whole = [task for task in tasks if is_whole(task, factors, found)]
        if whole:
            parts += section(title, whole, factors, found)
    return "\n\n".join(parts)


def has_begun(name: str, found: Mapping[str, Record]) -> bool:
    """Whether a row has a run of its own factor on any task that is reported."""
    factor = chosen(name, found)
    if factor is None and trains(name):
        return False
    return any(
        with_factor(name, task, seed, factor).id in found for task in reporting() for seed in SEEDS
    )


def is_whole(task: str, factors: Mapping[str, float | None], found: Mapping[str, Record]) -> bool:
    """Whether a task has every run of the rows that have begun."""
    wanted = [with_factor(name, task, seed, factors[name]) for name in factors for seed in SEEDS]
    shipped = [with_factor(SHIPPED, task, seed, None) for seed in SEEDS]
    return all(one.id in found for one in [*wanted, *shipped])


def section(
    title: str,
    tasks: Sequence[str],
    factors: Mapping[str, float | None],
    found: Mapping[str, Record],
) -> list[str]:
    """The averages over some tasks, and every row less 2SFS, tuned as they are."""
    runs = [
        as_tuned(found[with_factor(name, task, seed, factor).id])
        for task in tasks
        for seed in SEEDS
        for name, factor in factors.items()
    ]
    shipped = [found[with_factor(SHIPPED, task, seed, None).id] for task in tasks for seed in SEEDS]
    runs += [as_tuned(record, ("rates", "shipped")) for record in shipped]
    rows = list(dict.fromkeys([run_name(SHIPPED), *rows_of(runs)]))
    averages = tables_of_runs("tuned", title, runs, "")
    compared = compare_report(runs, rows)
    first = [dataclasses.replace(one, panels=one.panels[:1]) for one in (averages, compared)]
    heading = f"### {title}: {len(tasks)} tasks ({', '.join(tasks)}), three seeds"
    return [heading, *(render(one, "markdown").strip() for one in first)]


def as_tuned(record: Record, *told: tuple[str, str]) -> Run:
    """A run whose row does not tell its rate, which is that of its method's factor."""
    run = run_of(record)
    variant = [(key, value) for key, value in run.variant if key.rpartition(".")[2] != "lr"]
    return dataclasses.replace(run, variant=(*variant, *told))


def run_name(name: str) -> str:
    """The name of a recipe's method in tables."""
    return method_name(dataclasses.asdict(untuned(name)))


def row_label(name: str) -> str:
    """What people read of a row: its method, and options where there are some."""
    return " ".join([method_label(run_name(name)), *name.split()[1:]])


if __name__ == "__main__":
    main()
