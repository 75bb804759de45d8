"""Figures from records only: harmonic means with intervals, and base against novel accuracy.

Needs the extra `plots` (matplotlib), which is imported when a figure is made.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shotfit.averages import Estimate
from shotfit.errors import UsageError
from shotfit.paper import unique
from shotfit.report.figures.canvas import INK, LINE, SOFT, plain_axes
from shotfit.report.labels import axis_title, method_label
from shotfit.report.protocol import Run
from shotfit.report.suite import describe_protocol, rows_of
from shotfit.report.tables import seed_means

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours (2008), told apart with any colour vision.
TWO_STAGE, ONE_STAGE, ZERO_SHOT = "#0072B2", "#E69F00", "#6B7280"
KINDS = (("two stages", TWO_STAGE), ("one stage", ONE_STAGE), ("zero-shot", ZERO_SHOT))
SCATTER_SIZE = (7.2, 5.4)
SCATTER_POINTS = (470.0, 320.0)
"""Inches of the figure, and about how many points its axes take of it, to place labels."""


def ranking(runs: Sequence[Run], metric: str | None = None) -> "Figure":
    """A point per method, best on top: the mean over tasks with its 95 % interval over seeds.

    `metric` is a key of records: by default the harmonic mean, or accuracy in all-to-all.
    `runs` are of one protocol (`report.suite.protocol_groups`). Methods that lack a task are
    left out.

    Raises:
        UsageError: without matplotlib, or when no method has every task.
    """
    if metric is None:
        metric = "harmonic_mean" if runs and _base_to_novel(runs) else "all"
    estimates = _estimates(runs, metric)
    if not estimates:
        raise UsageError(f"No method has {metric} on every task: there is nothing to draw.")
    order = sorted(estimates, key=lambda name: estimates[name].mean)
    figure, axes = plain_axes(7.2, 1.5 + 0.34 * len(order))
    low = min(estimate.interval[0] for estimate in estimates.values())
    high = max(estimate.interval[1] for estimate in estimates.values())
    # Points, not bars: bars would have to start at zero, where no difference can be seen.
    for height, name in enumerate(order):
        estimate = estimates[name]
        color = _color(name)
        axes.hlines(height, *estimate.interval, color=color, linewidth=5, alpha=0.3)
        axes.plot(estimate.mean, height, "o", color=color, markersize=7)
        axes.annotate(
            f"{estimate.mean:.1f}",
            (high + 0.03 * (high - low + 1), height),
            va="center",
            fontsize=9,
            color=INK,
        )
    axes.set_yticks(range(len(order)), [method_label(name) for name in order])
    margin = 0.03 * (high - low + 1)
    axes.set_xlim(low - margin, high + 5 * margin)
    axes.grid(axis="x", color=LINE, linewidth=0.8)
    axes.set_xlabel(f"{axis_title(metric)}, mean of tasks (%), 95 % interval over seeds")
    _finish(figure, axes, runs, order)
    return figure


def base_novel_scatter(runs: Sequence[Run]) -> "Figure":
    """Base against novel accuracy, a point per method, with intervals and lines of equal HM.

    Raises:
        UsageError: without matplotlib, or when no method has both on every task.
    """
    base, novel = _estimates(runs, "base"), _estimates(runs, "novel")
    names = [name for name in base if name in novel]
    if not names:
        raise UsageError("No method has base and novel accuracy on every task.")
    figure, axes = plain_axes(*SCATTER_SIZE)
    for name in names:
        x, y = base[name], novel[name]
        axes.errorbar(
            x.mean,
            y.mean,
            xerr=x.half_width,
            yerr=y.half_width,
            fmt="o",
            color=_color(name),
            markersize=7,
            elinewidth=4,
            ecolor=(_color(name), 0.13),
        )
    axes.margins(0.12)
    _equal_means(axes)
    _label_points(axes, [(base[n].mean, novel[n].mean, method_label(n)) for n in names])
    axes.set_xlabel("Base accuracy (%)")
    axes.set_ylabel("Novel accuracy (%)")
    _finish(figure, axes, runs, names)
    return figure


def _finish(figure: "Figure", axes: "Axes", runs: Sequence[Run], names: Sequence[str]) -> None:
    from matplotlib.lines import Line2D

    axes.xaxis.label.set_color(SOFT)
    axes.yaxis.label.set_color(SOFT)
    tasks = len({run.dataset for run in runs})
    axes.set_title(
        f"{describe_protocol(runs)} · {tasks} tasks", loc="left", fontsize=10, color=INK, pad=26
    )
    used = {_color(name) for name in names}
    handles = [
        Line2D([], [], marker="o", linestyle="", color=color, label=label)
        for label, color in KINDS
        if color in used
    ]
    axes.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=len(handles),
        frameon=False,
        fontsize=9,
        borderaxespad=0.2,
        handletextpad=0.2,
    )


def _equal_means(axes: "Axes") -> None:
    """Faint lines along which the harmonic mean is the same, labelled where they leave."""
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    low = 2 * left * bottom / (left + bottom)
    high = 2 * right * top / (right + top)
    step = next(s for s in (0.5, 1, 2, 5, 10, 20, 50) if (high - low) / s <= 8)
    mean = (low // step + 1) * step
    while mean < high:
        xs = [left + (right - left) * n / 100 for n in range(101)]
        # N from 2BN / (B + N) = H
        line = [(x, mean * x / (2 * x - mean)) for x in xs if 2 * x > mean]
        line = [(x, y) for x, y in line if bottom <= y <= top]
        if line:
            axes.plot(*zip(*line, strict=True), color=LINE, linewidth=1, zorder=0)
            axes.annotate(
                f"HM {mean:g}",
                line[-1],
                xytext=(-3, 4),
                textcoords="offset points",
                fontsize=7,
                color=SOFT,
                ha="right",
            )
        mean += step
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, top)


def _label_points(axes: "Axes", points: Sequence[tuple[float, float, str]]) -> None:
    """Names near their points, where they cover neither another name nor a point."""
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    width, height = SCATTER_POINTS
    places = [
        ((x - left) / (right - left) * width, (y - bottom) / (top - bottom) * height, label)
        for x, y, label in points
    ]
    taken = [(x - 5, y - 5, x + 5, y + 5) for x, y, _ in places]
    for (x, y, label), (at_x, at_y, _) in zip(places, points, strict=True):
        boxes = [
            (dx, dy, side, _text_box(x + dx, y + dy, label, side))
            for reach in (10, 20, 32, 46, 60)
            for dx, dy, side in _around(reach)
        ]
        inside = [box for box in boxes if box[3][0] > 0 and box[3][2] < width]
        free = [box for box in inside if not any(_overlap(box[3], other) for other in taken)]
        dx, dy, side, box = (free or inside or boxes)[0]
        taken.append(box)
        axes.annotate(
            label,
            (at_x, at_y),
            xytext=(dx, dy),
            textcoords="offset points",
            ha=side,
            va="center",
            fontsize=8.5,
            color=INK,
            zorder=5,
            arrowprops={"arrowstyle": "-", "color": SOFT, "linewidth": 0.6, "shrinkB": 4}
            if abs(dx) + abs(dy) > 16
            else None,
        )


def _around(reach: float) -> tuple[tuple[float, float, str], ...]:
    """Offsets at a distance, and the side of the text that is anchored there."""
    slant = 0.75 * reach
    return (
        (reach, 0, "left"),
        (-reach, 0, "right"),
        (0, reach, "center"),
        (0, -reach, "center"),
        (slant, slant, "left"),
        (slant, -slant, "left"),
        (-slant, slant, "right"),
        (-slant, -slant, "right"),
    )


Box = tuple[float, float, float, float]


def _text_box(x: float, y: float, label: str, side: str) -> Box:
    """Left, bottom, right and top of a label, in points, its width estimated."""
    width = 5.2 * len(label)
    start = {"left": x, "right": x - width, "center": x - width / 2}[side]
    return start, y - 6, start + width, y + 6


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _estimates(runs: Sequence[Run], metric: str) -> dict[str, Estimate]:
    tasks = unique(sorted(run.dataset for run in runs))
    found = {name: seed_means(mine, metric, tasks) for name, mine in rows_of(runs).items()}
    return {name: estimate for name, estimate in found.items() if estimate is not None}


def _base_to_novel(runs: Sequence[Run]) -> bool:
    return runs[0].fact("setting") == "base_to_novel"


def _color(row: str) -> str:
    if row.startswith("zero_shot"):
        return ZERO_SHOT
    return TWO_STAGE if row.startswith("2sfs_") else ONE_STAGE
