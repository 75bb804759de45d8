"""The paper's sweeps and its ablation, as lists of experiments.

Paper: Farina et al., CVPR 2025, section 5.3 (alpha, gain of the second stage) and appendix "Total
gradient steps allowed" (M), https://arxiv.org/abs/2503.11609. The paper sweeps no batch size and
no rank; the values here surround its own (32 and 2).
"""

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shotfit.bench.contents import is_current, refuse_changed
from shotfit.data.sources import load_dataset
from shotfit.errors import UsageError, unknown_name
from shotfit.evaluation.metrics import evaluate
from shotfit.experiment import Experiment, run, task_of
from shotfit.methods import get_method
from shotfit.methods.base import Method
from shotfit.methods.linear import LinearConfig
from shotfit.methods.published import TrainConfig
from shotfit.recipe import Overrides
from shotfit.records.gain import Gain, read_gain, write_gain
from shotfit.training.loop import TrainStep

Value = float | str
Point = tuple[Value, ...]
"""A value of every option that is swept, in their order."""

AXES: dict[str, tuple[str, tuple[float, ...]]] = {
    "alpha": ("share of the first stage, α", (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)),
    "iters-per-shot": ("iterations per shot, M", (100, 300, 500)),
    "batch-size": ("batch size", (8, 16, 32, 64)),
    "rank": ("rank of LoRA", (1, 2, 4, 8, 16)),
}
"""What has a name of its own: how a figure calls it, and the values that surround the paper's. Any
option, as `shotfit bench -o` has it, is swept over values that are given."""


@dataclass(frozen=True)
class SweepRun:
    """One run of a sweep: the swept values and the experiment that has them."""

    point: Point
    experiment: Experiment


def sweep_runs(
    axes: Sequence[str],
    experiments: Sequence[Experiment],
    values: Sequence[Sequence[Value] | None] = (),
) -> list[SweepRun]:
    """Each experiment at every combination of values, one of every axis, value by value.

    `values` are in the order of the axes; None, or nothing, takes those of `AXES`.

    Raises:
        UsageError: for an unknown axis, one that is given twice, or a value that it cannot have.
    """
    if len(set(axes)) < len(axes):
        raise UsageError(f"{axes[0]} is given twice: sweep two different options.")
    own = _options(experiments[0])
    for axis in axes:
        if axis not in (*AXES, *own):
            raise unknown_name("sweep", axis, [*AXES, *own])
    chosen = [
        _values(axis, given) for axis, given in itertools.zip_longest(axes, values[: len(axes)])
    ]
    runs = []
    for point in itertools.product(*chosen):
        for experiment in experiments:
            changed = experiment
            for axis, value in zip(axes, point, strict=True):
                changed = _set(axis, value, changed)
            runs.append(SweepRun(point, changed))
    return runs


def _options(experiment: Experiment) -> list[str]:
    """The options of an experiment's recipe, as `Overrides` has them."""
    stages = experiment.recipe.stages
    own = [part.name for part in dataclasses.fields(get_method(stages[0].method).Config)]
    training = ["training." + part.name for part in dataclasses.fields(TrainConfig)]
    linear = [] if len(stages) == 1 else dataclasses.fields(LinearConfig)
    return [*own, *training, *("linear." + part.name for part in linear)]


def _values(axis: str, given: Sequence[Value] | None) -> Sequence[Value]:
    if given:
        return given
    if axis not in AXES:
        raise UsageError(f"Give the values of {axis}: --values 1e-4 2e-4, for instance.")
    return AXES[axis][1]


def _set(axis: str, value: Value, base: Experiment) -> Experiment:
    if axis == "alpha":
        changes = Overrides({"first_fraction": _number(axis, value)})
    elif axis == "iters-per-shot":
        changes = Overrides({"iters_per_shot": _whole(axis, value)})
    elif axis == "batch-size":
        changes = Overrides(options={"training.batch_size": _whole(axis, value)})
    elif axis == "rank":
        changes = Overrides(options={"rank": _whole(axis, value)})
    else:
        whole = isinstance(value, float) and value == int(value)
        changes = Overrides(options={axis: int(value) if whole else value})
    return dataclasses.replace(base, recipe=changes.applied(base.recipe))


def _number(axis: str, value: Value) -> float:
    if isinstance(value, str):
        raise UsageError(f"The values of {axis} are numbers, got {value!r}.")
    return float(value)


def _whole(axis: str, value: Value) -> int:
    value = _number(axis, value)
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
