"""The paper's sweeps and its ablation, as lists of experiments.

Paper: Farina et al., CVPR 2025, section 5.3 (alpha, gain of the second stage) and appendix "Total
gradient steps allowed" (M), https://arxiv.org/abs/2503.11609. The paper sweeps no batch size and
no rank; the values here surround its own (32 and 2).
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shotfit.bench.contents import is_current, refuse_changed
from shotfit.data.sources import load_dataset
from shotfit.errors import UsageError, unknown_name
from shotfit.evaluation.metrics import evaluate
from shotfit.experiment import Experiment, run, task_of
from shotfit.methods.base import Method
from shotfit.records.gain import Gain, read_gain, write_gain
from shotfit.training.loop import TrainStep

Values = tuple[float, ...]

AXES: dict[str, tuple[str, Values]] = {
    "alpha": ("share of the first stage, α", (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)),
    "iters-per-shot": ("iterations per shot, M", (100, 300, 500)),
    "batch-size": ("batch size", (8, 16, 32, 64)),
    "rank": ("rank of LoRA", (1, 2, 4, 8, 16)),
}
"""What can be swept: its name in a figure, and its values."""


@dataclass(frozen=True)
class SweepRun:
    """One run of a sweep: the swept value and the experiment that has it."""

    value: float
    experiment: Experiment


def sweep_runs(
    axis: str, experiments: Sequence[Experiment], values: Sequence[float] | None = None
) -> list[SweepRun]:
    """Each experiment at every value, value by value.

    Raises:
        UsageError: for an unknown axis, or a value that it cannot have.
    """
    if axis not in AXES:
        raise unknown_name("sweep", axis, AXES)
    return [
        SweepRun(value, _set(axis, value, experiment))
        for value in values or AXES[axis][1]
        for experiment in experiments
    ]


def _set(axis: str, value: float, base: Experiment) -> Experiment:
    recipe = base.recipe
    if axis == "alpha":
        recipe = dataclasses.replace(recipe, first_fraction=float(value))
    elif axis == "iters-per-shot":
        recipe = dataclasses.replace(recipe, iters_per_shot=_whole(axis, value))
    elif axis == "batch-size":
        size = {"batch_size": _whole(axis, value)}
        stages = tuple(
            dataclasses.replace(stage, training={**stage.training, **size})
            for stage in recipe.stages
        )
        recipe = dataclasses.replace(recipe, stages=stages)
    else:
        first = recipe.stages[0]
        options = {**first.options, "rank": _whole(axis, value)}
        stages = (dataclasses.replace(first, options=options), *recipe.stages[1:])
        recipe = dataclasses.replace(recipe, stages=stages)
    return dataclasses.replace(base, recipe=recipe)


def _whole(axis: str, value: float) -> int:
    if value != int(value) or value < 1:
        raise UsageError(f"The values of {axis} are positive whole numbers, got {value}.")
    return int(value)


def second_stage_gain(experiment: Experiment, **options: Any) -> Gain:
    """Runs a two-stage experiment and measures it also where the first stage ends.

    The paper's ablation (figure 5): what would be lost by exiting there. One run tells both, since
    the first stage does not depend on the second. `options` are those of `experiment.run`, without
    `observe`.

    Raises:
        UsageError: for an experiment of one stage.
    """
    if len(experiment.recipe.stages) != 2:
        raise UsageError("The gain of the second stage needs a recipe of two stages.")
    root = options.get("root")
    dataset = options.pop("dataset", None) or load_dataset(
        experiment.source, root=root, **experiment.data
    )
    tests = task_of(experiment, dataset, root).tests
    last: dict[str, float] = {}

    def observe(method: Method, stage: int, step: TrainStep) -> None:
        if stage == 0 and step.iteration == step.total:
            last.update(evaluate(method, tests))

    record, _ = run(experiment, dataset=dataset, observe=observe, **options)
    return Gain(record, last)


def load_or_measure_gain(
    experiment: Experiment, folder: Path, *, overwrite: bool = False, **options: Any
) -> tuple[Gain, bool]:
    """The gain from `folder`, or run and kept there; and whether it had to be run.

    Raises:
        DataError: for a gain of other images than there are now, unless `overwrite`, which runs it
            again.
    """
    path = folder / f"{experiment.id}.json"
    if path.is_file():
        kept = read_gain(path)
        if is_current(experiment, kept.record.content, options.get("root"), options.get("dataset")):
            return kept, False
        refuse_changed([] if overwrite else [path])
    gain = second_stage_gain(experiment, **options)
    write_gain(path, gain)
    return gain, True
