"""Reports as text: terminal, Markdown, LaTeX, CSV, and HTML in `shotfit.report.render_html`."""

import csv
import dataclasses
import io
from collections.abc import Callable

from shotfit.errors import unknown_name
from shotfit.report.labels import dataset_label
from shotfit.report.layout import WIDE, Layout, Text, lay_out
from shotfit.report.render_html import to_html
from shotfit.report.tables import Panel, Report
from shotfit.system.terminal import printable

TERMINAL_WIDTH = 120
"""Columns of a terminal table that is not shown in a terminal."""


def render(report: Report, form: str) -> str:
    """The report in one of `FORMATS`.

    Raises:
        UsageError: for an unknown format.
    """
    if form not in FORMATS:
        raise unknown_name("format", form, FORMATS)
    return FORMATS[form](report)


def to_terminal(report: Report, width: int | None = None, color: bool = False) -> str:
    """Box tables no wider than `width` characters; wide panels are cut between columns."""
    from rich.console import Console
    from rich.text import Text as RichText

    width = width or TERMINAL_WIDTH
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        highlight=False,
    )
    console.print(RichText(f"{printable(report.title)}\n", style="bold"))
    for panel in report.panels:
        for part in _cut(panel, console):
            console.print(_rich_table(part))
    for note in report.notes:
        console.print(printable(note), markup=False)
    return console.file.getvalue()  # type: ignore[attr-defined]


def _cut(panel: Panel, console) -> list[Panel]:
    """The panel, halved between columns until every part fits."""
    from rich.measure import Measurement

    needed = Measurement.get(console, console.options.update(width=10**4), _rich_table(panel))
    if needed.maximum <= console.width or len(panel.columns) == 1:
        return [panel]
    middle = (len(panel.columns) + 1) // 2
    parts = []
    for part in (slice(0, middle), slice(middle, None)):
        rows = tuple(dataclasses.replace(row, cells=row.cells[part]) for row in panel.rows)
        smaller = dataclasses.replace(panel, columns=panel.columns[part], rows=rows)
        parts += _cut(smaller, console)
    return parts


def _rich_table(panel: Panel):
    from rich import box
    from rich.table import Table
    from rich.text import Text as RichText

    grid = lay_out(panel)
    table = Table(
        title=RichText(printable(dataset_label(panel.title))),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1),
    )
    for number, title in enumerate(flat_header(grid, "\n")):
        table.add_column(
            RichText(printable(title)), justify="right" if number else "left", no_wrap=True
        )
    for row in grid.body:
        table.add_row(*(RichText(printable(cell.content), style=_style(cell)) for cell in row))
    return table


def _style(cell: Text) -> str:
    if cell.kind == "difference" and cell.content:
        return "red" if cell.content.startswith("-") else "green"
    style = {"printed": "dim", "part": "dim"}.get(cell.kind, "")
    return f"{style} bold" if cell.best else f"{style} underline" if cell.second else style


def flat_header(grid: Layout, separator: str) -> list[str]:
    """One title per column, its group's before its own."""
    if not grid.groups:
        return list(grid.header)
    above = [title for title, span in grid.groups for _ in range(span)]
    return [separator.join(filter(None, pair)) for pair in zip(above, grid.header, strict=True)]


def to_markdown(report: Report) -> str:
    """Pipe tables under headings; the best in bold, the second underlined."""
    lines = [f"# {_plain(report.title)}", ""]
    for panel in report.panels:
        grid = lay_out(panel)
        header = [_markdown_escape(title) for title in flat_header(grid, " ")]
        lines += [f"## {_plain(dataset_label(panel.title))}", "", _pipes(header)]
        lines.append(_pipes(["---", *["---:"] * (len(header) - 1)]))
        lines += [_pipes([_markdown_cell(cell) for cell in row]) for row in grid.body]
        lines.append("")
    lines += [f"{_markdown_escape(note)}  " for note in report.notes]
    return "\n".join(lines).rstrip() + "\n"


def _pipes(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown_escape(text: str) -> str:
    for character in "\\|*_[]`":
        text = text.replace(character, f"\\{character}")
    return _plain(text)


def _plain(text: str) -> str:
    return _one_line(text).replace("<", "&lt;")


def _one_line(text: str) -> str:
    """A name that breaks the line would leave its cell."""
    return printable(" ".join(text.split("\n")))


def _markdown_cell(cell: Text) -> str:
    text = _markdown_escape(cell.content)
    return f"**{text}**" if cell.best else f"<u>{text}</u>" if cell.second else text


def to_latex(report: Report) -> str:
    r"""One `table*` with booktabs rules; needs `\usepackage{booktabs}` and `graphicx`."""
    lines = [
        r"% \usepackage{booktabs,graphicx}",
        r"\begin{table*}[t]",
        r"\centering\small",
        rf"\caption{{{_latex_escape(report.title)}. {_latex_escape(' '.join(report.notes))}}}",
        rf"\label{{tab:{report.id}}}",
    ]
    narrow = all(len(panel.columns) <= WIDE for panel in report.panels)
    for number, panel in enumerate(report.panels):
        lines += _latex_panel(panel, narrow)
        lines.append(r"\hfill" if narrow and number % 2 == 0 else r"\par\medskip")
    return "\n".join([*lines, r"\end{table*}", ""])


def _latex_panel(panel: Panel, half: bool) -> list[str]:
    """A tabular no wider than the text, or than half of it."""
    grid = lay_out(panel)
    columns = "l" + "r" * (len(grid.header) - 1)
    title = _latex_escape(dataset_label(panel.title))
    lines = [
        rf"\begin{{minipage}}[t]{{{0.49 if half else 1}\linewidth}}\centering",
        rf"\textbf{{{title}}}\par\smallskip",
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
    ]
    if grid.groups:
        spans = [
            rf"\multicolumn{{{n}}}{{c}}{{{_latex_escape(t)}}}" if t else "" for t, n in grid.groups
        ]
        lines.append(" & ".join(spans) + r" \\")
    lines += [" & ".join(map(_latex_escape, grid.header)) + r" \\", r"\midrule"]
    lines += [" & ".join(map(_latex_cell, row)) + r" \\" for row in grid.body]
    return [*lines, r"\bottomrule", r"\end{tabular}}", r"\end{minipage}"]


_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "†": r"$^\dagger$",
    "Δ": r"$\Delta$",
    "·": r"$\cdot$",
    **{character: f"\\{character}" for character in "%&_#${}"},
}


def _latex_escape(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in _one_line(text))


def _latex_cell(cell: Text) -> str:
    text = _latex_escape(cell.content)
    if cell.kind == "difference" and text.startswith("-"):
        text = f"${text}$"
    return rf"\textbf{{{text}}}" if cell.best else rf"\underline{{{text}}}" if cell.second else text


CSV_COLUMNS = (
    *("table", "panel", "method", "column", "ours", "half_width", "runs"),
    *("printed", "correction", "difference", "note"),
)


def to_csv(report: Report) -> str:
    """Tidy: one line per cell that holds anything, names as in the records; no rounding of ours."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for panel in report.panels:
        for row in panel.rows:
            for column, cell in zip(panel.columns, row.cells, strict=True):
                if cell.ours is None and cell.printed is None and not cell.note:
                    continue
                ours = cell.ours
                half = "" if ours is None or ours.half_width is None else f"{ours.half_width:.6g}"
                writer.writerow(
                    (
                        *(report.id, panel.title, row.method, column.key),
                        *((f"{ours.mean:.10g}", half, ours.runs) if ours else ("", "", "")),
                        cell.printed.value if cell.printed else "",
                        cell.printed.correction if cell.printed else "",
                        "" if cell.difference is None else f"{cell.difference:.6g}",
                        cell.note,
                    )
                )
    return out.getvalue()


FORMATS: dict[str, Callable[[Report], str]] = {
    "terminal": to_terminal,
    "markdown": to_markdown,
    "latex": to_latex,
    "csv": to_csv,
    "html": to_html,
}
