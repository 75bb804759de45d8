"""What a fit will do and how long that will take here, before it starts."""

import dataclasses
import math
import time
from pathlib import Path
from typing import NamedTuple

import torch

from shotfit.backbone import EMBEDDED, Backbone
from shotfit.data.checks import check_split
from shotfit.data.dataset import Dataset
from shotfit.data.image_files import is_photograph
from shotfit.data.prefetch import Loading
from shotfit.data.task import Task
from shotfit.errors import UsageError
from shotfit.experiment import (
    Experiment,
    pick_device,
    support_set,
    task_facts,
)
from shotfit.pace import Deadline, expected_seconds, measure_pace, strongest_within
from shotfit.presets import PRESETS, get_preset
from shotfit.recipe import Recipe, named_recipe

USUAL = "openai/clip-vit-base-patch16"
"""The model of the papers' tables."""


def chosen_recipe(
    method: str | Recipe | None,
    preset: str | None,
    minutes: float | None,
    device: torch.device,
) -> Recipe:
    """What a method, a preset or a time says is to be done; with `minutes` it is still open, and
    the published recipe stands for it.

    Raises:
        UsageError: for an unknown name, more than one of the three, or a time that is not one.
    """
    if sum(choice is not None for choice in (method, preset, minutes)) > 1:
        raise UsageError("A method, a preset or a number of minutes says what to do: give one.")
    if minutes is not None and not 0 < minutes < math.inf:
        raise UsageError(f"minutes must be a positive number, got {minutes}.")
    if preset is not None:
        return get_preset(preset).on(device)
    return method if isinstance(method, Recipe) else named_recipe(method or "2sfs")


def unsuited(backbone: str, dataset: Dataset) -> str | None:
    """What to say where photographs are to be learned with a model that has never seen one."""
    images = [example.image for example in dataset.train]
    photographs = sum(isinstance(image, Path) and is_photograph(image.name) for image in images)
    if backbone not in EMBEDDED or 2 * photographs <= len(images):
        return None
    return (
        f"{backbone}, the embedded model, has seen drawn icons only and knows nothing of "
        f"photographs. A CLIP that does: --backbone {USUAL} (`shotfit list-backbones` shows "
        "more, and which are here)."
    )


class TimedPlan(NamedTuple):
    """An experiment with a preset's recipe, its backbone, and how long it should take."""

    experiment: Experiment
    preset: str
    backbone: Backbone
    expected: tuple[float, ...]
    """Seconds of each stage, and of the assessment."""
    deadline: Deadline | None

    def __str__(self) -> str:
        expected = sum(self.expected)
        return f"{self.preset} ({PRESETS[self.preset].summary}): about {duration(expected)}"


def timed_plan(
    experiment: Experiment,
    task: Task,
    *,
    preset: str | None = None,
    minutes: float | None = None,
    started: float | None = None,
    device: str | None = None,
    loading: Loading | None = None,
    assessed: bool = False,
) -> TimedPlan:
    """How long a preset will take on a task here, or the strongest that ends in so many `minutes`
    from `started`, a time of `time.monotonic` (now). Loads the backbone and times a few steps.

    Being `assessed` by its shots counts as a part of the fit.

    The experiment comes back with that preset's recipe; without `minutes`, with its own, which may
    be the preset's with changes.

    Raises:
        UsageError: when no preset is quick enough.
    """
    started = time.monotonic() if started is None else started
    check_split(task.support)
    backbone = Backbone.from_pretrained(experiment.backbone, experiment.revision)
    backbone = backbone.to(pick_device(device))
    facts = task_facts(task)
    with support_set(task.support, backbone, experiment.seed, loading) as support:
        pace = measure_pace(backbone, support)
    if minutes is None:
        assert preset is not None
        expected = expected_seconds(experiment.recipe, facts, pace, assessed=assessed)
        return TimedPlan(experiment, preset, backbone, expected, None)
    ends = started + 60 * minutes
    left = ends - time.monotonic()
    choice = strongest_within(left, backbone, facts, pace, assessed=assessed)
    chosen = dataclasses.replace(experiment, recipe=choice.recipe)
    deadline = Deadline(ends, choice.seconds)
    return TimedPlan(chosen, choice.preset.name, backbone, choice.seconds, deadline)


def duration(seconds: float) -> str:
    """Seconds as people say them: "45 s", "12 min", "3.5 h"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
