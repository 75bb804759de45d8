"""A classifier measured on a dataset: on which images, among which names, and as `predict` answers.

Images that it was trained on tell nothing and are left out. Where that leaves none, as many
classifiers as there are folds are fitted anew, and each answers the images that it did not see.
"""

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from shotfit.backbone import Backbone
from shotfit.data.dataset import Dataset, Example
from shotfit.data.image_hashes import ImageHashes, image_hashes
from shotfit.data.task import Task
from shotfit.data.template import Words
from shotfit.errors import DataError, UsageError
from shotfit.evaluation.evaluation import Array, Evaluation
from shotfit.evaluation.folds import image_folds
from shotfit.evaluation.inference import predict_batches
from shotfit.evaluation.scoring import Scorer
from shotfit.evaluation.unknown_names import UnknownName, meant, places
from shotfit.methods import get_method
from shotfit.methods.zero_shot import ZeroShot

if TYPE_CHECKING:
    from shotfit.classifier import FewShotClassifier

FOLDS = 4

Watch = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is, and how much there is."""


@dataclass(frozen=True)
class Options:
    """What `FewShotClassifier.evaluate` may be asked for."""

    classes: Sequence[str] | None = None
    as_novel: bool = False
    zero_shot: bool = True


@dataclass(frozen=True)
class Names:
    """The names that images are scored among; `asked` is None for the classifier's own."""

    names: tuple[str, ...]
    asked: tuple[str, ...] | None
    among: str
    halves: bool = False


@dataclass(frozen=True)
class Candidates:
    """Images with the place of their class among the names, and what is left out of a dataset."""

    examples: tuple[Example, ...]
    labels: tuple[int, ...]
    unknown: tuple[UnknownName, ...]

    def those(self, wanted: Iterable[bool]) -> "Candidates":
        """Of the images, those that are wanted."""
        rows = [pair for pair, keep in zip(self._pairs(), wanted, strict=True) if keep]
        examples, labels = zip(*rows, strict=True) if rows else ((), ())
        return replace(self, examples=tuple(examples), labels=tuple(labels))

    def _pairs(self) -> zip:
        return zip(self.examples, self.labels, strict=True)


class NothingToMeasure(DataError):
    """Data that says nothing about a classifier, though nothing in it is damaged."""


def trained_images(task: Task, hashes: ImageHashes) -> frozenset[bytes]:
    """The images that a method has seen of its task, by `image_hash`; `hashes` knows some."""
    return frozenset(hashes.of((*task.support.examples, *task.validation.examples)))


def evaluate(
    classifier: "FewShotClassifier",
    dataset: Dataset,
    options: Options,
    watch: Watch | None = None,
    hashes: ImageHashes | None = None,
) -> Evaluation:
    """See `FewShotClassifier.evaluate`; `hashes` knows some of the images by their keys.

    Raises:
        NothingToMeasure: when no class is among the names, or no image is left; a DataError too.
    """
    names = _names(classifier, dataset, options)
    found = _candidates(dataset, names.names)
    if not found.examples:
        raise _nothing_known(dataset, names, found.unknown)
    trained = _trained_on(classifier, found, hashes)
    unseen = found.those(not known for known in trained)
    if unseen.examples:
        logits = _logits(classifier, unseen.examples, names.asked, watch)
        scored = "test images" if dataset.test else "images that were not trained on"
        left_out = sum(trained)
    else:
        unseen, logits = _cross_validated(classifier, found, names.names, watch)
        scored = f"cross-validated: {FOLDS} classifiers fitted anew, each without a part"
        left_out = 0
    untouched = None
    if options.zero_shot:
        untouched = _zero_shot(classifier, unseen.examples, names.names, watch)
    return Evaluation(
        names=names.names,
        trained=tuple(row >= 0 for row in classifier.method.trained_rows(names.names)),
        keys=tuple(example.key for example in unseen.examples),
        labels=np.array(unseen.labels, dtype=np.int64),
        logits=logits,
        scored=scored,
        among=names.among,
        halves=names.halves,
        rule=classifier.rule,
        trained_on=left_out,
        unknown=found.unknown,
        zero_shot=untouched,
    )


def _names(
    classifier: "FewShotClassifier",
    dataset: Dataset,
    options: Options,
) -> Names:
    """The label space that was asked for; by default what `predict` answers with."""
    classes = options.classes
    own = classifier.classes
    if not options.as_novel:
        if classes is None:
            return Names(own, None, "the classifier's names")
        return Names(tuple(classes), tuple(classes), "the names given")
    if not classifier.method.open_vocabulary:
        raise UsageError(
            f"{type(classifier.method).__name__} is bound to the classes it was trained on: it "
            "cannot score novel ones."
        )
    wanted = dataset.classnames if classes is None else tuple(classes)
    rows = classifier.method.trained_rows(wanted)
    base = [name for name, row in zip(wanted, rows, strict=True) if row >= 0]
    novel = [name for name, row in zip(wanted, rows, strict=True) if row < 0]
    names = (*base, *novel)
    among = "base and novel names of the test set, as papers do"
    return Names(names, names, among, halves=True)


def _candidates(dataset: Dataset, names: Sequence[str]) -> Candidates:
    """The test images whose class is among `names`; all images where there is no test part."""
    examples = dataset.test or (*dataset.train, *dataset.val)
    if not examples:
        raise NothingToMeasure(f"{dataset.name} has no images to measure on.")
    place = places(dataset.classnames, names)
    counts = np.bincount([e.label for e in examples], minlength=len(dataset.classnames))
    unknown = tuple(
        UnknownName(name, int(count), meant(name, names))
        for name, there, count in zip(dataset.classnames, place, counts, strict=True)
        if there is None and count
    )
    known = [(e, there) for e in examples if (there := place[e.label]) is not None]
    return Candidates(tuple(e for e, _ in known), tuple(there for _, there in known), unknown)


def _nothing_known(
    dataset: Dataset, names: Names, unknown: Sequence[UnknownName]
) -> NothingToMeasure:
    shown = ", ".join(map(str, unknown[:5])) + (" …" if len(unknown) > 5 else "")
    known = ", ".join(map(repr, names.names[:5])) + (" …" if len(names.names) > 5 else "")
    return NothingToMeasure(
        f"No class of {dataset.name} is among {names.among} ({known}): {shown}. Rename the "
        "folders, add the classes (add-classes), or measure them as novel ones (--as-novel)."
    )


def _trained_on(
    classifier: "FewShotClassifier", found: Candidates, hashes: ImageHashes | None
) -> list[bool]:
    """Which images the classifier was trained on, by their pixels."""
    trained = classifier.trained_images
    if trained is None:
        warnings.warn(
            "This classifier does not say which images it was trained on (saved by an earlier "
            "version): none can be left out.",
            stacklevel=4,
        )
    if not trained:
        return [False] * len(found.examples)
    if hashes is None:
        own = image_hashes([example.image for example in found.examples])
    else:
        own = hashes.of(found.examples)
    return [known in trained for known in own]


def _logits(
    classifier: "FewShotClassifier",
    examples: Sequence[Example],
    names: Sequence[str] | None,
    watch: Watch | None,
    what: str = "scoring",
) -> Array:
    """What `predict` decides on, (images, classes)."""
    batches = []
    done = 0
    for logits in classifier.iter_logits([example.image for example in examples], names):
        batches.append(logits.numpy())
        done += len(logits)
        if watch is not None:
            watch(what, done, len(examples))
    return np.concatenate(batches).astype(np.float32)


def _cross_validated(
    classifier: "FewShotClassifier",
    found: Candidates,
    names: tuple[str, ...],
    watch: Watch | None,
) -> tuple[Candidates, Array]:
    """The images of classes that have two or more, each scored by a classifier that was fitted as
    this one was, on the images of the other folds."""
    rows = classifier.method.trained_rows(names)
    counts = np.bincount(found.labels, minlength=len(names))
    usable = found.those(rows[label] >= 0 for label in found.labels)
    several = [counts[label] > 1 for label in usable.labels]
    trained = [place for place, row in enumerate(rows) if row >= 0]
    without = [names[place] for place in trained if not counts[place]]
    if not any(several) or without:
        why = f"class {without[0]!r} has no image here" if without else "no class has two"
        raise NothingToMeasure(
            f"The classifier was trained on all these images, and they cannot be cross-validated: "
            f"{why}. Give it other images."
        )
    fold = image_folds(usable.labels, FOLDS, classifier.experiment.seed)
    logits = np.zeros((len(usable.labels), len(names)), dtype=np.float32)
    words = classifier.method.words
    for number in range(FOLDS):
        left = np.array(several) & (fold == number)
        if not left.any():
            continue
        if watch is not None:
            watch("fitting without a part", number, FOLDS)
        fresh = _fitted_anew(classifier, _training(usable.those(~left), names, words))
        logits[left] = _logits(fresh, usable.those(left).examples, names, None)
    return usable.those(several), logits[several]


def _fitted_anew(classifier: "FewShotClassifier", data: Dataset) -> "FewShotClassifier":
    """Another classifier, fitted as this one was, on all training images of other data."""
    experiment = classifier.experiment
    fresh = type(classifier)(
        classifier.method.backbone.name,
        experiment.recipe,
        seed=experiment.seed,
        revision=experiment.revision,
        device=str(classifier.device),
        published_scores=classifier.rule == "published",
    )
    return fresh.fit(data, verbose=False)


def _training(found: Candidates, names: tuple[str, ...], words: Words) -> Dataset:
    """A dataset of these images, its classes those that have some."""
    labels = sorted(set(found.labels))
    place = {label: number for number, label in enumerate(labels)}
    examples = tuple(
        Example(example.key, place[label], example.image)
        for example, label in zip(found.examples, found.labels, strict=True)
    )
    classnames = tuple(names[label] for label in labels)
    return Dataset("shots", classnames, examples, template=words)


@torch.no_grad()
def _zero_shot(
    classifier: "FewShotClassifier",
    examples: Sequence[Example],
    names: Sequence[str],
    watch: Watch | None,
) -> Array | None:
    """Logits of the untouched model; None where the classifier is just that."""
    if isinstance(classifier.method, ZeroShot):
        return None
    tuned = classifier.method.backbone
    backbone = Backbone.from_pretrained(tuned.name, classifier.experiment.revision)
    method = get_method("zero_shot")(backbone.to(tuned.device), None, classifier.method.words)
    method.eval()
    batches = []
    done = 0
    scorer = Scorer(method, method.encode_classes(names))
    for batch in predict_batches(scorer, [e.image for e in examples]):
        batches.append(batch.logits.numpy())
        done += len(batch.logits)
        if watch is not None:
            watch("scoring zero-shot", done, len(examples))
    return np.concatenate(batches).astype(np.float32)
