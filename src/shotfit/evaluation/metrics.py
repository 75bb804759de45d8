"""Accuracy in percent, in closed halves and in the joint label space."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from shotfit.averages import harmonic_mean, mean
from shotfit.data.dataset import Split
from shotfit.data.prefetch import Loading, plain_batches
from shotfit.methods.base import ClassEmbeddings, Method

EVAL_BATCH = 128


ClassCounts = list[tuple[str, str, int, int]]
"""Of a metric and a class: how many of its images are answered right, of how many."""


@dataclass(frozen=True)
class Measurement:
    """The metrics of a task's test splits, in percent, and `classes` of those in which a split's
    images are answered among its own names."""

    metrics: dict[str, float]
    classes: ClassCounts = field(default_factory=list)


def accuracy(logits: Tensor, labels: Tensor) -> float:
    """Top-1 accuracy in percent: logits (images, classes), labels (images,)."""
    return 100 * (logits.argmax(dim=-1) == labels).double().mean().item()


@torch.no_grad()
def predict_logits(
    method: Method, split: Split, classes: ClassEmbeddings, batch_size: int = EVAL_BATCH
) -> Tensor:
    """Logits (images, classes) of every image of a split, in order, on the CPU."""
    training = method.training
    method.eval()
    device = method.backbone.device
    loading = Loading(pin_memory=device.type == "cuda")
    batches = plain_batches(split, method.backbone.image_spec, batch_size, loading)
    logits = [
        method(pixels.to(device, non_blocking=True), classes).float().cpu() for pixels, _ in batches
    ]
    method.train(training)
    return torch.cat(logits) if logits else torch.zeros(0, len(classes.names))


def evaluate(method: Method, tests: Mapping[str, Split]) -> dict[str, float]:
    """The metrics of `measure`, in percent."""
    return measure(method, tests).metrics


@torch.no_grad()
def measure(method: Method, tests: Mapping[str, Split]) -> Measurement:
    """What a method answers on a task's test splits.

    One split gives its accuracy under its own key. Base and novel splits give `base` and `novel`
    (each among its own names, the published protocol) with their `harmonic_mean`, and the joint
    label space: `base_in_joint`, `novel_in_joint`, `joint_harmonic_mean` and, over all images,
    `joint`. Every image is encoded once and every name embedded once. A method that cannot score
    unseen classes is measured on `base` alone.
    """
    training = method.training
    method.eval()
    try:
        if "novel" not in tests:
            return _each(method, tests)
        if not method.open_vocabulary:
            return _each(method, {"base": tests["base"]})
        return _base_to_novel(method, tests["base"], tests["novel"])
    finally:
        method.train(training)


@torch.no_grad()
def evaluate_transfer(method: Method, targets: Mapping[str, Split]) -> dict[str, float]:
    """Accuracy on other datasets, each among its own names, in percent (cross-dataset transfer and
    domain generalisation: Zhou et al., CoCoOp, CVPR 2022, sections 4.2 and 4.3).

    `to_<name>` for every target, and their mean `transfer`. A class that was trained under the same
    name is answered by what was trained, as in prediction. A method that cannot score unseen
    classes is measured where all of a target's names were trained; without any target there is no
    mean.
    """
    training = method.training
    method.eval()
    try:
        found = {
            f"to_{name}": accuracy(_closed(method, split), torch.tensor(split.labels))
            for name, split in targets.items()
            if method.open_vocabulary or set(split.classnames) <= set(method.trained_names)
        }
    finally:
        method.train(training)
    if len(found) == len(targets) > 0:
        found["transfer"] = mean(list(found.values()))
    return found


def count_classes(metric: str, logits: Tensor, labels: Tensor, names: Sequence[str]) -> ClassCounts:
    """Images of each class, and those of them that are answered right; logits (images, classes)."""
    right = logits.argmax(dim=-1) == labels
    images = labels.bincount(minlength=len(names)).tolist()
    hits = labels[right].bincount(minlength=len(names)).tolist()
    return [(metric, *of_class) for of_class in zip(names, hits, images, strict=True)]


def _closed(method: Method, split: Split) -> Tensor:
    """Logits among a split's own names."""
    return predict_logits(method, split, method.encode_classes(split.classnames))


def _each(method: Method, tests: Mapping[str, Split]) -> Measurement:
    """Every split among its own names."""
    found = Measurement({})
    for key, split in tests.items():
        logits, labels = _closed(method, split), torch.tensor(split.labels)
        found.metrics[key] = accuracy(logits, labels)
        found.classes.extend(count_classes(key, logits, labels, split.classnames))
    return found


def _base_to_novel(method: Method, base: Split, novel: Split) -> Measurement:
    names = (*base.classnames, *novel.classnames)
    classes = method.encode_classes(names)
    count = len(base.classnames)
    of_base = predict_logits(method, base, classes)
    of_novel = predict_logits(method, novel, classes)
    base_labels, novel_labels = torch.tensor(base.labels), torch.tensor(novel.labels)
    metrics = {
        "base": accuracy(of_base[:, :count], base_labels),
        "novel": accuracy(of_novel[:, count:], novel_labels),
        "base_in_joint": accuracy(of_base, base_labels),
        "novel_in_joint": accuracy(of_novel, novel_labels + count),
    }
    metrics["harmonic_mean"] = harmonic_mean(metrics["base"], metrics["novel"])
    metrics["joint_harmonic_mean"] = harmonic_mean(
        metrics["base_in_joint"], metrics["novel_in_joint"]
    )
    images = len(base.examples) + len(novel.examples)
    metrics["joint"] = (
        metrics["base_in_joint"] * len(base.examples)
        + metrics["novel_in_joint"] * len(novel.examples)
    ) / images
    classes = count_classes("base", of_base[:, :count], base_labels, base.classnames)
    classes += count_classes("novel", of_novel[:, count:], novel_labels, novel.classnames)
    return Measurement(metrics, classes)
