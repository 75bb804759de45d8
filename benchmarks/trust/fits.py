"""What a fit of two stages leaves behind for the study: embeddings, and what trained the rows.

Everything that is asked of a classifier follows from these, in seconds where the fit took minutes,
so that they are kept outside the repository between changes of what is asked.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F

from shotfit.backbone import Backbone
from shotfit.data.dataset import Dataset, Example, Split
from shotfit.data.prefetch import plain_batches
from shotfit.data.sources import load_dataset
from shotfit.data.sources.demo import list_tasks
from shotfit.data.support_set import SupportSet
from shotfit.evaluation.assessment import Assessment, assess
from shotfit.evaluation.cross_fitting import ShotFeatures
from shotfit.experiment import Experiment, environment, run, task_facts, task_of
from shotfit.methods.base import Method
from shotfit.methods.linear import LinearClassifier
from shotfit.methods.published import TrainConfig
from shotfit.plan import plan
from shotfit.recipe import Overrides, two_stage
from shotfit.shots_assessment import Inspection, shot_features, vocabulary_embeddings

OTHERS = 40
"""Images of each other task, which are none of a classifier's classes."""


@dataclass(frozen=True)
class Fit:
    """Unit embeddings, and the facts of the fit that they are of.

    `features` are the shots, `rows` (K, dim) what the second stage made of their names by
    `training`, `words` (V, dim) a general vocabulary, `base`, `novel` and `others` test images
    (images, dim) of trained classes, of those known by name and of other tasks, whose `labels`
    index the rows and the `names` (m, dim) of novel classes; `other_names` are those of other
    tasks.
    """

    features: ShotFeatures
    rows: Tensor
    words: Tensor
    training: TrainConfig
    base: Tensor
    base_labels: Tensor
    novel: Tensor
    novel_labels: Tensor
    names: Tensor
    others: Tensor
    other_names: Tensor
    task: str
    seed: int
    classnames: tuple[str, ...]
    options: dict[str, Any]
    environment: dict[str, str]

    def assess(self) -> Assessment:
        """What the shots say about the classifier, as after every fit."""
        return assess(self.features, self.words, self.training, self.classnames, self.seed)


class _Seen(Inspection):
    """Keeps the shots as the fit sees them, in place of assessing them."""

    features: ShotFeatures
    words: Tensor
    training: TrainConfig

    def __call__(self, method: Method, support: SupportSet, updates: int) -> None:
        """As much of `Inspection` as comes before the assessment."""
        assert isinstance(method, LinearClassifier)
        scale = method.backbone.hints.classifier_lr_scale
        training = plan(self.recipe, replace(self.facts, classifier_lr_scale=scale))[-1].trainings[
            0
        ]
        self.training = replace(training, iterations=updates, epochs=None)
        self.words = vocabulary_embeddings(method.inner, support.classnames)
        self.features = shot_features(method.inner, support)


def fit(dataset: Dataset, seed: int, options: Mapping[str, Any]) -> Fit:
    """The fit of a dataset's first half of classes, or of all of them; `options` are shots,
    iters_per_shot, precision and backbone, and where it is not base to novel, the setting."""
    recipe = Overrides(options={"training.precision": options["precision"]}).applied(
        two_stage(iters_per_shot=options["iters_per_shot"])
    )
    experiment = Experiment(
        data={"name": dataset.name},
        setting=options.get("setting", "base_to_novel"),
        shots=options["shots"],
        seed=seed,
        backbone=options["backbone"],
        recipe=recipe,
    )
    task = task_of(experiment, dataset)
    seen = _Seen(recipe, task_facts(task), seed)
    backbone = Backbone.from_pretrained(options["backbone"])
    _, method = run(
        experiment, dataset=dataset, backbone=backbone, inspect=seen, device="cpu", measured=False
    )
    assert isinstance(method, LinearClassifier)
    base = next(iter(task.tests.values()))
    novel = task.tests.get("novel", Split((), ()))
    names, examples = names_and_images_of_others(dataset)
    return Fit(
        features=seen.features,
        rows=F.normalize(method.weight, dim=-1).detach(),
        words=seen.words,
        training=seen.training,
        base=_encoded(method, base),
        base_labels=torch.tensor(base.labels),
        novel=_encoded(method, novel),
        novel_labels=torch.tensor(novel.labels, dtype=torch.int64),
        names=_named(method, novel.classnames),
        others=_encoded(method, replace(base, examples=tuple(examples))),
        other_names=_named(method, names),
        task=dataset.name,
        seed=seed,
        classnames=base.classnames,
        options=dict(options),
        environment=environment(),
    )


def kept_fit(
    dataset: Dataset, seed: int, options: Mapping[str, Any], folder: Path | None = None
) -> Fit:
    """The fit that `folder` keeps, or else one that is made and kept there; none is kept without
    a folder."""
    if folder is None:
        return fit(dataset, seed, options)
    path = folder / f"{dataset.name}-seed{seed}.safetensors"
    found = _load(path) if path.is_file() else None
    if found is None or found.options != options:
        found = fit(dataset, seed, options)
        _save(found, path)
    return found


def names_and_images_of_others(dataset: Dataset) -> tuple[tuple[str, ...], list[Example]]:
    """Names that the dataset does not have, and images, of the embedded tasks beside it, in the
    order of a fit's."""
    names: list[str] = []
    examples: list[Example] = []
    for other in list_tasks():
        if other != dataset.name:
            found = load_dataset("demo", name=other)
            names += [one for one in found.classnames if one not in dataset.classnames]
            examples += found.test[:: max(1, len(found.test) // OTHERS)][:OTHERS]
    return tuple(dict.fromkeys(names)), examples


@torch.no_grad()
def _encoded(method: Method, split: Split) -> Tensor:
    batches = plain_batches(split, method.backbone.image_spec, 128)
    found = [method.encode_images(pixels) for pixels, _ in batches]
    return torch.cat(found).float() if found else _named(method, ())


@torch.no_grad()
def _named(method: Method, names: Sequence[str]) -> Tensor:
    return method.encode_classes(names or ("image",)).weight.float()[: len(names)]


TENSORS = ("rows", "words", "base", "base_labels", "novel", "novel_labels", "names", "others")
TENSORS = (*TENSORS, "other_names")
SHOTS = ("views", "clean", "labels", "names")
FACTS = ("task", "seed", "classnames", "options", "environment")


def _save(found: Fit, path: Path) -> None:
    tensors = {key: getattr(found, key) for key in TENSORS}
    tensors |= {f"shots.{key}": getattr(found.features, key) for key in SHOTS}
    facts = {key: getattr(found, key) for key in FACTS}
    facts |= {"scale": found.features.scale, "training": asdict(found.training)}
    path.parent.mkdir(parents=True, exist_ok=True)
    partial_path = path.with_suffix(".partial")
    plain = {key: tensor.detach().contiguous().clone() for key, tensor in tensors.items()}
    save_file(plain, partial_path, {"facts": json.dumps(facts)})
    partial_path.replace(path)


def _load(path: Path) -> Fit:
    with safe_open(path, "pt") as file:
        tensor = file.get_tensor
        facts = json.loads(file.metadata()["facts"])
        shots = {key: tensor(f"shots.{key}") for key in SHOTS}
        tensors = {key: tensor(key) for key in TENSORS}
    facts["classnames"] = tuple(facts["classnames"])
    return Fit(
        features=ShotFeatures(**shots, scale=facts.pop("scale")),
        training=TrainConfig(**facts.pop("training")),
        **tensors,
        **facts,
    )
