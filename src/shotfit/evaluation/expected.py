"""How good will it be? The accuracy to expect on new images, from the shots alone.

Shots that the rows never saw are scored by rows trained on a quarter, a half and three quarters of
the shots. Accuracy over shots is close to a line in log-odds over doublings of the shots; its value
at all shots is the estimate, its interval that of the number of images and of the line's slope.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any

SLOPE = 0.4
SLOPE_WIDTH = 0.25
"""The prior of the gain in log-odds by twice the shots: the mean over the embedded suite, with room
for others."""
EASIER = 0.25
EASIER_WIDTH = 0.15
"""How much easier, in log-odds, held-out shots are than new images, and its standard deviation:
over the embedded suite at four shots. The shots cannot tell it. That the first stage was trained on
them is not all of it: GDA, whose encoders learn nothing, is 0.21 too sure (33 fits)."""


@dataclass(frozen=True)
class CurvePoint:
    """Accuracy, a share, of held-out images with rows trained on `share` of the shots."""

    share: float
    accuracy: float
    images: int


@dataclass(frozen=True)
class ClassOutlook:
    """A class as its held-out shots see it: `accuracy` with so many `images`, the mean probability
    that they gave the right class, and the class that they are mostly taken for (None if none)."""

    name: str
    images: int
    accuracy: float
    probability: float
    taken_for: str | None


@dataclass(frozen=True)
class Expected:
    """The curve and the line through it, in log-odds: `level` at all shots and `slope` for each
    doubling, with their variances."""

    points: tuple[CurvePoint, ...]
    level: float
    level_variance: float
    slope: float
    slope_variance: float
    classes: tuple[ClassOutlook, ...] = ()

    def accuracy(self, share: float = 1.0) -> float:
        """In percent, with `share` times the shots there are."""
        return 100 * _share(self.level + self.slope * math.log2(share))

    def interval(self, confidence: float = 0.9, images: int | None = None) -> tuple[float, float]:
        """Bounds in percent of the accuracy on new images; with `images`, of what so many of them
        will show, which scatters the more the fewer there are."""
        share = _share(self.level)
        variance = self.level_variance
        if images is not None:
            variance += 1 / (images * share * (1 - share))
        half = NormalDist().inv_cdf((1 + confidence) / 2) * math.sqrt(variance)
        return 100 * _share(self.level - half), 100 * _share(self.level + half)

    def plain(self) -> dict[str, Any]:
        """JSON-ready values, in percent."""
        low, high = self.interval()
        more, least, most = self.gain()
        return {
            "accuracy": self.accuracy(),
            "interval_90": [low, high],
            "curve": [
                {"share": p.share, "accuracy": 100 * p.accuracy, "images": p.images}
                for p in self.points
            ],
            "gain_of_twice_the_shots": {"points": more, "interval_90": [least, most]},
            "classes": [asdict(one) for one in self.classes],
        }

    def gain(self, share: float = 2.0, confidence: float = 0.9) -> tuple[float, float, float]:
        """What `share` times the shots would add, in points, and its bounds."""
        half = NormalDist().inv_cdf((1 + confidence) / 2) * math.sqrt(self.slope_variance)
        slopes = (self.slope, self.slope - half, self.slope + half)
        base = _share(self.level)
        more, low, high = (
            100 * (_share(self.level + slope * math.log2(share)) - base) for slope in slopes
        )
        return more, low, high


def expect(points: Sequence[CurvePoint], classes: Sequence[ClassOutlook] = ()) -> Expected:
    """The line through the points, its slope held by the prior, less what held-out shots are easier
    than new images.

    Its level rests on the point of the most shots. The other points have the same images, so that
    their differences from it scatter about as much as one point does.
    """
    ordered = sorted(points, key=lambda point: point.share)
    last = ordered[-1]
    base, base_variance = _log_odds(last)
    precision, moment = 1 / SLOPE_WIDTH**2, SLOPE / SLOPE_WIDTH**2
    for point in ordered[:-1]:
        value, variance = _log_odds(point)
        doublings = math.log2(last.share / point.share)
        precision += doublings**2 / variance
        moment += doublings * (base - value) / variance
    slope, slope_variance = moment / precision, 1 / precision
    missing = -math.log2(last.share)
    return Expected(
        points=tuple(ordered),
        level=base + missing * slope - EASIER,
        level_variance=base_variance + missing**2 * slope_variance + EASIER_WIDTH**2,
        slope=slope,
        slope_variance=slope_variance,
        classes=tuple(classes),
    )


def _log_odds(point: CurvePoint) -> tuple[float, float]:
    """Log-odds of a point's accuracy and their variance, an image of each kind added in halves."""
    share = (point.accuracy * point.images + 0.5) / (point.images + 1)
    return math.log(share / (1 - share)), 1 / (point.images * share * (1 - share))


def _share(log_odds: float) -> float:
    return 1 / (1 + math.exp(-log_odds))
