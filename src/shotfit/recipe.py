"""Stages in order: what to train, for how long, and what follows it."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from shotfit.backbone import Backbone
from shotfit.config import Count, from_dict, override
from shotfit.data.loading import SupportSet
from shotfit.errors import UsageError, unknown_name
from shotfit.methods import get_method, list_methods
from shotfit.methods.base import Method
from shotfit.methods.linear import LinearClassifier, LinearConfig
from shotfit.methods.published import TaskFacts, TrainConfig
from shotfit.training.loop import TrainStep, total_iterations, train
from shotfit.training.stopping import AUTO, MAX_FRACTION, FirstStage, StoppingRule

IMAGENET_EPOCHS = 10

Observe = Callable[[Method, int, TrainStep], None]
"""Called after every update with the method, the number of the stage, and the step."""


@dataclass(frozen=True)
class Stage:
    """One stage: a method, and what differs from its published options and training."""

    method: str
    options: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Recipe:
    """One stage, or a first stage and the linear classifier.

    The two-stage budget is `iters_per_shot` (M) times the shots, `first_fraction` (alpha) of it for
    the first stage; None takes the first stage's own (0.6, for LoRA and prompts 0.3), and "auto"
    decides it from the support set (`stopping.AUTO`). With
    `budget="published"` a method alone trains for its published updates. As a first stage, a
    method published in epochs keeps alpha of those (paper, appendix on prompt learning), and one
    published in iterations gets alpha of the two-stage budget. With "shared" every method gets
    iterations of the one budget of 2SFS.
    """

    stages: tuple[Stage, ...]
    iters_per_shot: Count = 300
    first_fraction: float | Literal["auto"] | None = None
    budget: Literal["published", "shared"] = "published"


@dataclass(frozen=True)
class Overrides:
    """What a user changes in a recipe, by the names of options.

    `options` go to the first stage; keys that start with "linear." to the second stage, if there
    is one, and keys that start with "training." to the training of every stage.
    """

    recipe: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `Recipe` other than the stages: iters_per_shot, first_fraction, budget."""
    options: Mapping[str, Any] = field(default_factory=dict)

    def applied(self, recipe: Recipe) -> Recipe:
        """`recipe` with these changes.

        Raises:
            UsageError: for a key that is of no such form, an option that the training or the second
                stage does not have, or a field that a recipe does not have.
        """
        groups: dict[str, dict[str, Any]] = {"training": {}, "linear": {}, "": {}}
        for key, value in self.options.items():
            group, _, name = key.rpartition(".")
            if group not in groups:
                raise UsageError(
                    f"Options are NAME, training.NAME or linear.NAME, got {key!r}: the method's, "
                    "the training's of every stage, the second stage's."
                )
            groups[group][name] = _plain(value)
        # A stage that is not there does not look at its options.
        override(LinearConfig(), groups["linear"])
        override(TrainConfig(), groups["training"])
        stages = tuple(
            dataclasses.replace(
                stage,
                options={**stage.options, **groups["linear" if number else ""]},
                training={**stage.training, **groups["training"]},
            )
            for number, stage in enumerate(recipe.stages)
        )
        fields = {part.name: getattr(recipe, part.name) for part in dataclasses.fields(recipe)}
        return from_dict(Recipe, {**fields, **self.recipe, "stages": stages})


def _plain(value: Any) -> Any:
    """A number as a number and nothing as None: "4" and 4 must be the same run."""
    if not isinstance(value, str):
        return value
    if value.lower() == "none":
        return None
    try:
        return json.loads(value)
    except ValueError:
        return value


def two_stage(first: str = "layernorm", **options: Any) -> Recipe:
    """2SFS with any first stage; `options` are those of `Recipe`."""
    return Recipe((Stage(first), Stage("linear")), **options)


def one_stage(method: str, **options: Any) -> Recipe:
    """A method alone; `options` are those of `Recipe`."""
    return Recipe((Stage(method),), **options)


FORMS = {"tip_adapter_f": Stage("tip_adapter", {"finetune": True})}
"""Published names that are no method of their own but a form of one."""


def named_recipe(name: str, **options: Any) -> Recipe:
    """The recipe that a user means by one word.

    "2sfs" is the paper's (LayerNorm, then the classifier), "2sfs:lora" has another first stage,
    and a method's name, or that of one of `FORMS`, is that method alone. `options` are those of
    `Recipe`.

    Raises:
        UsageError: for an unknown name.
    """
    kind, _, first = name.partition(":")
    if kind.lower() == "2sfs":
        if first.replace("-", "_") in FORMS:
            stage = FORMS[first.replace("-", "_")]
            raise UsageError(f"{first} is a form of {stage.method}, which is no first stage.")
        get_method(first or "layernorm")
        return two_stage((first or "layernorm").replace("-", "_"), **options)
    key = name.replace("-", "_")
    if key in FORMS:
        return Recipe((FORMS[key],), **options)
    if first or key not in list_methods():
        raise unknown_name("method", name, ["2sfs", *list_methods(), *FORMS])
    return one_stage(key, **options)


def adapt(
    backbone: Backbone,
    support: SupportSet,
    recipe: Recipe,
    facts: TaskFacts,
    *,
    validation: SupportSet | None = None,
    generator: torch.Generator | None = None,
    observe: Observe | None = None,
) -> Method:
    """The method that the stages of `recipe` make of `backbone`, in evaluation mode.

    The backbone is changed and belongs to the method from then on. Test data has no way in.

    Raises:
        UsageError: for a recipe that makes no sense (see `plan`).
    """
    rule: StoppingRule | None = None
    share = 0.0
    if recipe.first_fraction == "auto":
        rule = AUTO()
        share = rule.fraction(_first_stage(recipe, facts, backbone, support))
        recipe = dataclasses.replace(recipe, first_fraction=share)
    method: Method | None = None
    for number in range(len(plan(recipe, facts))):
        # Planned anew for every stage: the first may end before its time and leave more to the
        # second.
        stage, config, trainings = plan(recipe, facts)[number]
        if method is None:
            made = get_method(stage.method)(backbone, config, support.split.template, generator)
            # A new method need not think of devices when it makes its tensors.
            method = made.to(backbone.device)
        else:
            method = LinearClassifier(method, config)
        method.setup(support)
        method.trained_names = tuple(support.classnames)
        for phase, training in enumerate(trainings):
            method.begin_phase(phase)
            # A rate that the user gave is meant as given.
            if "lr" not in stage.training:
                training = method.suited(training)
            for step in train(method, support, training):
                if observe is not None:
                    observe(method, number, step)
                if rule is not None and number == 0 and rule.stop(method, step):
                    share *= (step.iteration + 0.5) / step.total
                    recipe = dataclasses.replace(recipe, first_fraction=share)
                    break
        method.eval()
        with torch.no_grad():
            method.finish(support, validation)
    assert method is not None
    return method


Plan = tuple[Stage, Any, tuple[TrainConfig, ...]]


def plan(recipe: Recipe, facts: TaskFacts) -> tuple[Plan, ...]:
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
    config = override(method.published_config(facts), first.options)
    total = recipe.iters_per_shot * facts.shots
    trainings = method.training_for(facts, config)
    if first.method == "linear":
        raise UsageError("The linear classifier is a second stage; put a method before it.")
    if len(stages) == 1:
        if recipe.budget == "shared":
            trainings = _spread(trainings, total)
        return ((first, config, _overridden(trainings, first.training)),)
    second = stages[1]
    if second.method != "linear":
        raise UsageError("The second stage of a recipe is 'linear'.")
    if not method.first_stage:
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
    rest = TrainConfig(iterations=total - iterations)
    return (
        (first, config, _overridden(trainings, first.training)),
        (second, linear, _overridden((rest,), second.training)),
    )


def _first_stage(
    recipe: Recipe, facts: TaskFacts, backbone: Backbone, support: SupportSet
) -> FirstStage:
    """What a stopping rule is shown."""
    stage, config, trainings = plan(recipe, facts)[0]
    if len(recipe.stages) != 2:
        raise UsageError("first_fraction='auto' shares a budget between two stages; there is one.")
    if len(trainings) != 1:
        raise UsageError(
            f"{stage.method!r} trains in {len(trainings)} phases, which first_fraction='auto' "
            "cannot cut; give a number."
        )
    return FirstStage(stage.method, config, trainings[0], backbone, support)


def _spread(trainings: tuple[TrainConfig, ...], total: int) -> tuple[TrainConfig, ...]:
    """The phases with `total` iterations shared among them.

    Raises:
        UsageError: when a phase would be left without any.
    """
    if total < len(trainings):
        raise UsageError(
            f"The budget leaves {total} iterations for {len(trainings)} phase(s) of training: give "
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
    """The phases with the given fraction of their published updates, on ImageNet of ten epochs at
    most (paper, appendix on prompt learning)."""
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
