"""A recipe carried out: stage after stage, from a backbone and a support set to a method."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import torch

from shotfit.backbone import Backbone
from shotfit.data.support_set import SupportSet
from shotfit.errors import UsageError
from shotfit.methods import get_method
from shotfit.methods.base import Method
from shotfit.methods.linear import LinearClassifier
from shotfit.methods.published import TaskFacts, TrainConfig
from shotfit.pace import Deadline
from shotfit.plan import plan
from shotfit.recipe import Recipe
from shotfit.training.loop import TrainStep, train
from shotfit.training.stopping import AUTO, FirstStage, StoppingRule

Observe = Callable[[Method, int, TrainStep], None]
"""Called after every update with the method, the number of the stage, and the step."""


def adapt(
    backbone: Backbone,
    support: SupportSet,
    recipe: Recipe,
    facts: TaskFacts,
    *,
    validation: SupportSet | None = None,
    generator: torch.Generator | None = None,
    observe: Observe | None = None,
    interrupted: Callable[[], bool] | None = None,
    deadline: Deadline | None = None,
) -> Method:
    """The method that the stages of `recipe` make of `backbone`, in evaluation mode.

    The backbone is changed and belongs to the method from then on. Test data has no way in. A
    `deadline` ends a stage before its last update when it says so. When it is `interrupted`, which
    is asked after every update, what is there is the method.

    Raises:
        UsageError: for a recipe that makes no sense (see `plan`).
    """
    facts = dataclasses.replace(facts, classifier_lr_scale=backbone.hints.classifier_lr_scale)
    rule: StoppingRule | None = None
    share = 0.0
    if recipe.first_fraction == "auto":
        rule = AUTO()
        share = rule.fraction(_first_stage(recipe, facts, backbone, support))
        recipe = dataclasses.replace(recipe, first_fraction=share)
    method: Method | None = None
    stopped = False
    for number in range(len(plan(recipe, facts))):
        if deadline is not None:
            deadline.begin()
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
        for step in _updates(method, support, trainings):
            if observe is not None:
                observe(method, number, step)
            stopped = interrupted is not None and interrupted()
            if stopped:
                break
            if rule is not None and number == 0 and rule.stop(method, step):
                share *= (step.iteration + 0.5) / step.total
                recipe = dataclasses.replace(recipe, first_fraction=share)
                break
            if deadline is not None and deadline.reached(number, step.iteration / step.total):
                break
        method.eval()
        with torch.no_grad():
            method.finish(support, validation)
        if stopped:
            break
    assert method is not None
    return method


def _updates(
    method: Method, support: SupportSet, trainings: Sequence[TrainConfig]
) -> Iterator[TrainStep]:
    """The updates of a stage, round after round."""
    for number, training in enumerate(trainings):
        method.begin_round(number)
        yield from train(method, support, training)


def _first_stage(
    recipe: Recipe, facts: TaskFacts, backbone: Backbone, support: SupportSet
) -> FirstStage:
    """What a stopping rule is shown."""
    stage, config, trainings = plan(recipe, facts)[0]
    if len(recipe.stages) != 2:
        raise UsageError("first_fraction='auto' shares a budget between two stages; there is one.")
    if len(trainings) != 1:
        raise UsageError(
            f"{stage.method!r} trains in {len(trainings)} rounds, which first_fraction='auto' "
            "cannot cut; give a number."
        )
    return FirstStage(stage.method, config, trainings[0], backbone, support)
