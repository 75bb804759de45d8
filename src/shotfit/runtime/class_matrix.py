"""The class matrix: what an image's features are multiplied with, and all that may change of it.

A value: adding, removing and correcting give a new one with the next version, so that whoever
answers with one never sees it change.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from shotfit.classes import ClassList
from shotfit.errors import DataError, UsageError
from shotfit.evaluation.decisions import Scores
from shotfit.runtime.rule import FittedRule
from shotfit.runtime.tensors import read_tensors, write_tensors

FORMAT = "1"
MARGIN = 1.0
"""By how many logits a correction puts the right class above the others."""
STEP = 0.5
"""The most that a correction changes a row by, as a share of the usual length of a row."""

ClassRow = tuple[np.ndarray, float]
"""A class's row (features,) and its offset."""


@dataclass(frozen=True, eq=False)
class ClassMatrix:
    """Classes and their rows; what was removed is kept, so that a trained class can return.

    Without a `rule`, scores are as published: features (batch, f) times `rows` (all classes, f)
    transposed, plus `offsets` (all classes,). With one, rows are scaled unit embeddings, of which
    the rule makes the weights. `moved` (all classes, f) is what corrections have added to these.
    """

    classes: ClassList
    rows: np.ndarray
    offsets: np.ndarray
    moved: np.ndarray
    rule: FittedRule | None = None
    version: int = 1
    _weight: np.ndarray = field(init=False, repr=False)
    _bias: np.ndarray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        count, width = len(self.classes.everything), self.rows.shape[-1]
        shapes = [self.rows.shape, self.moved.shape, (*self.offsets.shape, width)]
        if any(shape != (count, width) for shape in shapes):
            raise DataError(f"A class matrix of {count} classes has arrays of {shapes}.")
        active = list(self.classes.active)
        weight, bias = self.rows[active], self.offsets[active]
        if self.rule is not None:
            embeds = (self.rows / self.rule.scale).astype(np.float32)
            head = self.rule.head(self.classes, embeds)
            weight, bias = head.weight, head.bias
        object.__setattr__(self, "_weight", weight + self.moved[active])
        object.__setattr__(self, "_bias", bias)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the classes that are answered with, in the order of the scores."""
        return self.classes.names

    @property
    def trained(self) -> tuple[bool, ...]:
        """Which of these classes are answered by trained rows."""
        return tuple(place < len(self.classes.trained) for place in self.classes.active)

    @property
    def held_out(self) -> Scores | None:
        """Scores of held-out shots, by which `Refusal` and `Sets` decide; None without any."""
        return None if self.rule is None else self.rule.held_out

    def familiarity(self, features: np.ndarray) -> np.ndarray | None:
        """How well the answer to each image fits, (batch,); None without a fitted rule."""
        if self.rule is None:
            return None
        return self.rule.familiarity(self.classes, self.scores(features), features)

    def scores(self, features: np.ndarray) -> np.ndarray:
        """Logits (batch, classes) of features (batch, f)."""
        return features @ self._weight.T + self._bias

    def probabilities(self, features: np.ndarray) -> np.ndarray:
        """Softmax of the scores, float32 (batch, classes)."""
        scores = self.scores(features)
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return (powers / powers.sum(axis=-1, keepdims=True)).astype(np.float32)

    def with_added(
        self, names: Sequence[str], embed: Callable[[str], ClassRow] | None
    ) -> "ClassMatrix":
        """With classes known by name, whose rows `embed` makes. A trained class that was removed
        comes back as it was.

        Raises:
            UsageError: for a name that is new when there is no `embed`.
        """
        classes = self.classes.with_added(names)
        new = classes.added[len(self.classes.added) :]
        if new and embed is None:
            raise UsageError(
                f"This classifier takes no class by its name alone, {new[0]!r}: its method is "
                "bound to its classes, or it was exported without its text tower."
            )
        made = [embed(name) for name in new] if embed is not None else []
        none = np.zeros((len(made), self.rows.shape[1]), np.float32)
        return self._next(
            classes=classes,
            rows=np.concatenate([self.rows, *(row[None] for row, _ in made)]),
            offsets=np.append(self.offsets, [offset for _, offset in made]).astype(np.float32),
            moved=np.concatenate([self.moved, none]),
            rule=None if self.rule is None else self.rule.with_names(len(made)),
        )

    def without(self, names: Sequence[str]) -> "ClassMatrix":
        """Without these classes (all classes of a name).

        Raises:
            UsageError: for a name that is not among the classes, or when none would be left.
        """
        return self._next(classes=self.classes.without(names))

    def corrected(self, features: np.ndarray, name: str) -> "ClassMatrix":
        """With the class `name` for an image of features (f,): where it does not win by `MARGIN`
        logits, its row and that of the best other class move until it does, by `STEP` at most.

        The passive-aggressive update of Crammer et al., Online Passive-Aggressive Algorithms, JMLR
        7 (2006), sections 3 and 8, with the bound of PA-I.

        Raises:
            UsageError: for a name that is not among the classes, or that several have.
        """
        own = [number for number, known in enumerate(self.names) if known == name]
        if len(own) != 1:
            raise UsageError(f"There is {'more than one' if own else 'no'} class {name!r}.")
        scores = self.scores(features[None])[0]
        rivals = np.delete(np.arange(len(scores)), own)
        if not len(rivals):
            return self
        rival = int(rivals[scores[rivals].argmax()])
        loss = MARGIN - float(scores[own[0]] - scores[rival])
        if loss <= 0:
            return self
        length = float(np.median(np.linalg.norm(self._weight, axis=1)))
        norm = float(np.linalg.norm(features))
        step = min(loss / (2 * norm**2), STEP * length / norm)
        moved = self.moved.copy()
        moved[self.classes.active[own[0]]] += step * features
        moved[self.classes.active[rival]] -= step * features
        return self._next(moved=moved)

    def _next(self, **changed: Any) -> "ClassMatrix":
        return replace(self, version=self.version + 1, **changed)

    def write(self, path: Path) -> None:
        """Writes the file that `read` reads.

        Raises:
            OSError: when it cannot be written; what was there before is there still.
        """
        facts = {
            "format": FORMAT,
            "version": self.version,
            "classes": {key: list(value) for key, value in vars(self.classes).items()},
            "rule": None if self.rule is None else self.rule.facts,
        }
        arrays = {"rows": self.rows, "offsets": self.offsets, "moved": self.moved}
        arrays |= {} if self.rule is None else self.rule.arrays
        write_tensors(path, arrays, {"shotfit": json.dumps(facts, ensure_ascii=False)})

    @classmethod
    def read(cls, path: Path) -> "ClassMatrix":
        """The class matrix in a file.

        Raises:
            DataError: for a file that is missing, or that holds something else.
        """
        arrays, facts = read_tensors(path)
        try:
            found = json.loads(facts["shotfit"])
            if found["format"] != FORMAT:
                raise ValueError(f"its format is {found['format']!r}, not {FORMAT!r}")
            if not all(np.isfinite(array).all() for array in arrays.values()):
                raise ValueError("its numbers are not finite")
            rule = None if found["rule"] is None else FittedRule.read(found["rule"], arrays)
            return cls(
                ClassList(**{key: tuple(value) for key, value in found["classes"].items()}),
                *(arrays[name] for name in ("rows", "offsets", "moved")),
                rule=rule,
                version=int(found["version"]),
            )
        except (KeyError, ValueError, TypeError, IndexError, RecursionError) as error:
            raise DataError(f"{path} holds no classes that can be used: {error}") from error
