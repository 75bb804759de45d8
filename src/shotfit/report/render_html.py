"""Reports as one self-contained HTML page: no script, no network, light and dark."""

from html import escape

from shotfit.report.labels import dataset_label
from shotfit.report.layout import WIDE, Text, lay_out
from shotfit.report.tables import Panel, Report
from shotfit.system.terminal import printable

STYLE = """
:root { color-scheme: light dark; --ink: #1c2330; --soft: #697386; --line: #dfe3ea;
  --paper: #fbfcfe; --card: #ffffff; --up: #0a7a53; --down: #b3402a; --mark: #eef4ff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ef; --soft: #97a1b3; --line: #2d3542;
  --paper: #12161d; --card: #191f29; --up: #4cc38a; --down: #f0856d; --mark: #1d2a40; } }
* { box-sizing: border-box; }
body { margin: 0; padding: 2.5rem clamp(1rem, 2.5vw, 4rem); background: var(--paper);
  color: var(--ink); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 1.5rem; letter-spacing: -0.01em; }
main { display: grid; gap: 1.25rem;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 52rem), 1fr)); }
main.wide { grid-template-columns: minmax(0, 1fr); }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 1rem 1.1rem 0.6rem; overflow-x: auto; }
h2 { font-size: 0.95rem; margin: 0 0 0.6rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums;
  font-size: 0.86rem; }
th, td { padding: 0.24rem 0.4rem; text-align: right; white-space: nowrap; }
th { color: var(--soft); font-weight: 500; }
thead tr:last-child th { border-bottom: 1px solid var(--line); }
thead th[colspan] { text-align: center; color: var(--ink); }
th:first-child, td.name, td.part { text-align: left; }
tr.start td { border-top: 1px solid var(--line); }
tbody tr.start:first-child td { border-top: 0; }
td.printed, td.part { color: var(--soft); }
td.up { color: var(--up); } td.down { color: var(--down); }
.beside td.ours { background: var(--mark); }
.beside td.ours:empty { background: none; }
.alone table { width: auto; }
.alone th, .alone td { padding-right: 1.4rem; }
b { font-weight: 700; } u { text-underline-offset: 3px; }
footer { margin-top: 1.5rem; color: var(--soft); font-size: 0.85rem; max-width: 60rem; }
footer p { margin: 0.2rem 0; }
"""


def to_html(report: Report) -> str:
    """The report as a page; the best in bold, the second underlined."""
    shape = "wide" if any(len(panel.columns) > WIDE for panel in report.panels) else "narrow"
    panels = "\n".join(_panel(panel) for panel in report.panels)
    notes = "\n".join(f"<p>{_escaped(note)}</p>" for note in report.notes)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_escaped(report.title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{_escaped(report.title)}</h1>\n<main class={shape}>\n{panels}\n"
        f"</main>\n<footer>\n{notes}\n</footer>\n</body>\n</html>\n"
    )


def _panel(panel: Panel) -> str:
    grid = lay_out(panel)
    head = ""
    if grid.groups:
        spans = (
            f'<th colspan="{span}">{_escaped(title)}</th>' if title else "<th></th>"
            for title, span in grid.groups
        )
        head = f"<tr>{''.join(spans)}</tr>"
    head += f"<tr>{''.join(f'<th>{_escaped(title)}</th>' for title in grid.header)}</tr>"
    stacked = not all(grid.starts)
    rows = "\n".join(
        _row(row, start and stacked) for row, start in zip(grid.body, grid.starts, strict=True)
    )
    title = _escaped(dataset_label(panel.title))
    kind = "beside" if panel.has_printed else "alone"
    return (
        f'<section class="{kind}">\n'
        f"<h2>{title}</h2>\n<table>\n<thead>{head}</thead>\n"
        f"<tbody>\n{rows}\n</tbody>\n</table>\n</section>"
    )


def _row(cells: tuple[Text, ...], start: bool) -> str:
    kind = "start" if start else "line"
    return f'<tr class="{kind}">{"".join(map(_cell, cells))}</tr>'


def _cell(cell: Text) -> str:
    kind = cell.kind
    if kind == "difference" and cell.content:
        kind = "down" if cell.content.startswith("-") else "up"
    text = _escaped(cell.content)
    text = f"<b>{text}</b>" if cell.best else f"<u>{text}</u>" if cell.second else text
    return f'<td class="{kind}">{text}</td>'


def _escaped(text: str) -> str:
    return escape(printable(text))
