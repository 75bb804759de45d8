"""The demo's picture: accuracy along both stages, and predictions with names never trained on."""

import io
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from shotfit.apps.demo.results import Curve, Prediction
from shotfit.data.images import open_image
from shotfit.system.files import write_bytes_atomically

# Okabe and Ito's colours, distinguishable by colour-blind readers.
BLUE, ORANGE, GREEN, RED, GRAY = "#0072B2", "#D55E00", "#009E73", "#CC3311", "#777777"


def draw(
    path: Path,
    task: str,
    results: dict[str, dict[str, float]],
    curve: Curve,
    predictions: list[Prediction],
) -> Path:
    """Writes the picture as a PNG and returns its path."""
    figure = plt.figure(figsize=(11, 6.4), layout="constrained")
    top, bottom = list(figure.subfigures(2, 1, height_ratios=(1.25, 1)))  # type: ignore[arg-type]
    left, right = top.subplots(1, 2, width_ratios=(1.6, 1))
    _draw_curve(left, results["zero-shot"], curve)
    _draw_bars(right, results)
    _draw_images(bottom, predictions)
    figure.suptitle(f"ShotFit on the embedded task “{task}”", fontsize=13, fontweight="bold")
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=130, format="png")
    plt.close(figure)
    write_bytes_atomically(path, drawn.getvalue())
    return path


def _draw_curve(axes, zero_shot: dict[str, float], curve: Curve) -> None:
    for values, start, color, label in (
        (curve.base, zero_shot["base"], BLUE, "base classes"),
        (curve.novel, zero_shot["novel"], ORANGE, "novel classes"),
    ):
        axes.plot([0, *curve.iterations], [start, *values], "o-", color=color, ms=3.5, label=label)
        axes.axhline(start, color=color, lw=0.8, ls=":")
    axes.axvspan(curve.switch, curve.iterations[-1], color="#EEEEEE", zorder=0)
    for x, text in (
        (curve.switch / 2, "stage 1: LayerNorm"),
        ((curve.switch + curve.iterations[-1]) / 2, "stage 2: linear classifier"),
    ):
        axes.text(
            x, 0.02, text, transform=axes.get_xaxis_transform(), ha="center", color=GRAY, fontsize=9
        )
    axes.set(xlabel="iteration", ylabel="accuracy on test images, %", ylim=(0, 100))
    axes.set_title("Along both stages (dotted: zero-shot)", fontsize=10, loc="left")
    axes.legend(frameon=False, loc="upper left", ncols=2, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_bars(axes, results: dict[str, dict[str, float]]) -> None:
    keys = {"base": (BLUE, "base"), "novel": (ORANGE, "novel"), "joint": (GREEN, "all names")}
    width = 0.26
    for offset, (key, (color, label)) in enumerate(keys.items()):
        places = [position + (offset - 1) * width for position in range(len(results))]
        heights = [metrics[key] for metrics in results.values()]
        bars = axes.bar(places, heights, width * 0.92, color=color, label=label)
        axes.bar_label(bars, fmt="%.0f", fontsize=8, padding=1)
    axes.set_xticks(range(len(results)), list(results))
    axes.set(ylim=(0, 112), yticks=range(0, 101, 20))
    axes.set_title("Test accuracy, %", fontsize=10, loc="left")
    axes.legend(frameon=False, ncols=3, loc="upper left", fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_images(figure, predictions: list[Prediction]) -> None:
    grid = figure.subplots(2, 5).flat
    for axes, prediction in zip(grid, predictions, strict=True):
        axes.imshow(open_image(prediction.example.image))
        axes.axis("off")
        right = prediction.answer == prediction.truth
        kind = "trained" if prediction.trained else "never trained"
        text = prediction.answer if right else f"{prediction.answer}\n(is: {prediction.truth})"
        axes.set_title(f"{text}\n{kind}", fontsize=7.5, color=GREEN if right else RED, pad=2)
