"""Figures of the study: learning dynamics, sweeps, the second stage's gain. From records only."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shotfit.paper import unique
from shotfit.records.dynamics import DynamicsPoint, LearningDynamics
from shotfit.report.ablation import SweepRow
from shotfit.report.figures.canvas import new_figure, save
from shotfit.report.phases import PATTERNS, PhaseBreak, mean_points, phase_break, smooth

# Okabe and Ito's palette: told apart by readers of every colour vision.
BASE, NOVEL, MEAN, BREAK = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
FIRST, SECOND = "#E8F1F8", "#FBF0E6"
STYLES = {
    "base": (BASE, "-", "o"),
    "novel": (NOVEL, "--", "s"),
    "harmonic mean": (MEAN, ":", "^"),
    "accuracy": (BASE, "-", "o"),
}


def plot_dynamics(
    curves: Sequence[LearningDynamics], path: Path, *, overwrite: bool = True
) -> PhaseBreak | None:
    """Draws the mean of a method's curves, over seeds and datasets; returns its break.

    The layout is the paper's figure 2: accuracy over iterations, base and novel, the break as a
    vertical line. Points are single evaluations of the mean, lines are smoothed. The seeds of one
    dataset are drawn too, faintly.
    """
    datasets = unique(curve.dataset for curve in curves)
    points = mean_points([curve.points for curve in curves])
    found = phase_break(points)
    figure = new_figure(5.2, 3.7)
    axes = figure.subplots()
    window = max(5, len(points) // 10 | 1)
    x = [point.iteration for point in points]
    for name in ("base", "novel"):
        color, style, marker = STYLES[name]
        values = [getattr(point, name) for point in points]
        if len(curves) > len(datasets) == 1:
            for curve in curves:
                seeds = [getattr(point, name) for point in curve.points]
                where = [point.iteration for point in curve.points]
                axes.plot(where, seeds, color=color, alpha=0.18, linewidth=0.7)
        axes.plot(x, values, marker, color=color, alpha=0.45, markersize=2.5, linewidth=0)
        axes.plot(x, smooth(values, window), style, color=color, linewidth=2, label=name)
        axes.axhline(values[0], color=color, linewidth=0.7, linestyle=(0, (1, 3)))
    _mark(axes, points, found)
    axes.set_xlabel("iteration")
    axes.set_ylabel("accuracy on held-out images (%)")
    axes.set_xlim(0, max(x))
    first = curves[0]
    shots = first.experiment["shots"]
    runs = {curve.seed for curve in curves}
    seeds = f"{len(runs)} seeds" if len(runs) > 1 else f"seed {first.seed}"
    where = first.dataset if len(datasets) == 1 else f"mean of {len(datasets)} tasks"
    axes.set_title(f"{where}, {first.method}: {shots} shots, {seeds}", fontsize=10)
    axes.legend(loc="lower right", fontsize=8, framealpha=0.9)
    save(figure, path, overwrite=overwrite)
    return found


def _mark(axes: Any, points: Sequence[DynamicsPoint], found: PhaseBreak | None) -> None:
    """The break as a line, the phases as shades, and in words what the curve does."""
    if found is None:
        return
    end = points[-1].iteration
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + 0.16 * (high - low))
    note = (
        f"{found.pattern.replace('_', ' ')}: novel {found.novel_gain:+.1f} up to the break, "
        f"{-found.novel_loss:+.1f} after; base {found.base_gain_after:+.1f} after"
    )
    if found.exists:
        axes.axvspan(0, found.iteration, color=FIRST, zorder=0, linewidth=0)
        axes.axvspan(found.iteration, end, color=SECOND, zorder=0, linewidth=0)
        axes.axvline(found.iteration, color=BREAK, linewidth=1.8)
        edge = {"transform": axes.get_xaxis_transform(), "va": "top", "fontsize": 8}
        middle = found.iteration / 2
        if found.iteration > 0.16 * end:
            axes.text(middle, 0.985, "first phase", ha="center", **edge)
        if end - found.iteration > 0.16 * end:
            axes.text((found.iteration + end) / 2, 0.985, "second phase", ha="center", **edge)
        side = "left" if found.iteration < 0.6 * end else "right"
        label = f" break at {found.iteration} "
        axes.text(found.iteration, 0.93, label, color="#8A3A68", ha=side, **edge)
    else:
        note = f"no break: {PATTERNS[found.pattern]}"
    axes.annotate(
        note,
        (0.5, -0.21),
        xycoords="axes fraction",
        ha="center",
        fontsize=8,
        color="#444444",
    )


def plot_sweep(
    rows: Sequence[SweepRow],
    names: Sequence[str],
    title: str,
    path: Path,
    *,
    overwrite: bool = True,
) -> None:
    """Draws what was measured over one swept option, or over two; `names` are those of the axes."""
    one = len(names) == 1
    figure = new_figure(5.2, 3.5) if one else new_figure(5.2, 4)
    axes = figure.subplots()
    if one:
        _lines(axes, rows)
    else:
        _grid(axes, rows)
        axes.set_ylabel(names[1])
    axes.set_xlabel(names[0])
    axes.set_title(title, fontsize=10)
    save(figure, path, overwrite=overwrite)


def _lines(axes: Any, rows: Sequence[SweepRow]) -> None:
    """Base, novel and harmonic mean, or accuracy, over the values; bars span the 95 % interval of
    the mean over seeds. Words, and rates that span more than a factor of eight, are spaced evenly
    as they stand."""
    values = [point[0] for point, _ in rows]
    numbers = [value for value in values if not isinstance(value, str)]
    even = len(numbers) < len(values) or (min(numbers) > 0 and max(numbers) > 8 * min(numbers))
    x = list(range(len(values))) if even else numbers
    for key, (color, style, marker) in STYLES.items():
        if not all(key in measured for _, measured in rows):
            continue
        found = [measured[key] for _, measured in rows]
        axes.errorbar(
            x,
            [each.mean for each in found],
            yerr=[each.half_width or 0 for each in found],
            color=color,
            linestyle=style,
            marker=marker,
            capsize=2,
            label=key,
        )
    axes.set_xticks(x, [_told(value) for value in values])
    axes.set_ylabel("accuracy (%)")
    axes.legend(fontsize=8, framealpha=0.9)
    axes.grid(axis="y", alpha=0.3)


def _grid(axes: Any, rows: Sequence[SweepRow]) -> None:
    """A coloured cell for every pair of values, with its harmonic mean or accuracy in it; the best
    is framed, and a pair that was not run stays empty."""
    across, up = (list(dict.fromkeys(p[n] for p, _ in rows)) for n in (0, 1))
    key = (
        "harmonic mean" if all("harmonic mean" in measured for _, measured in rows) else "accuracy"
    )
    known = {point: measured[key].mean for point, measured in rows if key in measured}
    table = [[known.get((x, y), math.nan) for x in across] for y in up]
    shown = axes.imshow(table, cmap="cividis", origin="lower", aspect="auto")
    best, lowest = max(known.values()), min(known.values())
    for (x, y), value in known.items():
        dark = value < (best + lowest) / 2
        place = (across.index(x), up.index(y))
        words = {"ha": "center", "va": "center", "fontsize": 9}
        axes.text(*place, f"{value:.1f}", color="white" if dark else "black", **words)
        if value == best:
            sides = [(-0.47, -0.47), (0.47, -0.47), (0.47, 0.47), (-0.47, 0.47), (-0.47, -0.47)]
            frame = [(place[0] + right, place[1] + high) for right, high in sides]
            axes.plot(*zip(*frame, strict=True), color=BREAK, linewidth=2.5)
    axes.set_xticks(range(len(across)), [_told(value) for value in across])
    axes.set_yticks(range(len(up)), [_told(value) for value in up])
    axes.figure.colorbar(shown, ax=axes, label=f"{key} (%)")


def _told(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def plot_gain(
    gains: Mapping[str, float],
    runs: Mapping[str, Sequence[float]],
    title: str,
    path: Path,
    *,
    overwrite: bool = True,
) -> None:
    """Draws what the second stage adds to leaving after the first, in points of accuracy: a bar a
    dataset, sorted; dots are its single `runs`."""
    names = sorted(gains, key=lambda name: gains[name])
    figure = new_figure(5.2, 0.9 + 0.3 * len(names))
    axes = figure.subplots()
    means = [gains[name] for name in names]
    colors = [BASE if points >= 0 else NOVEL for points in means]
    axes.barh(names, means, color=colors, height=0.65)
    for row, name in enumerate(names):
        axes.plot(runs[name], [row] * len(runs[name]), "k.", markersize=3, alpha=0.6)
    low, high = axes.get_xlim()
    axes.set_xlim(low - 0.1 * (high - low), high + 0.1 * (high - low))
    for row, value in enumerate(means):
        axes.annotate(
            f"{value:+.1f}",
            (1.01, row),
            xycoords=axes.get_yaxis_transform(),
            va="center",
            fontsize=8,
        )
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_xlabel("points of accuracy added by the second stage")
    axes.set_title(title, fontsize=10)
    save(figure, path, overwrite=overwrite)
