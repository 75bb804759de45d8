"""How long a plan will take here, and the end of a fit that was given so many minutes.

A few images are encoded and a few updates made on a copy of the backbone; what that takes is scaled
to the plan. A fit that turns out slower than foreseen is cut: the first stage ends in time for the
second, and the second on time.
"""

import copy
import dataclasses
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from shotfit.backbone import Backbone
from shotfit.data.support_set import SupportSet
from shotfit.errors import UsageError
from shotfit.evaluation.cross_fitting import UPDATE_COST, VIEWS
from shotfit.evaluation.vocabulary import VOCABULARY
from shotfit.methods import get_method
from shotfit.methods.base import Method
from shotfit.methods.linear import LinearClassifier, LinearConfig
from shotfit.methods.published import TaskFacts, TrainConfig
from shotfit.plan import plan
from shotfit.presets import PRESETS, Preset
from shotfit.recipe import Recipe
from shotfit.training.execution import quick_precision
from shotfit.training.loop import total_iterations, train

Clock = Callable[[], float]
"""Tells seconds."""
FEW, MORE = 8, 32
"""Images of a measurement; more of them where those took no more than `SOON` seconds."""
SOON = 0.5
MARGIN = 0.85
"""The share of the time given that a plan may be expected to take."""


@dataclass(frozen=True)
class Pace:
    """Seconds on this machine for a task: what plans of `PRESETS` consist of."""

    reading: float
    """Opening an image for the first time."""
    image: float
    """Encoding an augmented image without gradient."""
    classes: float
    """Encoding all class names without gradient."""
    slowdown: Mapping[str, float]
    """An update of the first stage by precision, over encoding its images and classes once."""
    row: float
    """An update of the classifier on features that are there."""

    def update(self, images: int, precision: str) -> float:
        """Seconds of an update of the first stage with so many images."""
        return self.slowdown[precision] * (images * self.image + self.classes)


def measure_pace(backbone: Backbone, support: SupportSet, clock: Clock = time.perf_counter) -> Pace:
    """Times a few images, updates and class names; the backbone and the run's stream stay."""
    backbone = copy.deepcopy(backbone)
    method = get_method("layernorm")(backbone, None, support.split.template)
    few = _part(support, FEW)
    reading, image = _encoding(method, few, clock)
    if len(few) * image < SOON:
        few = _part(support, MORE)
        _, image = _encoding(method, few, clock)
    _, classes = _first_and_median(lambda: method.encode_classes(few.classnames), clock)
    updates = {}
    for precision in dict.fromkeys(("fp32", quick_precision(backbone.device))):
        config = TrainConfig(iterations=4, batch_size=len(few), precision=precision)  # type: ignore[arg-type]
        updates[precision] = _update_seconds(method, few, config, clock)
    classifier = LinearClassifier(method, LinearConfig(views=1))
    classifier.setup(few)
    short = TrainConfig(iterations=8, batch_size=len(few))
    row = _update_seconds(classifier, few, short, clock)
    once = len(few) * image + classes
    slowdown = {precision: seconds / once for precision, seconds in updates.items()}
    return Pace(max(0.0, reading - image), image, classes, slowdown, row)


def expected_seconds(
    recipe: Recipe, facts: TaskFacts, pace: Pace, *, assessed: bool = False
) -> tuple[float, ...]:
    """Seconds of each stage of a preset's recipe, reading the images counted into the first, and of
    two stages, or of GDA, that are `assessed` also those of that.

    Raises:
        UsageError: for a method that no preset has, whose cost is not known.
    """
    seconds = []
    updates = 0
    for stage, config, trainings in plan(recipe, facts):
        batch = min(32, facts.images)
        updates = sum(total_iterations(training, facts.images) for training in trainings)
        precision = trainings[0].precision if trainings else "fp32"
        if stage.method == "gda":
            passes = config.passes_over(facts.images, facts.classes)
            took = passes * facts.images * pace.image + pace.classes
        elif stage.method == "layernorm":
            took = updates * pace.update(batch, precision)
        elif stage.method == "linear" and config.views:
            took = config.views * facts.images * pace.image + updates * pace.row
        elif stage.method == "linear":
            quicker = pace.slowdown[precision] / pace.slowdown["fp32"]
            took = updates * (batch * pace.image * quicker + pace.row)
        else:
            raise UsageError(f"How long {stage.method!r} takes cannot be told beforehand.")
        seconds.append(took)
    seconds[0] += facts.images * pace.reading
    if assessed and recipe.stages[-1].method == "gda":
        # Its views are there; the words of the vocabulary are not.
        seconds.append(pace.classes * len(VOCABULARY) / facts.classes)
    elif assessed and len(seconds) == 2:
        encoding = (VIEWS + 1) * facts.images * pace.image
        seconds.append(encoding + UPDATE_COST * updates * pace.row)
    return tuple(seconds)


class Choice(NamedTuple):
    """A preset and the seconds that its stages, and an assessment, are expected to take."""

    preset: Preset
    recipe: Recipe
    seconds: tuple[float, ...]


def strongest_within(
    seconds: float, backbone: Backbone, facts: TaskFacts, pace: Pace, *, assessed: bool = False
) -> Choice:
    """The strongest preset that is expected to end in so many seconds, with a margin.

    Raises:
        UsageError: when even the quickest would take longer.
    """
    choices = []
    for preset in PRESETS.values():
        recipe = preset.on(backbone.device)
        took = expected_seconds(recipe, facts, pace, assessed=assessed)
        choices.append(Choice(preset, recipe, took))
    fitting = [choice for choice in choices if sum(choice.seconds) <= MARGIN * seconds]
    if fitting:
        return fitting[-1]
    quickest = choices[0]
    raise UsageError(
        f"{seconds:.0f} s are left and even the quickest plan ({quickest.preset.name}) takes "
        f"{sum(quickest.seconds):.0f} s here: give more minutes."
    )


class Deadline:
    """The end of a fit, and what its stages were expected to take before.

    A stage that is behind its time is taken as a sign that those after it will be, too.
    """

    def __init__(
        self,
        ends: float,
        expected: Sequence[float],
        clock: Clock = time.monotonic,
    ) -> None:
        """`ends` is a time of `clock`, `expected` the seconds of each stage."""
        self.ends = ends
        self.expected = tuple(expected)
        self.clock = clock
        self.began = clock()

    def begin(self) -> None:
        """Called at the start of every stage."""
        self.began = self.clock()

    def reached(self, stage: int, share: float) -> bool:
        """Whether a stage of which a share is done must end now."""
        now = self.clock()
        behind = (now - self.began) / max(1e-9, self.expected[stage] * share)
        return now + max(1.0, behind) * sum(self.expected[stage + 1 :]) >= self.ends


def _part(support: SupportSet, images: int) -> SupportSet:
    split = dataclasses.replace(support.split, examples=support.split.examples[:images])
    return support.part(split, random.Random("pace"))


def _encoding(method: Method, few: SupportSet, clock: Clock) -> tuple[float, float]:
    """Seconds of an image when it is seen first and when it has been read."""
    first, later = _first_and_median(
        lambda: method.encode_pass(few.augmented_once(crop_scale=method.crops)), clock
    )
    return first / len(few), later / len(few)


def _first_and_median(work: Callable[[], object], clock: Clock) -> tuple[float, float]:
    """Seconds of the first time, and the median of three others."""
    seconds = []
    for _ in range(4):
        started = clock()
        with torch.no_grad():
            work()
        seconds.append(clock() - started)
    return seconds[0], statistics.median(seconds[1:])


def _update_seconds(method: Method, few: SupportSet, config: TrainConfig, clock: Clock) -> float:
    """The median update, the first left out."""
    times = [clock() for _ in train(method, few, config)]
    return statistics.median(b - a for a, b in zip(times, times[1:], strict=False))
