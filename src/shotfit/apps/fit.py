"""What `shotfit fit` does: an experiment is run, and the classifier saved with its record."""

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shotfit.adaptation import Observe
from shotfit.classifier import FewShotClassifier
from shotfit.config import to_dict
from shotfit.data.prefetch import Loading
from shotfit.data.sources import load_dataset
from shotfit.experiment import Experiment, run, task_of
from shotfit.methods.base import Method
from shotfit.observers.profiling import Profile
from shotfit.observers.progress import fit_progress
from shotfit.saving import check_target
from shotfit.timed_plan import timed_plan
from shotfit.training.execution import determinism
from shotfit.training.loop import TrainStep


@dataclass
class Timing:
    """What was asked of a plan; `preset` and `expected` seconds are told once it has been timed."""

    preset: str | None
    minutes: float | None
    started: float
    expected: float = math.nan


def fit_and_save(
    experiment: Experiment,
    out: Path,
    *,
    timing: Timing | None = None,
    loading: Loading | None = None,
    deterministic: bool = False,
    device: str | None,
    root: str | None,
    quiet: bool,
    profile: bool = False,
) -> tuple[dict[str, Any], Path, Profile | None]:
    """Fits, evaluates where there are test images, and saves; the record, the folder and, where
    it was asked for, the profile. With `timing` the plan is timed and printed before it starts."""
    check_target(out)
    dataset = load_dataset(experiment.source, root=root, **experiment.data)
    backbone = deadline = None
    if timing is not None:
        planned = timed_plan(
            experiment,
            task_of(experiment, dataset, root),
            preset=timing.preset,
            minutes=timing.minutes,
            started=timing.started,
            device=device,
            loading=loading,
        )
        timing.preset, timing.expected = planned.preset, sum(planned.expected)
        experiment, backbone, deadline = planned.experiment, planned.backbone, planned.deadline
        if not quiet:
            print(f"Plan: {planned}", file=sys.stderr, flush=True)
    stages = [stage.method for stage in experiment.recipe.stages]
    recording = Profile(stages) if profile else None
    with (
        determinism(deterministic),
        fit_progress(stages, quiet=quiet) as progress,
    ):
        observe = _both(progress, recording)
        record, method = run(
            experiment,
            dataset=dataset,
            root=root,
            backbone=backbone,
            observe=observe,
            device=device,
            loading=loading,
            deadline=deadline,
        )
    if recording is not None:
        recording.finish()
    classifier = FewShotClassifier(device=device).take(method, record)
    return to_dict(record), classifier.save_pretrained(out), recording


def _both(progress: Observe | None, recording: Profile | None) -> Observe | None:
    if recording is None:
        return progress

    def observe(method: Method, stage: int, step: TrainStep) -> None:
        recording(method, stage, step)
        if progress is not None:
            progress(method, stage, step)

    return observe
