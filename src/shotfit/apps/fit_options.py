"""What a user may ask of `shotfit fit`, by flags or in a file, and what is meant by it."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from shotfit.apps.options import parse_pairs
from shotfit.apps.words import chosen_words, template_list
from shotfit.config import from_dict
from shotfit.data.inputs import locate
from shotfit.data.prefetch import Loading, memory_bytes
from shotfit.data.template import Words, data_options
from shotfit.errors import UsageError
from shotfit.experiment import Experiment, pick_device
from shotfit.methods import get_method
from shotfit.recipe import Overrides, Recipe
from shotfit.system.files import write_atomically
from shotfit.timed_plan import chosen_recipe
from shotfit.training.checkpoint import FILE, checkpoint_folder, read_checkpoint

# Short for training.NAME=VALUE, in every stage.
EXECUTION = ("precision", "micro_batch", "checkpointing", "compile")


@dataclass(frozen=True)
class FitOptions:
    """The options of a fit; None where a default is meant."""

    data: str | None = None
    preset: str | None = None
    minutes: float | None = None
    method: str | None = None
    shots: int | None = None
    seed: int | None = None
    backbone: str | None = None
    revision: str | None = None
    setting: str | None = None
    iters_per_shot: int | None = None
    first_fraction: float | str | None = None
    budget: str | None = None
    option: dict[str, Any] | list[str] | None = None
    precision: str | None = None
    micro_batch: int | str | None = None
    checkpointing: bool | None = None
    compile: bool | None = None
    deterministic: bool | None = None
    template: str | list[str] | None = None
    templates: str | None = None
    descriptions: str | None = None
    fewshot: str | None = None
    image_memory: int | str | None = None
    image_disk: int | str | None = None
    full_size: bool | None = None
    skip_broken: bool | None = None
    published_scores: bool | None = None

    @classmethod
    def resumed(cls, out: Path, given: "FitOptions") -> "FitOptions":
        """The options of the fit whose checkpoint lies beside `out`, with what is `given` anew.

        Raises:
            DataError: when there is no checkpoint, or it cannot be read.
        """
        notes = read_checkpoint(checkpoint_folder(out) / FILE).notes
        return from_dict(cls, {**notes["options"], **given.as_given()})

    def as_given(self) -> dict[str, Any]:
        """What was given, by name; what is left to defaults is left out."""
        return self._given(*(field.name for field in dataclasses.fields(self)))

    def experiment(self, device: str | None = None) -> Experiment:
        """The experiment that these options describe, on a device; with `minutes`, its recipe is
        still to be chosen.

        Raises:
            UsageError: for options that make no sense; DataError: for data that cannot be found.
        """
        if not self.data:
            raise UsageError("Say what to learn from: a folder, a manifest or an embedded task.")
        source, data = locate(self.data)
        words = self._words()
        data |= data_options(words)
        if not self.full_size:
            data["reduced"] = True
        overrides = self._overrides()
        recipe = overrides.applied(self._recipe(device))
        self._check_used(overrides, recipe, words)
        setting = (self.setting or "all_to_all").replace("-", "_")
        chosen = self._given("seed", "backbone", "revision", "fewshot")
        values = {**chosen, "source": source, "data": data, "setting": setting}
        return from_dict(Experiment, {**values, "shots": self.shots, "recipe": recipe})

    def loading(self) -> Loading:
        """What reading the images may cost.

        Raises:
            UsageError: for an amount of memory that is not one.
        """
        memory, disk = self.image_memory, self.image_disk
        return Loading(
            memory=memory_bytes(Loading.memory if memory is None else memory),
            disk=memory_bytes(Loading.disk if disk is None else disk),
        )

    def save(self, path: Path) -> None:
        """Writes a file that repeats the fit, with what was left to defaults filled in."""
        experiment = self.experiment()
        recipe = experiment.recipe
        values = {
            **self.as_given(),
            **({} if self.preset else {"method": self.method or "2sfs"}),
            "shots": experiment.shots,
            "seed": experiment.seed,
            "backbone": experiment.backbone,
            "setting": experiment.setting.replace("_", "-"),
            "budget": recipe.budget,
        }
        # What has no effect would be refused when the file is read again.
        if len(recipe.stages) == 2 or recipe.budget == "shared":
            values["iters_per_shot"] = recipe.iters_per_shot
        text = "# The resolved options of this run; `shotfit fit --config` repeats it.\n"
        write_atomically(path, text + yaml.safe_dump(values))

    def _given(self, *names: str) -> dict[str, Any]:
        """Those of the named options that were given."""
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def _overrides(self) -> Overrides:
        execution = {f"training.{key}": value for key, value in self._given(*EXECUTION).items()}
        pairs = parse_pairs(self.option)
        for key in pairs.keys() & execution.keys():
            flag = "--" + key.removeprefix("training.").replace("_", "-")
            raise UsageError(f"Both {flag} and -o {key} are given: leave out one.")
        budget = self._given("iters_per_shot", "first_fraction", "budget")
        return Overrides(budget, {**pairs, **execution})

    def _recipe(self, device: str | None) -> Recipe:
        if self.minutes is not None:
            self._check_left_to_choose()
        minutes = None if self.minutes is None else float(self.minutes)
        return chosen_recipe(self.method, self.preset, minutes, pick_device(device))

    def _check_left_to_choose(self) -> None:
        """Refuses what --minutes decides."""
        decided = ("option", "iters_per_shot", "first_fraction", "budget")
        for name in self._given(*decided, *EXECUTION):
            raise UsageError(
                f"--minutes chooses the plan, so that --{name.replace('_', '-')} has no effect: "
                "leave out one."
            )

    def _words(self) -> str | Words | None:
        return chosen_words(template_list(self.template), self.templates, self.descriptions)

    def _check_used(self, overrides: Overrides, recipe: Recipe, words: str | Words | None) -> None:
        """Refuses what would change nothing. A grid's options are for many methods, a fit's for
        one."""
        first = recipe.stages[0].method
        if isinstance(words, str) and get_method(first).reads == "nothing":
            raise UsageError(
                f"{first} learns the words around the class name and reads no template; it starts "
                "from its own phrase (shotfit list-methods, docs/papers.md)."
            )
        if isinstance(words, Words):
            get_method(first).check_words(words)
        if len(recipe.stages) == 2:
            return
        idle = [key for key in overrides.options if key.startswith("linear.")]
        if self.first_fraction is not None:
            idle.append("--first-fraction")
        if idle:
            raise UsageError(
                f"{first} alone has no second stage for {', '.join(idle)} to act on; "
                f"2sfs:{first} has one."
            )
        if self.iters_per_shot is not None and recipe.budget == "published":
            raise UsageError(
                f"{first} alone trains its published updates, whatever --iters-per-shot says; add "
                "--budget shared to train M iterations a shot."
            )
