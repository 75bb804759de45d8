"""Means, harmonic means, the 95 % interval of a mean, and tests of it, without scipy."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean of at least one value."""
    return sum(values) / len(values)


def harmonic_mean(base: float, novel: float) -> float:
    """2 B N / (B + N), or 0 when both are 0; over datasets or seeds, pass the averages."""
    return 2 * base * novel / (base + novel) if base + novel else 0.0


@dataclass(frozen=True)
class Estimate:
    """A mean over `runs` values; `half_width` of its 95 % interval, None from one run."""

    mean: float
    half_width: float | None
    runs: int

    @property
    def interval(self) -> tuple[float, float]:
        """Lower and upper end; both the mean when there is no interval."""
        spread = self.half_width or 0.0
        return self.mean - spread, self.mean + spread


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and half-width t s / sqrt(n) of the values, s with n - 1 degrees of freedom."""
    count, middle = len(values), mean(values)
    if count < 2:
        return Estimate(middle, None, count)
    variance = sum((value - middle) ** 2 for value in values) / (count - 1)
    return Estimate(middle, t_quantile(count - 1) * math.sqrt(variance / count), count)


@cache
def t_quantile(freedom: int, level: float = 0.95) -> float:
    """The two-sided quantile of Student's t: the middle `level` lies within plus and minus it."""
    low, high = 0.0, 1e4
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < level else (low, middle)
    return (low + high) / 2


def t_probability(t: float, freedom: int) -> float:
    """The two-sided p-value of a value of Student's t."""
    return max(0.0, 1 - _within(abs(t), freedom))


def holm(probabilities: Sequence[float]) -> list[float]:
    """p-values corrected for being several, in the order given (Holm, A simple sequentially
    rejective multiple test procedure, Scandinavian Journal of Statistics 1979)."""
    count, highest = len(probabilities), 0.0
    corrected = [0.0] * count
    for rank, number in enumerate(sorted(range(count), key=lambda n: probabilities[n])):
        highest = max(highest, min(1.0, (count - rank) * probabilities[number]))
        corrected[number] = highest
    return corrected


def _within(t: float, freedom: int) -> float:
    """P(|T| < t) (Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = total = 0.0
    for power in range(odd, freedom - 1, 2):
        term = (
            1.0 if power == 0 else cosine if power == 1 else term * cosine**2 * (power - 1) / power
        )
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


@dataclass(frozen=True)
class Proportion:
    """How many of `images` are right."""

    right: int
    images: int

    @property
    def percent(self) -> float:
        """The share in percent; 0 of no images."""
        return 100 * self.right / self.images if self.images else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval in percent (Wilson, Probable inference, JASA 1927): it stays between 0
        and 100 and holds for a handful of images; of none it is all that is possible."""
        if not self.images:
            return 0.0, 100.0
        z, n, share = Z95, self.images, self.right / self.images
        middle = share + z * z / (2 * n)
        half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
        low, high = ((middle + sign * half) / (1 + z * z / n) for sign in (-1, 1))
        return 100 * max(0.0, low), 100 * min(1.0, high)


Z95 = 1.959963984540054
"""The middle 95 % of a normal variable lie within plus and minus this."""
