"""What `shotfit fit` does with its options: an experiment, run, and saved with its record."""

import json
from pathlib import Path
from typing import Any

import yaml

from shotfit.adaptation import Observe
from shotfit.classifier import FewShotClassifier
from shotfit.config import from_dict, to_dict
from shotfit.data.inputs import locate
from shotfit.data.prefetch import Loading, memory_bytes
from shotfit.data.sources import load_dataset
from shotfit.data.template import check_template
from shotfit.errors import UsageError
from shotfit.experiment import Experiment, run
from shotfit.methods import get_method
from shotfit.methods.base import Method
from shotfit.observers.profiling import Profile
from shotfit.observers.progress import fit_progress
from shotfit.recipe import Overrides, Recipe, named_recipe
from shotfit.saving import check_target
from shotfit.training.execution import determinism
from shotfit.training.loop import TrainStep

BUDGET = ("iters_per_shot", "first_fraction", "budget")
# Short for training.NAME=VALUE, in every stage.
EXECUTION = ("precision", "micro_batch", "checkpointing", "compile")


def experiment_from(choices: dict[str, Any]) -> Experiment:
    """The experiment that a command's options describe.

    Raises:
        UsageError: for options that make no sense; DataError: for data that cannot be found.
    """
    from shotfit.apps.options import parse_pairs

    if not choices.get("data"):
        raise UsageError("Say what to learn from: a folder, a manifest or an embedded task.")
    source, data = locate(str(choices["data"]))
    if "template" in choices:
        check_template(choices["template"])
        data["template"] = choices["template"]
    if not choices.get("full_size"):
        data["reduced"] = True
    values: dict[str, Any] = {"source": source, "data": data}
    for key in ("shots", "seed", "backbone", "revision", "fewshot"):
        if key in choices:
            values[key] = choices[key]
    values.setdefault("shots", None)
    values["setting"] = str(choices.get("setting", "all_to_all")).replace("-", "_")
    execution = {f"training.{key}": choices[key] for key in EXECUTION if key in choices}
    given = parse_pairs(choices.get("option"))
    for key in given.keys() & execution.keys():
        flag = "--" + key.removeprefix("training.").replace("_", "-")
        raise UsageError(f"Both {flag} and -o {key} are given: leave out one.")
    overrides = Overrides(
        {key: choices[key] for key in BUDGET if key in choices}, {**given, **execution}
    )
    recipe = overrides.applied(named_recipe(choices.get("method", "2sfs")))
    _check_used(choices, overrides, recipe)
    return from_dict(Experiment, {**values, "recipe": recipe})


def _check_used(choices: dict[str, Any], overrides: Overrides, recipe: Recipe) -> None:
    """Refuses what would change nothing. A grid's options are for many methods, a fit's for one."""
    first = recipe.stages[0].method
    if "template" in choices and not get_method(first).uses_template:
        raise UsageError(
            f"{first} learns the words around the class name and reads no template; it starts "
            "from its own phrase (shotfit list-methods, docs/papers.md)."
        )
    if len(recipe.stages) == 2:
        return
    idle = [key for key in overrides.options if key.startswith("linear.")]
    if "first_fraction" in choices:
        idle.append("--first-fraction")
    if idle:
        raise UsageError(
            f"{first} alone has no second stage for {', '.join(idle)} to act on; "
            f"2sfs:{first} has one."
        )
    if "iters_per_shot" in choices and recipe.budget == "published":
        raise UsageError(
            f"{first} alone trains its published updates, whatever --iters-per-shot says; add "
            "--budget shared to train M iterations a shot."
        )


def fit_and_save(
    choices: dict[str, Any],
    out: Path,
    *,
    device: str | None,
    root: str | None,
    quiet: bool,
    profile: bool = False,
) -> tuple[dict[str, Any], Path, Profile | None]:
    """Fits, evaluates where there are test images, and saves; the record, the folder and, where
    it was asked for, the profile."""
    experiment = experiment_from(choices)
    loading = Loading(
        memory=memory_bytes(choices.get("image_memory", Loading.memory)),
        disk=memory_bytes(choices.get("image_disk", Loading.disk)),
    )
    check_target(out)
    dataset = load_dataset(experiment.source, root=root, **experiment.data)
    stages = [stage.method for stage in experiment.recipe.stages]
    recording = Profile(stages) if profile else None
    with (
        determinism(bool(choices.get("deterministic"))),
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
    classifier = FewShotClassifier(
        experiment.backbone, experiment.recipe, seed=experiment.seed, device=device
    )
    classifier.experiment = experiment
    classifier.metrics = record.metrics
    folder = classifier.take(method).save_pretrained(out)
    plain = to_dict(record)
    (folder / "record.json").write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
    text = "# The resolved options of this run; `shotfit fit --config` repeats it.\n"
    (folder / "config.yaml").write_text(text + yaml.safe_dump(_resolved(experiment, choices)))
    return plain, folder, recording


def _both(progress: Observe | None, recording: Profile | None) -> Observe | None:
    if recording is None:
        return progress

    def observe(method: Method, stage: int, step: TrainStep) -> None:
        recording(method, stage, step)
        if progress is not None:
            progress(method, stage, step)

    return observe


def _resolved(experiment: Experiment, choices: dict[str, Any]) -> dict[str, Any]:
    recipe = experiment.recipe
    # What has no effect would be refused when the file is read again.
    counts = len(recipe.stages) == 2 or recipe.budget == "shared"
    return {
        **choices,
        "method": choices.get("method", "2sfs"),
        "shots": experiment.shots,
        "seed": experiment.seed,
        "backbone": experiment.backbone,
        "setting": experiment.setting,
        **({"iters_per_shot": recipe.iters_per_shot} if counts else {}),
        "budget": recipe.budget,
    }
