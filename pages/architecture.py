"""Draws `docs/figures/architecture.svg`: the data flow of a run, and the rooms from the bottom up.

    python pages/architecture.py

The rooms are those of `tests/test_architecture.py`, which enforces what the picture says.
"""

import argparse
import importlib.util
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

REPOSITORY = Path(__file__).parent.parent
TARGET = REPOSITORY / "docs" / "figures" / "architecture.svg"

BESIDE = 4
"""Rooms that a line of the picture holds."""
VALUE, WORK, REFUSED = "#eef3fa", "#dbe8d8", "#b03a2e"
# (text, height, whether it is a value that is passed on or work that is done)
FLOW = (
    ("Experiment\nfrozen config, its hash is the run's identity", VALUE),
    ("load_dataset, make_task\nshots drawn, or read from published lists", WORK),
    ("adapt, stage 1\na Method on a Backbone: alpha of the budget", WORK),
    ("adapt, stage 2\nLinearClassifier wraps the frozen method", WORK),
    ("evaluate\nbase, novel, harmonic mean, joint", WORK),
    ("Record\none JSON file: config, metrics, curve, cost", VALUE),
)


def rooms() -> list[list[str]]:
    """The rooms by level, the lowest first."""
    path = REPOSITORY / "tests" / "test_architecture.py"
    spec = importlib.util.spec_from_file_location("test_architecture", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [line.split() for line in module.ROOMS.strip().split("\n")]


def box(axes: Axes, place: tuple[float, float], size: tuple[float, float], colour: str) -> None:
    """A box with rounded corners, its lower left corner at `place`."""
    style = "round,pad=0,rounding_size=0.12"
    axes.add_patch(FancyBboxPatch(place, *size, style, facecolor=colour, edgecolor="#56677a"))


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], **style) -> None:
    """An arrow between two points."""
    properties: Any = {"arrowstyle": "-|>", "color": "#56677a", "lw": 1.2, **style}
    axes.annotate("", end, start, arrowprops=properties)


def draw_flow(axes: Axes) -> None:
    """The way of a run, from the top down, and the way of its test images."""
    width, height, gap = 5.2, 0.95, 0.62
    tops = [11.2 - number * (height + gap) for number in range(len(FLOW))]
    for (text, colour), top in zip(FLOW, tops, strict=True):
        box(axes, (0.2, top - height), (width, height), colour)
        first, rest = text.split("\n")
        axes.text(0.4, top - 0.33, first, weight="bold", va="center")
        axes.text(0.4, top - 0.68, rest, va="center", size=8.5)
    between = ("", "support: images, labels, names", "Method", "Method", "metrics")
    for text, top, below in zip(between, tops, tops[1:], strict=False):
        arrow(axes, (2.0, top - height), (2.0, below))
        axes.text(2.15, (top - height + below) / 2, text, va="center", size=8.5, style="italic")
    side = width + 0.2
    test: Any = {"color": REFUSED, "linestyle": "--"}
    out, into = tops[1] - height / 2, tops[4] - height / 2
    axes.plot([side, side + 0.45, side + 0.45], [out, out, into], lw=1.2, **test)
    arrow(axes, (side + 0.45, into), (side, into), **test)
    axes.text(
        side + 0.6,
        (out + into) / 2,
        "tests: training has no argument for them",
        rotation=90,
        va="center",
        size=8.5,
        color=REFUSED,
    )
    axes.text(0.2, 11.5, "What happens in a run", weight="bold", size=12)
    last = tops[-1] - height
    for place, text in (
        (1.1, "report\ntables, figures"),
        (4.3, "classifier, saving\nthe method, as a folder"),
    ):
        arrow(axes, (place, last), (place, last - gap))
        first, rest = text.split("\n")
        axes.text(place, last - gap - 0.2, first, ha="center", weight="bold")
        axes.text(place, last - gap - 0.5, rest, ha="center", size=8.5)


def lines_of(level: Sequence[str]) -> list[list[str]]:
    """The rooms of a level in lines of at most `BESIDE`, about equally long."""
    names, lines = list(level), math.ceil(len(level) / BESIDE)
    return [names[number::lines] for number in range(lines)]


def draw_rooms(axes: Axes) -> None:
    """The rooms: each imports from the lines below its own."""
    left, width = 7.4, 6.4
    # Rooms of one level do not import each other: more than a line holds may lie in two.
    levels = [part for level in rooms() for part in lines_of(level)]
    step = 11.0 / len(levels)
    for number, names in enumerate(levels):
        # In a row of many, a long name has the wider box.
        texts = [
            f"{name}/" if (REPOSITORY / "src" / "shotfit" / name).is_dir() else f"{name}.py"
            for name in names
        ]
        room = width - 0.1 * (len(texts) - 1)
        corner, size = left, 9.5 if len(texts) < 4 else 6.5
        for text in texts:
            share = room * (len(text) + 2) / sum(len(each) + 2 for each in texts)
            box(axes, (corner, 0.25 + number * step), (share, step * 0.74), "#f6f1e5")
            height = 0.25 + number * step + step * 0.36
            axes.text(corner + share / 2, height, text, ha="center", va="center", size=size)
            corner += share + 0.1
    axes.text(left, 11.5, "The rooms: imports point down only", weight="bold", size=12)
    arrow(axes, (left + width + 0.3, 11.1), (left + width + 0.3, 0.3))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--png", type=Path, help="Draw it here too, to look at.")
    options = parser.parse_args()
    with mpl.rc_context({"svg.hashsalt": "shotfit", "font.size": 9.5}):
        figure, axes = plt.subplots(figsize=(11, 9))
        axes.set_xlim(0, 14.3)
        axes.set_ylim(0, 12)
        axes.axis("off")
        draw_flow(axes)
        draw_rooms(axes)
        figure.savefig(TARGET, bbox_inches="tight", metadata={"Date": None})
        if options.png is not None:
            figure.savefig(options.png, dpi=90, bbox_inches="tight")
    print(f"Wrote {TARGET.relative_to(REPOSITORY)}")


if __name__ == "__main__":
    main()
