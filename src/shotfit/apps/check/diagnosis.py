"""What the doctor finds, as values: a sentence, how grave it is, and the images it is about."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from shotfit.data.dataset import Dataset, Example
from shotfit.data.images import ImageSource

NAMED = 3
"""Images that a sentence names; the rest are in the JSON."""
MOST = 50
"""More sentences of one kind help nobody."""


@dataclass(frozen=True)
class ShownImage:
    """An image that a diagnosis is about, the name of its class, and what is said of it alone."""

    key: str
    name: str
    image: ImageSource = field(repr=False)
    note: str = ""

    @classmethod
    def of(cls, dataset: Dataset, example: Example, note: str = "") -> "ShownImage":
        """An example of a dataset."""
        return cls(example.key, dataset.classnames[example.label], example.image, note)


@dataclass(frozen=True)
class Diagnosis:
    """One thing that was found. An error would stop a run; a warning would not. `groups` are the
    images it is about, pairs together."""

    kind: str
    text: str
    level: Literal["error", "warning"] = "warning"
    groups: tuple[tuple[ShownImage, ...], ...] = ()

    def plain(self) -> dict[str, Any]:
        """JSON-ready values: every image with its class, and the number of its group."""
        images = [
            {"image": one.key, "class": one.name, "group": number}
            | ({"note": one.note} if one.note else {})
            for number, group in enumerate(self.groups)
            for one in group
        ]
        return {"kind": self.kind, "level": self.level, "text": self.text, "images": images}


@dataclass(frozen=True)
class CheckReport:
    """All that was found in a dataset; `model` says what was asked of a model, empty for none."""

    name: str
    classes: tuple[tuple[str, int], ...]
    """Names with their numbers of training images."""
    images: dict[str, int]
    diagnoses: tuple[Diagnosis, ...]
    model: dict[str, Any] = field(default_factory=dict)

    def texts(self, level: str) -> list[str]:
        """The sentences of a level."""
        return [one.text for one in self.diagnoses if one.level == level]

    def plain(self) -> dict[str, Any]:
        """JSON-ready values."""
        return {
            "name": self.name,
            "classes": len(self.classes),
            "images": self.images,
            "problems": self.texts("error"),
            "notes": self.texts("warning"),
            "diagnoses": [one.plain() for one in self.diagnoses],
            "model": self.model,
        }


def errors(kind: str, texts: Sequence[str], more: str) -> list[Diagnosis]:
    """Errors of a kind, of which no more are told than help; `more` names the rest."""
    told = [Diagnosis(kind, text, "error") for text in texts[:MOST]]
    if len(texts) > MOST:
        told.append(Diagnosis(kind, f"{len(texts) - MOST:,} more {more}", "error"))
    return told


def listed(words: Sequence[str], most: int = NAMED) -> str:
    """The first of some words, with a sign of there being more."""
    return ", ".join(words[:most]) + (" …" if len(words) > most else "")
