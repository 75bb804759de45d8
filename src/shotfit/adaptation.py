"""A recipe carried out: stage after stage, from a backbone and a support set to a method."""

import dataclasses
from collections.abc import Callable, Iterator

import torch

from shotfit.backbone import Backbone
from shotfit.data.support_set import SupportSet
from shotfit.errors import Diverged, UsageError
from shotfit.methods import get_method
from shotfit.methods.base import Method
from shotfit.methods.linear import LinearClassifier
from shotfit.methods.published import TaskFacts
from shotfit.pace import Deadline
from shotfit.plan import PlannedStage, plan
from shotfit.recipe import Recipe
from shotfit.system.interrupts import Terminated
from shotfit.training.checkpoint import Checkpoint, Checkpoints, Place
from shotfit.training.finite import check_answers, check_trained
from shotfit.training.loop import Training, TrainStep
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
    checkpoints: Checkpoints | None = None,
) -> Method:
    """The method that the stages of `recipe` make of `backbone`, in evaluation mode.

    The backbone is changed and belongs to the method from then on. Test data has no way in. A
    `deadline` ends a stage before its last update when it says so. When it is `interrupted`, which
    is asked after every update, what is there is the method. `checkpoints` are written after the
    updates where they are due, and when it is interrupted; from the one that was found it goes on.

    Raises:
        UsageError: for a recipe that makes no sense (see `plan`).
        Diverged: when it leaves the finite numbers; a checkpoint is one from before.
        Terminated: after a checkpoint, when it is told to end.
    """
    facts = dataclasses.replace(facts, classifier_lr_scale=backbone.hints.classifier_lr_scale)
    found = None if checkpoints is None else checkpoints.begin()
    rule, share = _share(recipe, facts, backbone, support, found)
    if recipe.first_fraction == "auto":
        recipe = dataclasses.replace(recipe, first_fraction=share)
    inner: Method | None = None
    for number in range(len(plan(recipe, facts))):
        if deadline is not None:
            deadline.begin()
        # Planned anew for every stage: the first may end before its time and leave more to the
        # second.
        stage = _Stage(number, plan(recipe, facts)[number], support, found)
        method = stage.method(inner, backbone, generator)
        for step in _noted(stage.updates(method), checkpoints):
            if observe is not None:
                observe(method, number, step)
            stopped = interrupted is not None and interrupted()
            if checkpoints is not None and (stopped or checkpoints.due()):
                stage.write(checkpoints, method, share)
            if stopped:
                return _finished(method, support, validation)
            if rule is not None and number == 0 and rule.stop(method, step):
                share *= (step.iteration + 0.5) / step.total
                recipe = dataclasses.replace(recipe, first_fraction=share)
                break
            if deadline is not None and deadline.reached(number, step.iteration / step.total):
                break
        inner = method.eval() if stage.over else _finished(method, support, validation)
    assert inner is not None
    check_answers(inner, support)
    return inner


def _noted(updates: Iterator[TrainStep], checkpoints: Checkpoints | None) -> Iterator[TrainStep]:
    """The updates; where they diverge, the error says which state is kept."""
    try:
        yield from updates
    except Diverged as error:
        if checkpoints is None or checkpoints.kept is None:
            raise
        raise Diverged(
            f"{error} The state after {checkpoints.kept:,} updates of its round is kept in "
            f"{checkpoints.path}."
        ) from error


def _finished(method: Method, support: SupportSet, validation: SupportSet | None) -> Method:
    method.eval()
    check_trained(method, "the last update")
    with torch.no_grad():
        method.finish(support, validation)
    return method


class _Stage:
    """A stage carried out: its method, and its updates round after round.

    A checkpoint of this stage is gone on from; one of a later stage has what this one has learned.
    """

    def __init__(
        self, number: int, planned: PlannedStage, support: SupportSet, found: Checkpoint | None
    ) -> None:
        self.number = number
        self.planned = planned
        self.support = support
        self.over = found is not None and found.place.stage > number
        self._begun = found if found is not None and found.place.stage == number else None
        self._learned = found.first_stage if found is not None and self.over else {}
        self._round, self._stream = 0, ()
        self._training: Training | None = None

    def method(
        self, inner: Method | None, backbone: Backbone, generator: torch.Generator | None
    ) -> Method:
        """The method of this stage, over that of the stage before, set up to train."""
        stage, config, _ = self.planned
        if inner is not None:
            method = LinearClassifier(
                inner, config, None if self._begun is None else self._begun.features
            )
        else:
            template = self.support.split.template
            made = get_method(stage.method)(backbone, config, template, generator)
            # A new method need not think of devices when it makes its tensors.
            method = made.to(backbone.device)
        if self.over:
            method.restore(self._learned, self.support.classnames)
        else:
            method.setup(self.support)
        return method

    def updates(self, method: Method) -> Iterator[TrainStep]:
        """The updates that are left."""
        begun = self._begun
        for number, config in enumerate(() if self.over else self.planned.trainings):
            method.begin_round(number)
            if begun is not None and number < begun.place.round:
                continue
            state = None
            if begun is not None and number == begun.place.round:
                state = begun.state
                self.support.stream.setstate(begun.place.stream)
            self._round, self._stream = number, self.support.stream.getstate()
            self._training = Training(method, self.support, config, state)
            yield from self._training

    def write(self, checkpoints: Checkpoints, method: Method, share: float) -> None:
        """Writes a checkpoint between two updates.

        Raises:
            Terminated: afterwards, when it is told to end.
        """
        assert self._training is not None
        check_trained(method, "this update")
        place = Place(self.number, self._round, self._stream, share)
        checkpoints.write(method, place, self._training.state())
        if checkpoints.terminated():
            raise Terminated


def _share(
    recipe: Recipe,
    facts: TaskFacts,
    backbone: Backbone,
    support: SupportSet,
    found: Checkpoint | None,
) -> tuple[StoppingRule | None, float]:
    """The rule of "auto" and the share that it decides, or has decided before; 0 without one."""
    if recipe.first_fraction != "auto":
        return None, 0.0
    if found is not None:
        return None, found.place.fraction
    rule = AUTO()
    return rule, rule.fraction(_first_stage(recipe, facts, backbone, support))


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
