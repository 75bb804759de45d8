"""The figure of docs/performance.md: speed-ups against their goals, and how cost grows."""

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Okabe and Ito's colours, told apart with any colour vision.
OURS, GOAL, SOFT = "#0072B2", "#D55E00", "#697386"


def draw(records: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Draws what is there of the records of one machine."""
    import matplotlib.figure

    ratios = [
        row
        for record in records.values()
        for row in record["rows"]
        if row["unit"] == "×" and row["goal"] is not None
    ]
    curves = records["scaling"]["curves"] if "scaling" in records else []
    parts = [part for part in (ratios, curves) if part]
    if not parts:
        return
    heights = [0.9 + 0.32 * len(part) if part is ratios else 3.0 for part in parts]
    figure = matplotlib.figure.Figure(figsize=(9.6, sum(heights)), layout="constrained")
    blocks = figure.subfigures(len(parts), 1, height_ratios=heights, squeeze=False)
    for block, part in zip(blocks[:, 0], parts, strict=True):
        if part is ratios:
            _speedups(block, ratios)
        else:
            _curves(block, curves)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130, metadata={"Software": None})


def _speedups(block: Any, rows: list[Mapping[str, Any]]) -> None:
    axes = block.subplots()
    places = range(len(rows))[::-1]
    # A ratio is a distance from 1.
    axes.barh(places, [row["value"] - 1 for row in rows], left=1, color=OURS, height=0.6)
    for place, row in zip(places, rows, strict=True):
        axes.plot([row["goal"]] * 2, [place - 0.42, place + 0.42], color=GOAL, linewidth=2.5)
        axes.annotate(
            f"{row['value']:.2f} ×" if row["value"] < 10 else f"{row['value']:.1f} ×",
            (max(row["value"], row["goal"]), place),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    axes.set_yticks(list(places), [_short(row["what"]) for row in rows], fontsize=8)
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.set_xlim(min(0.9, low), high * 1.6)
    ticks = [tick for tick in (0.5, 1, 2, 5, 10, 20, 50, 100, 200) if 0.4 < tick < high * 1.6]
    axes.minorticks_off()
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks], fontsize=8)
    axes.axvline(1, color=SOFT, linewidth=0.8)
    axes.set_xlabel(
        "times faster than the published algorithm executed literally (bars), goal (ticks)",
        fontsize=9,
    )
    axes.spines[["top", "right"]].set_visible(False)


def _curves(block: Any, curves: list[Mapping[str, Any]]) -> None:
    panels = block.subplots(1, len(curves), squeeze=False)[0]
    for axes, curve in zip(panels, curves, strict=True):
        xs, ys = zip(*curve["points"], strict=True)
        axes.plot(xs, ys, "o-", color=OURS, markersize=4, linewidth=1.5)
        # Where the last point would come from if cost were linear.
        linear = [ys[-1] * x / xs[-1] for x in xs]
        axes.plot(xs, linear, ":", color=SOFT, linewidth=1.2, label="linear")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel(curve["axis"], fontsize=8)
        title = textwrap.fill(curve["name"], 40)
        axes.set_title(f"{title}\nexponent {curve['exponent']:.2f}", fontsize=8)
        axes.tick_params(labelsize=7)
        axes.legend(fontsize=7, frameon=False, loc="upper left")
        axes.spines[["top", "right"]].set_visible(False)
        axes.minorticks_off()
        axes.set_xticks(xs, [f"{x:.0f}" for x in xs])
        ends = (min(ys), max(ys))
        axes.set_yticks(ends, [f"{y:.2g}" for y in ends])
    panels[0].set_ylabel("seconds", fontsize=8)


def _short(what: str) -> str:
    return what.replace(", times faster", "").replace(", times the images a second of", " against")
