"""What will be trained and for how long: a recipe with all that its papers leave to the task."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

from shotfit.config import override
from shotfit.errors import UsageError
from shotfit.methods import get_method
from shotfit.methods.linear import LinearClassifier, LinearConfig
from shotfit.methods.published import TaskFacts, TrainConfig
from shotfit.recipe import Recipe, Stage
from shotfit.training.loop import total_iterations
from shotfit.training.stopping import MAX_FRACTION

IMAGENET_EPOCHS = 10


class PlannedStage(NamedTuple):
    """A stage with its complete config, and its training round by round."""

    stage: Stage
    config: Any
    trainings: tuple[TrainConfig, ...]


def plan(recipe: Recipe, facts: TaskFacts) -> tuple[PlannedStage, ...]:
    """Every stage with its complete config and training, before anything is loaded.

    Raises:
        UsageError: for an unknown method or option, a second stage over a method that trains
            nothing shared, or a fraction outside (0, 1).

    With the fraction "auto" it is the plan of the longest first stage that may be chosen.
    """
    stages = list(recipe.stages)
    if not 1 <= len(stages) <= 2:
        raise UsageError(f"A recipe has one or two stages, got {len(stages)}.")
    first = stages[0]
    method = get_method(first.method)
    config = method.published_config(facts)
    _check_owner(config, first)
    config = override(config, first.options)
    total = recipe.iters_per_shot * facts.shots
    trainings = method.training_for(facts, config)
    if first.method == "linear":
        raise UsageError("The linear classifier is a second stage; put a method before it.")
    if len(stages) == 1:
        if recipe.budget == "shared":
            trainings = _spread(trainings, total)
        return (PlannedStage(first, config, _overridden(trainings, first.training)),)
    second = stages[1]
    if second.method != "linear":
        raise UsageError("The second stage of a recipe is 'linear'.")
    if method.first_fraction is None:
        raise UsageError(
            f"{first.method!r} trains nothing that classes share, so it cannot be a first stage."
        )
    fraction = method.first_fraction if recipe.first_fraction is None else recipe.first_fraction
    if fraction == "auto":
        fraction = MAX_FRACTION
    if not 0 < fraction < 1:
        raise UsageError(f"first_fraction must lie between 0 and 1, got {fraction}.")
    iterations = int(total * fraction)
    if recipe.budget == "shared" or all(t.epochs is None for t in trainings):
        trainings = _spread(trainings, iterations)
    else:
        trainings = _shortened(trainings, facts, fraction)
    linear = override(LinearConfig(), second.options)
    rest = _spread(LinearClassifier.published_training(facts), total - iterations)
    return (
        PlannedStage(first, config, _overridden(trainings, first.training)),
        PlannedStage(second, linear, _overridden(rest, second.training)),
    )


def _check_owner(config: Any, stage: Stage) -> None:
    """A learning rate given as the method's own belongs to the training."""
    own = {field.name for field in dataclasses.fields(config)}
    trainings = {field.name for field in dataclasses.fields(TrainConfig)}
    for key in stage.options.keys() & trainings - own:
        raise UsageError(
            f"{key} is an option of the training, not of {stage.method}: training.{key}."
        )


def _spread(trainings: tuple[TrainConfig, ...], total: int) -> tuple[TrainConfig, ...]:
    """The rounds with `total` iterations shared among them.

    Raises:
        UsageError: when a round would be left without any.
    """
    if total < len(trainings):
        raise UsageError(
            f"The budget leaves {total} iterations for {len(trainings)} round(s) of training: give "
            "more iterations per shot (M), more shots, or another share (alpha)."
        )
    shares = [total // len(trainings) + (n < total % len(trainings)) for n in range(len(trainings))]
    return tuple(
        dataclasses.replace(training, iterations=share, epochs=None)
        for training, share in zip(trainings, shares, strict=True)
    )


def _shortened(
    trainings: tuple[TrainConfig, ...], facts: TaskFacts, fraction: float
) -> tuple[TrainConfig, ...]:
    """The rounds with the given fraction of their published updates, of at most ten epochs on
    ImageNet (paper, appendix on prompt learning)."""
    capped = trainings
    if facts.benchmark == "imagenet":
        capped = tuple(
            dataclasses.replace(t, epochs=min(t.epochs, IMAGENET_EPOCHS)) if t.epochs else t
            for t in trainings
        )
    return tuple(
        dataclasses.replace(
            training,
            iterations=max(1, int(total_iterations(training, facts.images) * fraction)),
            epochs=None,
        )
        for training in capped
    )


def _overridden(
    trainings: tuple[TrainConfig, ...], changes: Mapping[str, Any]
) -> tuple[TrainConfig, ...]:
    if "epochs" in changes or "iterations" in changes:
        cleared = {"epochs": None, "iterations": None, **changes}
        return tuple(override(training, cleared) for training in trainings)
    return tuple(override(training, changes) for training in trainings)
