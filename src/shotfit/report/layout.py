"""A panel's numbers laid out as texts, the same for every renderer."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shotfit.report.labels import dataset_label, method_label
from shotfit.report.tables import Cell, Column, Panel, Row

WIDE = 4
"""With more columns than this, printed values go under ours instead of beside them."""


@dataclass(frozen=True)
class Text:
    """One cell; `kind` is name, part, ours, printed or difference."""

    content: str = ""
    kind: str = "ours"
    best: bool = False
    second: bool = False


@dataclass(frozen=True)
class Layout:
    """Header groups with the number of columns each spans, header, and body rows.

    `starts` says of each body row whether it is a method's first.
    """

    groups: tuple[tuple[str, int], ...]
    header: tuple[str, ...]
    body: tuple[tuple[Text, ...], ...]
    starts: tuple[bool, ...]


def lay_out(panel: Panel) -> Layout:
    """The grid of a panel: ours alone; beside the printed value; or above it when it is wide."""
    titles = [dataset_label(column.title) for column in panel.columns]
    lines = _marked(panel)
    if not panel.has_printed:
        chosen = any(row.selects_on for row in panel.rows)
        body = tuple(
            (
                Text(_name(panel, row), "name"),
                *((Text(row.selects_on, "part"),) if chosen else ()),
                *(ours for ours, _, _ in line),
            )
            for row, line in zip(panel.rows, lines, strict=True)
        )
        header = (panel.of, *(("Selects on",) if chosen else ()), *titles)
        return Layout((), header, body, (True,) * len(body))
    if len(panel.columns) <= WIDE:
        body = tuple(
            (Text(method_label(row.method), "name"), *(text for cell in line for text in cell))
            for row, line in zip(panel.rows, lines, strict=True)
        )
        groups = (("", 1), *((title, 3) for title in titles))
        return Layout(
            groups, ("Method", *("ours", "paper", "Δ") * len(titles)), body, (True,) * len(body)
        )
    return _stacked(panel, titles, lines)


def _name(panel: Panel, row: Row) -> str:
    return method_label(row.method) if panel.of == "Method" else row.method


Line = list[tuple[Text, Text, Text]]


def _stacked(panel: Panel, titles: list[str], lines: list[Line]) -> Layout:
    body, starts = [], []
    for row, line in zip(panel.rows, lines, strict=True):
        name = method_label(row.method)
        for position, part in enumerate(("ours", "paper", "Δ")):
            texts = [cell[position] for cell in line]
            if any(text.content for text in texts):
                body.append((Text(name, "name"), Text(part, "part"), *texts))
                starts.append(bool(name))
                name = ""
    return Layout((), ("Method", "", *titles), tuple(body), tuple(starts))


def _marked(panel: Panel) -> list[Line]:
    """Per row and column the three texts, the best and the second of every column marked."""
    ranked = panel.rows if panel.of == "Method" else ()
    marks = [
        (
            _ranks(ranked, number, column, panel.digits, _mean_of_ours),
            _ranks(ranked, number, column, panel.digits, _printed_value),
        )
        for number, column in enumerate(panel.columns)
    ]
    return [
        [
            _texts(cell, column, panel.digits, ours.get(number, 0), printed.get(number, 0))
            for cell, column, (ours, printed) in zip(row.cells, panel.columns, marks, strict=True)
        ]
        for number, row in enumerate(panel.rows)
    ]


def _mean_of_ours(cell: Cell) -> float | None:
    # No order holds what is no number, which is shown as nothing.
    return cell.ours.mean if cell.ours and not math.isnan(cell.ours.mean) else None


def _printed_value(cell: Cell) -> float | None:
    return cell.printed.best if cell.printed else None


def _ranks(
    rows: Sequence[Row],
    number: int,
    column: Column,
    digits: int,
    value: Callable[[Cell], float | None],
) -> dict[int, int]:
    """Rank 1 or 2 by number of row; equal as shown is equal. Nothing to rank among fewer than 2."""
    values = {n: value(row.cells[number]) for n, row in enumerate(rows)}
    shown = {n: round(v, digits) for n, v in values.items() if v is not None}
    if column.unit != "%" or len(shown) < 2:
        return {}
    order = sorted(set(shown.values()), reverse=True)[:2]
    return {n: order.index(v) + 1 for n, v in shown.items() if v in order}


def _texts(cell: Cell, column: Column, digits: int, ours: int, printed: int) -> tuple:
    difference = cell.difference
    return (
        Text(_shown(cell, column, digits), "ours", ours == 1, ours == 2),
        Text(_printed(cell), "printed", printed == 1, printed == 2),
        Text("" if difference is None else f"{_signed(difference, digits)}", "difference"),
    )


def _shown(cell: Cell, column: Column, digits: int) -> str:
    if cell.ours is None or math.isnan(cell.ours.mean):
        return cell.note
    if column.unit == "count":
        return f"{cell.ours.mean:,.0f}"
    if column.unit == "s":
        return f"{cell.ours.mean:.1f}"
    if column.unit == "MB":
        return f"{cell.ours.mean / 1e6:,.0f}"
    if column.unit == "p":
        return f"{cell.ours.mean:.3f}" if cell.ours.mean >= 0.0005 else "<0.001"
    mean = cell.ours.mean
    text = _signed(mean, digits) if column.unit == "points" else f"{mean:.{digits}f}"
    if cell.ours.half_width is not None:
        text += f" ± {cell.ours.half_width:.{digits}f}"
    return f"{text} ({cell.note})" if cell.note else text


def _printed(cell: Cell) -> str:
    """As printed, digit for digit; a wrong one with a dagger and what it must be."""
    if cell.printed is None:
        return ""
    if cell.printed.correction:
        return f"{cell.printed.value}† ({cell.printed.correction})"
    return cell.printed.value


def _signed(value: float, digits: int) -> str:
    rounded = round(value, digits) + 0.0
    return f"{rounded:+.{digits}f}" if rounded else f"{0:.{digits}f}"
