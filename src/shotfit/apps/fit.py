"""What `shotfit fit` does: an experiment is run, and the classifier saved with its record."""

from pathlib import Path
from typing import Any

from shotfit.adaptation import Observe
from shotfit.classifier import FewShotClassifier
from shotfit.config import to_dict
from shotfit.data.prefetch import Loading
from shotfit.data.sources import load_dataset
from shotfit.experiment import Experiment, run
from shotfit.methods.base import Method
from shotfit.observers.profiling import Profile
from shotfit.observers.progress import fit_progress
from shotfit.saving import check_target
from shotfit.training.execution import determinism
from shotfit.training.loop import TrainStep


def fit_and_save(
    experiment: Experiment,
    out: Path,
    *,
    loading: Loading | None = None,
    deterministic: bool = False,
    device: str | None,
    root: str | None,
    quiet: bool,
    profile: bool = False,
) -> tuple[dict[str, Any], Path, Profile | None]:
    """Fits, evaluates where there are test images, and saves; the record, the folder and, where
    it was asked for, the profile."""
    check_target(out)
    dataset = load_dataset(experiment.source, root=root, **experiment.data)
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
            observe=observe,
            device=device,
            loading=loading,
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
