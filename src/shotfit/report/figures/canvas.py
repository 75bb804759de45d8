"""Figures of matplotlib, without a window system, and their files."""

import io
from pathlib import Path
from typing import TYPE_CHECKING

from shotfit.errors import DataError, UsageError
from shotfit.system.files import write_result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, SOFT, LINE = "#1C2330", "#697386", "#DFE3EA"
"""Colours of words, of words beside them, and of lines."""


def require_matplotlib() -> None:
    """Says what is missing before a long run, not after it.

    Raises:
        UsageError: when matplotlib is not installed.
    """
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise UsageError("Figures need matplotlib: pip install 'shotfit[plots]'.") from error


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure of so many inches. It is its own, not pyplot's: nothing global is changed.

    Raises:
        UsageError: when matplotlib is not installed.
    """
    require_matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def plain_axes(width: float, height: float) -> "tuple[Figure, Axes]":
    """A figure of so many inches with one pair of axes, of whose frame only the base is drawn.

    Raises:
        UsageError: when matplotlib is not installed.
    """
    figure = new_figure(width, height)
    axes = figure.subplots()
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(LINE)
    axes.tick_params(length=0, labelcolor=INK)
    axes.set_axisbelow(True)
    return figure, axes


def save(figure: "Figure", path: Path, *, overwrite: bool = True) -> Path:
    """Writes a figure as the file name's ending says (png, svg, pdf); the path.

    Raises:
        DataError: for a file with other content, unless `overwrite`; or when it cannot be written.
        UsageError: for an ending that no format has.
    """
    # The name of the version that drew a PNG would change the file, and no pixel of it.
    metadata = {"Software": None} if path.suffix.lower() == ".png" else None
    drawn = io.BytesIO()
    try:
        ending = path.suffix.removeprefix(".") or "png"
        figure.savefig(drawn, dpi=160, metadata=metadata, format=ending)
    except ValueError as error:
        raise UsageError(f"Cannot write the figure {path}: {error}") from error
    try:
        write_result(path, drawn.getvalue(), overwrite=overwrite)
    except OSError as error:
        raise DataError(f"Cannot write the figure {path}: {error}") from error
    return path
