"""What is known of a fitted classifier, as one HTML page that needs nothing else."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from shotfit.report.charts import bar, curve_chart, reliability_chart
from shotfit.system.terminal import printable

MOST_NAMES = 12
MOST_CELLS = 30
"""Classes up to which the confusion matrix is drawn whole."""

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
figcaption { font-size: 0.85rem; overflow-wrap: anywhere; }
li { margin: 0.25rem 0; } ul { margin: 0.3rem 0; padding-left: 1.2rem; }
code { font-size: 0.85em; overflow-wrap: anywhere; }
a, summary { color: var(--ours); }
:focus-visible { outline: 3px solid var(--ours); outline-offset: 2px; border-radius: 3px; }
.skip { position: absolute; left: -100vw; } .skip:focus { position: static; }
"""


@dataclass(frozen=True)
class Mistake:
    """An image that was answered wrongly; `picture` is a data address of a small copy of it."""

    picture: str
    name: str
    answer: str
    probability: float
    image: str


@dataclass(frozen=True)
class PageFacts:
    """What the page tells; parts that are not known are None or empty and left out.

    `about` are pairs of what and how it was made; `evaluation` is `Evaluation.plain()`,
    `reliability` its bins (count, confidence, accuracy); `expected` lines in words; `outside` what
    changed on names outside the task; `stages` the training curves, (iteration, loss) a stage.
    """

    title: str
    about: Sequence[tuple[str, str]]
    stages: Mapping[str, Sequence[tuple[float, float]]]
    evaluation: Mapping[str, Any] | None = None
    reliability: Sequence[tuple[int, float, float]] = ()
    mistakes: Sequence[Mistake] = ()
    expected: Sequence[str] = ()
    outside: Sequence[str] = ()
    advice: Sequence[str] = ()
    environment: Sequence[tuple[str, str]] = ()


def classifier_page(facts: PageFacts) -> str:
    """The page. It loads nothing and runs nothing, and says so to the browser."""
    parts = [
        _result(facts),
        _list("Advice", facts.advice),
        _list("Without test images", facts.expected),
        _pairs("How it was made", facts.about),
        _parts(facts.evaluation),
        _curves(facts.stages),
        _reliability(facts),
        _classes(facts.evaluation),
        _confusion(facts.evaluation),
        _gallery(facts.mistakes),
        _list("Names outside the task", facts.outside),
        _pairs("Environment and hashes", facts.environment),
    ]
    title = _text(facts.title)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'; img-src data:\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        '<a class="skip" href="#content">Skip to the content</a>\n'
        f"<h1>{title}</h1>\n"
        '<p class="soft">What this classifier was made of, and how good it is.</p>\n'
        f'<main id="content">\n{"".join(parts)}</main>\n</body>\n</html>\n'
    )


def _section(title: str, body: str, *, wide: bool = False) -> str:
    kind = ' class="wide"' if wide else ""
    return f"<section{kind}>\n<h2>{_text(title)}</h2>\n{body}\n</section>\n"


def _result(facts: PageFacts) -> str:
    found = facts.evaluation
    if found is None or found["accuracy"] is None:
        return _section("Result", "<p>It was not scored on images: give the report some.</p>")
    low, high = found["accuracy"]["interval"]
    lines = [
        f'<p class="big">{found["accuracy"]["percent"]:.1f} %</p>',
        f"<p>of {found['images']:,} {_text(found['scored'])} answered right, among "
        f"{_text(found['among'])}; 95 % interval {low:.1f}–{high:.1f} %.</p>",
    ]
    if found["zero_shot"] is not None:
        untouched = found["zero_shot"]["percent"]
        lines.append(f"<p>Without any training: {untouched:.1f} % of the same images.</p>")
    if found["left_out_as_trained_on"]:
        count = found["left_out_as_trained_on"]
        lines.append(f"<p>{count:,} images that it was trained on were left out.</p>")
    if found["unknown_names"]:
        unknown = [one["name"] for one in found["unknown_names"]]
        names = ", ".join(unknown[:MOST_NAMES]) + (" …" if len(unknown) > MOST_NAMES else "")
        lines.append(
            f"<p>Left out, since it does not know these {len(unknown)} classes: {_text(names)}</p>"
        )
    return _section("Result", "\n".join(lines))


def _parts(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return ""
    titles = {
        "joint": "all images, all names",
        "base": "trained classes, among these",
        "novel": "names, among names",
        "base_in_joint": "trained classes, all names",
        "novel_in_joint": "names, all names",
    }
    rows = []
    for key, title in titles.items():
        part = found["parts"].get(key)
        if part is not None and part["accuracy"] is not None:
            low, high = part["accuracy"]["interval"]
            cells = (
                f"{part['accuracy']['images']:,}",
                f"{part['accuracy']['percent']:.1f}",
                f"{low:.1f}–{high:.1f}",
                f"{part['calibration_error']:.1f}",
                f"{part['calibration_error_by_chance']:.1f}",
            )
            rows.append((title, *cells))
    head = ("", "images", "%", "95 % interval", "calibration error", "by chance")
    return _section("Trained classes and names", _table(head, rows))


def _classes(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return ""
    rows = []
    for one in found["classes"]:
        own = one["accuracy"]
        if own is None:
            continue
        untouched = one["zero_shot"]
        low, high = own["interval"]
        bars = bar(own["percent"], None if untouched is None else untouched["percent"])
        cells = (
            f"{own['images']}",
            f"{own['percent']:.0f}",
            f"{low:.0f}–{high:.0f}",
            "" if untouched is None else f"{untouched['percent']:.0f}",
            f"{one['f1']:.0f}",
        )
        kind = "" if one["trained"] else " (name)"
        rows.append(_row(one["name"] + kind, cells, bars))
    head = ("class", "images", "%", "95 % interval", "zero-shot %", "F1", "")
    note = '<p class="soft">The lower bar is the model without any training.</p>'
    return _section("Classes", note + _table(head, rows), wide=True)


def _confusion(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return ""
    names = [one["name"] for one in found["classes"]]
    if len(names) > MOST_CELLS:
        body = f"<p>{len(names)} classes are too many for a matrix; the advice names the worst.</p>"
        return _section("Confusions", body)
    head = "".join(f'<th scope="col">{number + 1}</th>' for number in range(len(names)))
    rows = []
    for number, (name, counts) in enumerate(zip(names, found["confusion"], strict=True)):
        most = max(1, sum(counts))
        cells = "".join(_shaded(count, count / most) for count in counts)
        rows.append(f'<tr><th scope="row">{number + 1} {_text(name)}</th>{cells}</tr>')
    table = (
        f'<table class="matrix"><caption class="soft">Images of the row, answered with the class '
        f'of the column</caption><thead><tr><th scope="col">class</th>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>"
    )
    return _section("Confusions", table, wide=True)


def _shaded(count: int, share: float) -> str:
    return f'<td style="background: rgb(var(--shade) / {0.75 * share:.2f})">{count or ""}</td>'


def _curves(stages: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    drawn = [f"<p>{_text(name)}</p>{curve_chart(points)}" for name, points in stages.items()]
    return _section("Training", "".join(drawn)) if drawn else ""


def _reliability(facts: PageFacts) -> str:
    if not facts.reliability:
        return ""
    note = (
        '<p class="soft">How often answers are right that are given with such a probability; on '
        "the line they mean what they say. A circle's area is its share of the images.</p>"
    )
    return _section("Reliability", note + reliability_chart(facts.reliability))


def _gallery(mistakes: Sequence[Mistake]) -> str:
    if not mistakes:
        return ""
    shown = "".join(
        f'<figure><img src="{escape(one.picture)}" alt="{_text(one.image)}">'
        f"<figcaption>{_text(one.name)}, taken for <b>{_text(one.answer)}</b> "
        f"({one.probability:.0%})</figcaption></figure>\n"
        for one in mistakes
    )
    return _section("The surest mistakes", f'<div class="gallery">\n{shown}</div>', wide=True)


def _list(title: str, lines: Sequence[str]) -> str:
    items = "".join(f"<li>{_text(line)}</li>" for line in lines)
    return _section(title, f"<ul>{items}</ul>") if lines else ""


def _pairs(title: str, pairs: Sequence[tuple[str, str]]) -> str:
    rows = "".join(
        f'<tr><th scope="row">{_text(key)}</th><td style="text-align: left"><code>{_text(value)}'
        "</code></td></tr>"
        for key, value in pairs
    )
    return _section(title, f"<table><tbody>{rows}</tbody></table>") if pairs else ""


def _table(head: Sequence[str], rows: Sequence[str | Sequence[str]]) -> str:
    columns = "".join(f'<th scope="col">{_text(title)}</th>' for title in head)
    body = "\n".join(row if isinstance(row, str) else _row(row[0], row[1:]) for row in rows)
    return f"<table><thead><tr>{columns}</tr></thead>\n<tbody>\n{body}\n</tbody></table>"


def _row(name: str, cells: Sequence[str], drawing: str | None = None) -> str:
    numbers = "".join(f"<td>{_text(cell)}</td>" for cell in cells)
    last = "" if drawing is None else f"<td>{drawing}</td>"
    return f'<tr><th scope="row">{_text(name)}</th>{numbers}{last}</tr>'


def _text(text: str) -> str:
    return escape(printable(text))
