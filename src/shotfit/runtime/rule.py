"""The fitted rule without torch: what sets trained classes, names, and names with images on one
scale (`evaluation.calibration`), as a value that a file can hold."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from shotfit.classes import ClassList
from shotfit.evaluation.calibration import Array, Calibration, Head, NameWithImages
from shotfit.evaluation.decisions import Scores
from shotfit.evaluation.heads import KnownAs, class_head
from shotfit.evaluation.rejection import NEARNESS

_ARRAYS = ("means", "given")
_GAUSSIANS = ("gaussian_weight", "gaussian_bias")
_SCORES = tuple(field.name for field in dataclasses.fields(Scores))


@dataclass(frozen=True, eq=False)
class FittedRule:
    """What `Assessment` keeps, as far as answering needs it: `scale` is the logit scale, `means`
    (trained, dim) the mean images of trained classes, `given` (added, dim) those of the images that
    added names were given, zeros for none. `held_out` are the scores of held-out shots, None in
    exports of earlier versions, `gaussians` what those of trained classes say, of GDA alone."""

    calibration: Calibration
    scale: float
    means: Array
    given: Array
    held_out: Scores | None = None
    gaussians: Head | None = None

    def head(self, classes: ClassList, embeds: Array) -> Head:
        """The active classes as an affine map; `embeds` (all classes, dim) are unit rows."""
        count, active = len(classes.trained), np.array(classes.active, np.int64)
        counts = np.array([*[0] * count, *classes.images], np.int64)
        given = np.concatenate([np.zeros_like(self.means), self.given])
        known = KnownAs(
            embeds=embeds[active],
            rows=np.where(active < count, active, -1),
            counts=counts[active],
            means=given[active],
        )
        return class_head(self.calibration, self.scale, self.means, known, self.gaussians)

    def familiarity(
        self, classes: ClassList, scores: np.ndarray, features: np.ndarray
    ) -> np.ndarray:
        """How well each image's answer among the active classes fits, (images,), by its scores
        (images, classes) and features (images, dim); see `evaluation.rejection`."""
        behind = len(classes.trained)
        given = self.given[[place - behind for place in classes.active if place >= behind]]
        shown = np.concatenate([self.means, given[np.any(given != 0, axis=1)]])
        nearness = (features @ shown.T).max(axis=1)
        return scores.max(axis=1) + NEARNESS * self.scale * nearness

    def with_names(self, count: int) -> "FittedRule":
        """For so many names more, without images."""
        none = np.zeros((count, self.given.shape[1]), np.float32)
        return dataclasses.replace(self, given=np.concatenate([self.given, none]))

    @property
    def facts(self) -> dict[str, Any]:
        """The numbers, as JSON has them."""
        return {"scale": self.scale, "calibration": dataclasses.asdict(self.calibration)}

    @property
    def arrays(self) -> dict[str, Array]:
        """The arrays, by their names in a file."""
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        if self.held_out is not None:
            arrays |= {name: getattr(self.held_out, name) for name in _SCORES}
        if self.gaussians is not None:
            arrays |= dict(
                zip(_GAUSSIANS, (self.gaussians.weight, self.gaussians.bias), strict=True)
            )
        return arrays

    @classmethod
    def read(cls, facts: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> "FittedRule":
        """The rule in a file.

        Raises:
            KeyError, TypeError: when something is missing or unknown.
        """
        numbers = dict(facts["calibration"])
        shown = tuple(NameWithImages(**part) for part in numbers.pop("with_images"))
        calibration = Calibration(**numbers, with_images=shown)
        held_out = None
        if _SCORES[0] in arrays:
            held_out = Scores(*(arrays[name] for name in _SCORES))
        gaussians = None
        if _GAUSSIANS[0] in arrays:
            gaussians = Head(*(arrays[name] for name in _GAUSSIANS))
        means, given = (arrays[name] for name in _ARRAYS)
        return cls(calibration, float(facts["scale"]), means, given, held_out, gaussians)
