"""Accuracy over a fact of the runs, such as shots: a line per method with its interval.

Needs the extra `plots` (matplotlib), which is imported when a figure is made.
"""

from typing import TYPE_CHECKING

from shotfit.averages import Estimate
from shotfit.errors import UsageError
from shotfit.report.across import Across, told
from shotfit.report.figures.canvas import INK, LINE, SOFT, plain_axes
from shotfit.report.labels import axis_title, method_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours (2008), told apart with any colour vision; then the same again, dashed.
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#6B7280")


def lines(found: Across) -> "Figure":
    """A line per row over the values of a fact: the mean over datasets, its 95 % interval over
    seeds as a band, its name at the right end. Values are evenly spaced: shots double.

    Raises:
        UsageError: without matplotlib, for fewer than two values, or when no row has all datasets
            at two of them.
    """
    points = {name: _points(found, name) for name in found.rows}
    drawn = {name: estimates for name, estimates in points.items() if len(estimates) > 1}
    if not drawn:
        raise UsageError(
            f"No method has every dataset at two values of {found.fact}: there is no line to draw."
        )
    figure, axes = plain_axes(7.2, 4.6)
    axes.grid(axis="y", color=LINE, linewidth=0.8)
    for number, (name, estimates) in enumerate(drawn.items()):
        _line(axes, number, name, estimates)
    _names(axes, drawn)
    axes.set_xticks(range(len(found.values)), [told(value) for value in found.values])
    axes.set_xlabel(found.fact, color=SOFT)
    axes.set_ylabel(f"{axis_title(found.metric)} (%)", color=SOFT)
    tasks = ", ".join(found.datasets) if len(found.datasets) < 4 else f"{len(found.datasets)} tasks"
    axes.set_title(f"{found.heading} · {tasks}", loc="left", fontsize=10, color=INK)
    return figure


def _points(found: Across, name: str) -> dict[int, Estimate]:
    """Estimates by place on the axis, where every dataset was run."""
    cells = {place: found.cell(name, value) for place, value in enumerate(found.values)}
    return {place: cell.ours for place, cell in cells.items() if cell.ours is not None}


def _line(axes: "Axes", number: int, name: str, estimates: dict[int, Estimate]) -> None:
    color = COLORS[number % len(COLORS)]
    dashed = "-" if number < len(COLORS) else "--"
    places = list(estimates)
    axes.plot(places, [e.mean for e in estimates.values()], dashed, color=color, marker="o")
    low, high = zip(*(estimate.interval for estimate in estimates.values()), strict=True)
    axes.fill_between(places, low, high, color=color, alpha=0.12, linewidth=0)


def _names(axes: "Axes", drawn: dict[str, dict[int, Estimate]]) -> None:
    """At the right ends, moved apart where they would cover each other."""
    bottom, top = axes.get_ylim()
    step = 0.048 * (top - bottom)
    ends = sorted((list(e.values())[-1].mean, n) for n, e in drawn.items())
    heights: list[float] = []
    for mean, _ in ends:
        heights.append(max(mean, heights[-1] + step) if heights else mean)
    # What was pushed up as a whole comes down by half of it.
    shift = (heights[-1] - ends[-1][0]) / 2
    numbers = {name: number for number, name in enumerate(drawn)}
    right = max(max(estimates) for estimates in drawn.values())
    for height, (_, name) in zip(heights, ends, strict=True):
        axes.annotate(
            method_label(name),
            (right, height - shift),
            xytext=(10, 0),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
            color=COLORS[numbers[name] % len(COLORS)],
            annotation_clip=False,
        )
