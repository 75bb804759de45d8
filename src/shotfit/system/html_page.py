"""Pages that need nothing else: no script, no network, light and dark, on a phone, by keyboard."""

from collections.abc import Sequence
from html import escape

from shotfit.system.terminal import printable

STYLE = """
:root { color-scheme: light dark; --ink: #1c2330; --soft: #5c6577; --line: #d9dee7;
  --paper: #f7f9fc; --card: #ffffff; --ours: #2c6fc2; --other: #b4692f; --shade: 44 111 194; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ef; --soft: #a1abbc; --line: #323b49;
  --paper: #12161d; --card: #191f29; --ours: #6aa5ec; --other: #e0a06a; --shade: 106 165 236; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem clamp(0.8rem, 3vw, 3rem); max-width: 78rem;
  background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 0.2rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 0 0 0.6rem; }
p { margin: 0.3rem 0; } .soft { color: var(--soft); }
main { display: grid; gap: 1rem; margin-top: 1rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 1rem 1.1rem; overflow-x: auto; min-width: 0; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: 0.5rem 0;
  padding: 0.6rem 0.8rem; background: var(--paper);
  border: 1px solid var(--line); border-radius: 6px; font-size: 0.85rem; }
section.wide { grid-column: 1 / -1; }
.big { font-size: 2.2rem; font-weight: 650; line-height: 1.15; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.9rem; }
th, td { padding: 0.25rem 0.55rem; text-align: right; vertical-align: middle; }
th { color: var(--soft); font-weight: 500; }
th[scope=row], th:first-child { text-align: left; }
tbody th { color: var(--ink); font-weight: 400; }
thead th { border-bottom: 1px solid var(--line); }
svg { max-width: 100%; height: auto; display: block; color: var(--ink); }
.matrix td { min-width: 1.7rem; text-align: center; }
.gallery { display: grid; gap: 0.8rem;
  grid-template-columns: repeat(auto-fill, minmax(9rem, 1fr)); }
figure { margin: 0; } figure img { width: 100%; aspect-ratio: 1; object-fit: contain;
  background: var(--paper); border: 1px solid var(--line); border-radius: 6px; }
.pairs { grid-template-columns: repeat(auto-fill, minmax(min(100%, 18rem), 1fr)); }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 0.4rem; }
.none { aspect-ratio: 1; display: grid; place-items: center; color: var(--soft);
  border: 1px dashed var(--line); border-radius: 6px; }
figcaption { font-size: 0.85rem; overflow-wrap: anywhere; }
li { margin: 0.25rem 0; } ul { margin: 0.3rem 0; padding-left: 1.2rem; }
code { font-size: 0.85em; overflow-wrap: anywhere; }
a, summary { color: var(--ours); }
:focus-visible { outline: 3px solid var(--ours); outline-offset: 2px; border-radius: 3px; }
.skip { position: absolute; left: -100vw; } .skip:focus { position: static; }
"""


def self_contained_page(title: str, subtitle: str, parts: Sequence[str]) -> str:
    """A page of sections. It loads nothing and runs nothing, and says so to the browser."""
    name = escaped(title)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'; img-src data:\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{name}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        '<a class="skip" href="#content">Skip to the content</a>\n'
        f"<h1>{name}</h1>\n"
        f'<p class="soft">{escaped(subtitle)}</p>\n'
        f'<main id="content">\n{"".join(parts)}</main>\n</body>\n</html>\n'
    )


def section(title: str, body: str, *, wide: bool = False) -> str:
    """A card with a title."""
    kind = ' class="wide"' if wide else ""
    return f"<section{kind}>\n<h2>{escaped(title)}</h2>\n{body}\n</section>\n"


def bullets(title: str, lines: Sequence[str]) -> str:
    """A card with a list; nothing for no lines."""
    items = "".join(f"<li>{escaped(line)}</li>" for line in lines)
    return section(title, f"<ul>{items}</ul>") if lines else ""


def pairs_table(title: str, pairs: Sequence[tuple[str, str]]) -> str:
    """A card with a table of what and how; nothing for no pairs."""
    rows = "".join(
        f'<tr><th scope="row">{escaped(key)}</th><td style="text-align: left">'
        f"<code>{escaped(value)}</code></td></tr>"
        for key, value in pairs
    )
    return section(title, f"<table><tbody>{rows}</tbody></table>") if pairs else ""


def html_table(head: Sequence[str], rows: Sequence[str | Sequence[str]]) -> str:
    """A table of rows: cells, the first of which names the row, or what `table_row` made."""
    columns = "".join(f'<th scope="col">{escaped(title)}</th>' for title in head)
    body = "\n".join(row if isinstance(row, str) else table_row(row[0], row[1:]) for row in rows)
    return f"<table><thead><tr>{columns}</tr></thead>\n<tbody>\n{body}\n</tbody></table>"


def table_row(name: str, cells: Sequence[str], drawing: str | None = None) -> str:
    """A row: its name, its cells as text, and a drawing behind them."""
    numbers = "".join(f"<td>{escaped(cell)}</td>" for cell in cells)
    last = "" if drawing is None else f"<td>{drawing}</td>"
    return f'<tr><th scope="row">{escaped(name)}</th>{numbers}{last}</tr>'


def escaped(text: str) -> str:
    """Text that a page shows as it is, whatever is in it."""
    return escape(printable(text))
