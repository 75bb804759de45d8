"""What the shots say about a classifier that was fitted on them, right after the fit."""

import dataclasses

import torch

from shotfit.data.support_set import SupportSet
from shotfit.evaluation.assessment import Assessment, assess
from shotfit.evaluation.cross_fitting import VIEWS, ShotFeatures
from shotfit.evaluation.unknown_names import plain
from shotfit.evaluation.vocabulary import VOCABULARY
from shotfit.methods.base import Method
from shotfit.methods.gda import GDA
from shotfit.methods.linear import LinearClassifier
from shotfit.methods.published import TaskFacts, TrainConfig
from shotfit.plan import plan
from shotfit.recipe import Recipe


def assess_shots(
    method: Method, support: SupportSet, training: TrainConfig | None, seed: int
) -> Assessment | None:
    """Holds shots and classes out of the second stage (`evaluation.assessment`), whose `training`
    is repeated; None where nothing is trained.

    It encodes every shot `VIEWS` + 1 times and trains some twenty second stages at once on that.
    Of one stage, whose classes are all known by name, the shots say what their mean images are
    worth beside the trained names, and what level these have against others; of GDA also what its
    Gaussians are worth, which are solved anew without some of the shots, on the views that they
    have already. None for methods that score in ways of their own.
    """
    names = support.classnames
    if isinstance(method, GDA):
        words, features = vocabulary_embeddings(method, names), shot_features(method, support)
        return assess(features, words, None, names, seed, solved=True)
    if isinstance(method, LinearClassifier):
        embedder, repeated = method.inner, training
    elif scores_by_names(method):
        embedder, repeated = method, None
    else:
        return None
    words = vocabulary_embeddings(embedder, names)
    features = shot_features(embedder, support, 1 if repeated is None else VIEWS)
    return assess(features, words, repeated, names, seed)


def scores_by_names(method: Method) -> bool:
    """Whether a method of one stage has learned what classes share, and scores by the cosine of an
    image and a name: one that learns rows, or scores in its own way, is left as published."""
    kind = type(method)
    plainly = kind.forward is Method.forward and kind.score_rows is Method.score_rows
    return plainly and method.open_vocabulary and method.first_fraction is not None


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
        elif isinstance(method, GDA):
            self.assessment = assess_shots(method, support, None, self.seed)


@torch.no_grad()
def shot_features(method: Method, support: SupportSet, views: int = VIEWS) -> ShotFeatures:
    """The shots as a first stage embeds them; as GDA has embedded them already, with the image
    itself for its first view where each class has so many."""
    if isinstance(method, GDA):
        seen, plainly = method.views, method.config.views_per_class is not None
    else:
        seen, plainly = method.encode_views(support, views), False
    clean = seen[0] if plainly else method.encode_pass(support.plain())
    return ShotFeatures(
        views=seen.float(),
        clean=clean.float(),
        labels=support.labels,
        names=method.encode_classes(support.classnames).weight.float(),
        scale=method.backbone.logit_scale.exp().item(),
    )


@torch.no_grad()
def vocabulary_embeddings(method: Method, classnames: tuple[str, ...]) -> torch.Tensor:
    """Words that are no class of the task, embedded as names are."""
    own = {plain(name) for name in classnames}
    words = [word for word in VOCABULARY if plain(word) not in own]
    return method.encode_classes(words).weight.float()
