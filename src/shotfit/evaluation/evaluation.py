"""What an evaluation found: every number that follows from logits, labels and names.

Nothing here needs a model. Accuracies are percent and carry their number of images and a 95 %
interval; a class without test images stays among the answers, so that it can be answered wrongly.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shotfit.averages import Proportion, harmonic_mean
from shotfit.evaluation.reliability import calibration_error, chance_error, confidences
from shotfit.evaluation.unknown_names import UnknownName

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Part:
    """Some of the test images, and the names that they were compared with."""

    accuracy: Proportion
    calibration_error: float
    chance_error: float
    """The calibration error, percent, that as many images show on average were it zero."""


@dataclass(frozen=True)
class ClassResult:
    """One class: `right` of `images` of it were answered so, and `answers` images were, of any
    class; `zero_shot` are right without any training."""

    name: str
    trained: bool
    accuracy: Proportion
    answers: int
    zero_shot: Proportion | None

    @property
    def f1(self) -> float:
        """2 TP / (images + answers), in percent."""
        total = self.accuracy.images + self.answers
        return 200 * self.accuracy.right / total if total else 0.0


@dataclass(frozen=True)
class Evaluation:
    """Test images scored among `names` (classes,), the first thing that anyone should be told.

    `labels` (images,) are places among the names, `logits` (images, classes) those that `predict`
    answers with, `keys` name the images. `trained` says which names stand for classes trained on
    images: base classes, the others being novel. With `halves`, base and novel images are also
    scored among the names of their own kind, as papers do. `zero_shot` (images, classes) are the
    logits of the untouched model.
    """

    names: tuple[str, ...]
    trained: tuple[bool, ...]
    keys: tuple[str, ...]
    labels: NDArray[np.int64]
    logits: Array
    scored: str
    """What the images are: "test images", say, or that they were cross-validated."""
    among: str = "the classifier's names"
    """What the names are."""
    halves: bool = False
    rule: str = "published"
    """How classes were compared: as "published", or by levels "fitted" on the shots."""
    trained_on: int = 0
    """Images left out because the classifier was trained on them."""
    unknown: tuple[UnknownName, ...] = ()
    zero_shot: Array | None = field(default=None)

    @property
    def accuracy(self) -> Proportion:
        """Images answered right, among all `names`."""
        return self._proportion(self.answers == self.labels)

    @property
    def top5(self) -> Proportion | None:
        """Images whose class is among the five likeliest; None with five names or fewer."""
        if len(self.names) <= 5:
            return None
        own = self.logits[np.arange(len(self.labels)), self.labels]
        return self._proportion((self.logits > own[:, None]).sum(axis=1) < 5)

    @property
    def zero_shot_accuracy(self) -> Proportion | None:
        """What the untouched model gets right on the same images, among the same names."""
        if self.zero_shot is None:
            return None
        return self._proportion(self.zero_shot.argmax(axis=1) == self.labels)

    @cached_property
    def answers(self) -> NDArray[np.int64]:
        """The answer to each image, a place among the names, (images,)."""
        return self.logits.argmax(axis=1) if len(self.logits) else np.zeros(0, np.int64)

    @cached_property
    def confusion(self) -> NDArray[np.int64]:
        """How many images of the class of the row were answered with that of the column."""
        counts = np.zeros((len(self.names), len(self.names)), dtype=np.int64)
        np.add.at(counts, (self.labels, self.answers), 1)
        return counts

    @cached_property
    def per_class(self) -> tuple[ClassResult, ...]:
        """One result for each name, those without test images too."""
        untouched = None if self.zero_shot is None else self.zero_shot.argmax(axis=1)
        found = []
        for place, name in enumerate(self.names):
            own = self.labels == place
            right = None if untouched is None else self._proportion(untouched[own] == place)
            found.append(
                ClassResult(
                    name=name,
                    trained=self.trained[place],
                    accuracy=self._proportion(self.answers[own] == place),
                    answers=int((self.answers == place).sum()),
                    zero_shot=right,
                )
            )
        return tuple(found)

    @property
    def macro_f1(self) -> float:
        """The mean F1 of the classes that have test images or answers, in percent."""
        scores = [r.f1 for r in self.per_class if r.accuracy.images or r.answers]
        return float(np.mean(scores)) if scores else 0.0

    @cached_property
    def parts(self) -> Mapping[str, Part]:
        """All images, "joint"; where both kinds have images, also "base_in_joint" and
        "novel_in_joint", among all names, and with `halves` "base" and "novel", among their own."""
        trained = np.array(self.trained, dtype=np.bool_)
        of_base = trained[self.labels]
        everything = np.ones(len(trained), dtype=np.bool_)
        found = {"joint": self._part(np.ones(len(self.labels), dtype=np.bool_), everything)}
        if self.halves and of_base.any():
            found["base"] = self._part(of_base, trained)
        if self.halves and not of_base.all():
            found["novel"] = self._part(~of_base, ~trained)
        if of_base.any() and not of_base.all():
            found["base_in_joint"] = self._part(of_base, everything)
            found["novel_in_joint"] = self._part(~of_base, everything)
        return found

    @property
    def metrics(self) -> dict[str, float]:
        """Percentages by the names that records have for them; "accuracy" is over all images, with
        its 95 % interval from "accuracy_low" to "accuracy_high"."""
        low, high = self.accuracy.interval
        values = {"accuracy": self.accuracy.percent, "accuracy_low": low, "accuracy_high": high}
        values["macro_f1"] = self.macro_f1
        if self.top5 is not None:
            values["top5"] = self.top5.percent
        values["calibration_error"] = self.parts["joint"].calibration_error
        if self.zero_shot_accuracy is not None:
            values["zero_shot"] = self.zero_shot_accuracy.percent
        parts = {key: part.accuracy.percent for key, part in self.parts.items() if key != "joint"}
        if {"base", "novel"} <= parts.keys():
            values["harmonic_mean"] = harmonic_mean(parts["base"], parts["novel"])
        if "base_in_joint" in parts:
            values["joint_harmonic_mean"] = harmonic_mean(
                parts["base_in_joint"], parts["novel_in_joint"]
            )
        return {**values, **parts}

    def plain(self) -> dict[str, Any]:
        """JSON-ready values; without the images' own, which `predictions` has."""
        parts = {
            key: {
                "accuracy": _plain(part.accuracy),
                "calibration_error": part.calibration_error,
                "calibration_error_by_chance": part.chance_error,
            }
            for key, part in self.parts.items()
        }
        return {
            "scored": self.scored,
            "among": self.among,
            "rule": self.rule,
            "images": len(self.labels),
            "metrics": self.metrics,
            "accuracy": _plain(self.accuracy),
            "top5": _plain(self.top5),
            "zero_shot": _plain(self.zero_shot_accuracy),
            "parts": parts,
            "left_out_as_trained_on": self.trained_on,
            "unknown_names": [
                {"name": u.name, "images": u.images, "meant": u.meant} for u in self.unknown
            ],
            "classes": [
                {
                    "name": one.name,
                    "trained": one.trained,
                    "accuracy": _plain(one.accuracy),
                    "f1": one.f1,
                    "answers": one.answers,
                    "zero_shot": _plain(one.zero_shot),
                }
                for one in self.per_class
            ],
            "confusion": self.confusion.tolist(),
        }

    def predictions(self) -> list[dict[str, Any]]:
        """For each image its key, its class, the answer, how sure it is, and all logits."""
        sure, _ = confidences(self.logits, self.labels)
        return [
            {
                "image": key,
                "class": self.names[label],
                "answer": self.names[answer],
                "probability": round(float(probability), 6),
                "logits": [round(float(value), 4) for value in logits],
            }
            for key, label, answer, probability, logits in zip(
                self.keys, self.labels, self.answers, sure, self.logits, strict=True
            )
        ]

    def _part(self, images: NDArray[np.bool_], names: NDArray[np.bool_]) -> Part:
        logits = self.logits[np.ix_(images, names)]
        labels = (np.cumsum(names) - 1)[self.labels[images]]
        sure, right = confidences(logits, labels)
        return Part(self._proportion(right), calibration_error(sure, right), chance_error(sure))

    @staticmethod
    def _proportion(right: NDArray[np.bool_]) -> Proportion:
        return Proportion(int(right.sum()), len(right))


def _plain(proportion: Proportion | None) -> dict[str, Any] | None:
    if proportion is None or not proportion.images:
        return None
    return {
        "percent": proportion.percent,
        "interval": list(proportion.interval),
        "images": proportion.images,
    }
