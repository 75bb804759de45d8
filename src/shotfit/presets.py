"""Presets: recipes by what they cost, from encoding every image a few times to the whole training.

What each gives and takes was measured on the embedded suite: docs/speed-and-accuracy.md.
"""

import dataclasses
from dataclasses import dataclass

import torch

from shotfit.errors import unknown_name
from shotfit.recipe import Recipe, Stage, two_stage
from shotfit.training.execution import quick_precision


@dataclass(frozen=True)
class Preset:
    """A recipe with a name; `quick` ones compute in bf16 where the device has it."""

    name: str
    summary: str
    recipe: Recipe
    quick: bool = True

    def on(self, device: torch.device) -> Recipe:
        """The recipe as this device carries it out."""
        if not self.quick:
            return self.recipe
        precision = {"precision": quick_precision(device)}
        stages = (
            dataclasses.replace(stage, training={**stage.training, **precision})
            for stage in self.recipe.stages
        )
        return dataclasses.replace(self.recipe, stages=tuple(stages))


PRESETS = {
    preset.name: preset
    for preset in (
        Preset(
            "instant",
            "nothing trains: a Gaussian for each class, on 16 views of its images",
            # The few-shot estimator whatever the setting: a list may mix trained and other classes.
            Recipe(
                (Stage("gda", {"estimator": "few_shot", "alpha": 10.0, "views_per_class": 16}),)
            ),
            quick=False,
        ),
        Preset(
            "fast",
            "a twelfth of the first stage at five times its rate, then the classifier, with two "
            "thirds of its updates, on features that are encoded eight times",
            Recipe(
                (Stage("layernorm", training={"lr": 1e-3}), Stage("linear", {"views": 8})),
                iters_per_shot=100,
                first_fraction=0.15,
            ),
        ),
        Preset(
            "balanced",
            "a third of the first stage at twice its rate, then the classifier on features that "
            "are encoded 32 times",
            Recipe(
                (Stage("layernorm", training={"lr": 4e-4}), Stage("linear", {"views": 32})),
                first_fraction=0.2,
            ),
        ),
        Preset("published", "2SFS as published, in fp32", two_stage(), quick=False),
    )
}
"""By name, the quickest first."""


def get_preset(name: str) -> Preset:
    """The preset called `name`.

    Raises:
        UsageError: for an unknown name, with the nearest known one.
    """
    if name not in PRESETS:
        raise unknown_name("preset", name, PRESETS)
    return PRESETS[name]
