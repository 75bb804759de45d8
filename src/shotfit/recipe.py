"""Recipes: stages in order, as values, and the words that users have for them."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from shotfit.config import Count, from_dict, override
from shotfit.errors import UsageError, unknown_name
from shotfit.methods import get_method, method_key, published_names
from shotfit.methods.linear import LinearConfig
from shotfit.methods.published import TrainConfig


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
    decides it from the support set (`training.stopping.AUTO`). With
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
            UsageError: for a key of another form, an option that the training or the second
                stage does not have, or a field that a recipe does not have.
        """
        groups: dict[str, dict[str, Any]] = {"training": {}, "linear": {}, "": {}}
        for key, value in self.options.items():
            group, _, name = str(key).rpartition(".")  # YAML has other keys, too
            if group not in groups:
                raise UsageError(
                    f"Options are NAME, training.NAME or linear.NAME, got {key!r}: the method's, "
                    "the training's of every stage, the second stage's."
                )
            groups[group][name] = _plain(value)
        # A recipe without this stage would never check its options.
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
    """A number as a number, and "none" as None: "4" and 4 must be the same run."""
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


def named_recipe(name: str, **options: Any) -> Recipe:
    """The recipe that a user means by one word.

    "2sfs" is the paper's (LayerNorm, then the classifier), "2sfs:lora" has another first stage,
    and any of `methods.published_names` is that method alone, also as papers write it ("CoOp",
    "PLOT++", "2SFS:CLIP-LoRA"). `options` are those of `Recipe`.

    Raises:
        UsageError: for an unknown name.
    """
    kind, _, first = name.partition(":")
    names = published_names()
    if kind.lower() == "2sfs":
        entry = names.get(method_key(first))
        if entry is not None and entry.options:
            raise UsageError(f"{first} is a form of {entry.method}, which is no first stage.")
        get_method(method_key(first or "layernorm"))
        return two_stage(method_key(first or "layernorm"), **options)
    entry = names.get(method_key(name))
    if first or entry is None:
        raise unknown_name("method", name, ["2sfs", *names])
    return Recipe((Stage(entry.method, dict(entry.options)),), **options)
