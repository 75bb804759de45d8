"""What the shots say about a classifier that was fitted on them, right after the fit."""

import dataclasses

import torch

from shotfit.data.support_set import SupportSet
from shotfit.evaluation.assessment import Assessment, assess
from shotfit.evaluation.cross_fitting import VIEWS, ShotFeatures
from shotfit.evaluation.unknown_names import plain
from shotfit.evaluation.vocabulary import VOCABULARY
from shotfit.methods.base import Method
from shotfit.methods.linear import LinearClassifier
from shotfit.methods.published import TaskFacts, TrainConfig
from shotfit.plan import plan
from shotfit.recipe import Recipe


def assess_shots(
    method: Method, support: SupportSet, training: TrainConfig, seed: int
) -> Assessment | None:
    """Holds shots and classes out of the second stage (`evaluation.assessment`), whose `training`
    is repeated.

    It encodes every shot `VIEWS` + 1 times and trains some twenty second stages at once on that.
    None for a method without a second stage: its classes are all known in the same way.
    """
    if not isinstance(method, LinearClassifier):
        return None
    words = vocabulary_embeddings(method, support.classnames)
    return assess(shot_features(method, support), words, training, support.classnames, seed)


class Inspection:
    """Assesses a fit when it is done, while its images are still decoded."""

    def __init__(self, recipe: Recipe, facts: TaskFacts, seed: int) -> None:
        self.recipe = recipe
        self.facts = facts
        self.seed = seed
        self.assessment: Assessment | None = None

    def __call__(self, method: Method, support: SupportSet, updates: int) -> None:
        """Keeps what the shots say; the last stage made so many updates."""
        scale = method.backbone.hints.classifier_lr_scale
        facts = dataclasses.replace(self.facts, classifier_lr_scale=scale)
        trainings = plan(self.recipe, facts)[-1].trainings
        if trainings and updates:
            # As many as there were: a deadline or a stopping rule may have moved the end.
            training = dataclasses.replace(trainings[0], iterations=updates, epochs=None)
            self.assessment = assess_shots(method, support, training, self.seed)


@torch.no_grad()
def shot_features(method: LinearClassifier, support: SupportSet) -> ShotFeatures:
    """The shots as the first stage embeds them."""
    return ShotFeatures(
        views=method.encode_views(support, VIEWS).float(),
        clean=method.encode_pass(support.plain()).float(),
        labels=support.labels,
        names=method.inner.encode_classes(support.classnames).weight.float(),
        scale=method.backbone.logit_scale.exp().item(),
    )


@torch.no_grad()
def vocabulary_embeddings(method: LinearClassifier, classnames: tuple[str, ...]) -> torch.Tensor:
    """Words that are no class of the task, embedded as names are."""
    own = {plain(name) for name in classnames}
    words = [word for word in VOCABULARY if plain(word) not in own]
    return method.inner.encode_classes(words).weight.float()
