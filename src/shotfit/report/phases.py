"""The two phases of few-shot adaptation in a curve of accuracies, and the break between them.

Paper: Farina et al., CVPR 2025, section 3.2: first base and novel accuracy rise together, then
novel accuracy is given up for base accuracy, https://arxiv.org/abs/2503.11609. The paper draws the
break by eye; here it is found by a rule.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from shotfit.records.dynamics import DynamicsPoint

Pattern = Literal["two_phases", "together", "saturates", "rising", "falling"]
PATTERNS: dict[Pattern, str] = {
    "two_phases": "novel accuracy rises, then falls while base accuracy goes on rising",
    "together": "novel accuracy rises, then falls, and base accuracy does not rise any more",
    "saturates": "novel accuracy rises and stays",
    "rising": "novel accuracy is highest at the end",
    "falling": "novel accuracy never rises above its start",
}


@dataclass(frozen=True)
class PhaseBreak:
    """Where a novel curve stops rising, and what happens around it; accuracies in percent."""

    iteration: int
    pattern: Pattern
    novel_gain: float
    """Smoothed novel accuracy at the break minus that at the start."""
    novel_loss: float
    """Smoothed novel accuracy at the break minus that at the end."""
    base_gain_after: float
    """Smoothed base accuracy at the end minus that at the break."""
    noise: float
    """Standard error of a smoothed novel accuracy."""

    @property
    def exists(self) -> bool:
        """Whether the novel curve breaks anywhere: one that only rises or falls does not."""
        return self.pattern in ("two_phases", "together", "saturates")


def smooth(values: Sequence[float] | np.ndarray, window: int) -> np.ndarray:
    """Local straight-line fits over `window` neighbours, at the ends over the nearest ones.

    A straight line, not a mean: a mean would flatten the steep start that most curves have.
    """
    y = np.asarray(values, dtype=float)
    count, half = len(y), window // 2
    out = np.empty(count)
    for i in range(count):
        low, high = max(0, i - half), min(count, i + half + 1)
        x = np.arange(low, high) - i
        if len(x) < 3:
            out[i] = y[low:high].mean()
            continue
        # Tricube weights, as lowess has (Cleveland 1979).
        weights = (1 - (np.abs(x) / (half + 1)) ** 3) ** 3
        out[i] = np.polyfit(x, y[low:high], 1, w=np.sqrt(weights))[1]
    return out


def phase_break(points: Sequence[DynamicsPoint]) -> PhaseBreak | None:
    """The break of the two phases; None below five points.

    The break is the maximum of the smoothed novel curve. A rise or a fall counts when it is more
    than four standard errors of a smoothed value (four: the maximum is the largest of many, and
    the ends of the curve are less certain). The error is estimated from the second differences of
    the curve, which a smooth trend leaves out. Where novel accuracy does not fall again, the
    break is the first point within one standard error of the maximum: a plateau begins there, and
    its highest point is chance.
    """
    if len(points) < 5:
        return None
    window = max(5, len(points) // 10 | 1)
    raw = np.asarray([point.novel for point in points])
    novel = smooth(raw, window)
    base = smooth([point.base for point in points], window)
    noise = _standard_error(raw, window)
    base_noise = _standard_error(np.asarray([point.base for point in points]), window)
    top = int(novel.argmax())
    rises = novel[top] - novel[0] > 4 * noise and top > 0
    falls = novel[top] - novel[-1] > 4 * noise and top < len(points) - 1
    if rises and not falls:
        top = int(np.flatnonzero(novel >= novel[top] - noise)[0])
    gain_after = float(base[-1] - base[top])
    pattern: Pattern
    if not rises:
        pattern = "falling"
    elif falls:
        pattern = "two_phases" if gain_after > base_noise else "together"
    else:
        pattern = "rising" if top >= 0.9 * (len(points) - 1) else "saturates"
    return PhaseBreak(
        iteration=points[top].iteration,
        pattern=pattern,
        novel_gain=float(novel[top] - novel[0]),
        novel_loss=float(novel[top] - novel[-1]),
        base_gain_after=gain_after,
        noise=noise,
    )


def mean_points(curves: Sequence[Sequence[DynamicsPoint]]) -> tuple[DynamicsPoint, ...]:
    """The mean of curves, one per seed, at the iterations that all of them have."""
    common = set.intersection(*({p.iteration for p in curve} for curve in curves))
    rows: dict[int, list[DynamicsPoint]] = {iteration: [] for iteration in sorted(common)}
    for curve in curves:
        for point in curve:
            if point.iteration in rows:
                rows[point.iteration].append(point)
    return tuple(
        DynamicsPoint(
            iteration,
            sum(point.base for point in row) / len(row),
            sum(point.novel for point in row) / len(row),
        )
        for iteration, row in rows.items()
    )


def _standard_error(values: np.ndarray, window: int) -> float:
    """Of a smoothed value: the spread of single ones over the square root of the window.

    Second differences of white noise have six times its variance. The larger of two robust
    estimates of it: their median is not moved by the steep steps at the start of a curve, but is
    zero for a quiet curve, since accuracy comes in steps of one image; there the upper quartile
    decides.
    """
    middle, upper = np.quantile(np.abs(np.diff(values, 2)), [0.5, 0.75])
    spread = max(float(middle) / 0.6745, float(upper) / 1.1503) / np.sqrt(6)
    # Never zero, or the rounding of a flat curve would count as a rise.
    return max(1e-6, float(spread / np.sqrt(window)))
