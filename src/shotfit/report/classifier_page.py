"""What is known of a fitted classifier, as one HTML page that needs nothing else."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from shotfit.report.charts import bar, curve_chart, reliability_chart
from shotfit.system.html_page import (
    bullets,
    escaped,
    html_table,
    pairs_table,
    section,
    self_contained_page,
    table_row,
)

MOST_NAMES = 12
MOST_CELLS = 30
"""Classes up to which the confusion matrix is drawn whole."""


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
        bullets("Advice", facts.advice),
        bullets("Without test images", facts.expected),
        pairs_table("How it was made", facts.about),
        _parts(facts.evaluation),
        _curves(facts.stages),
        _reliability(facts),
        _classes(facts.evaluation),
        _confusion(facts.evaluation),
        _gallery(facts.mistakes),
        bullets("Names outside the task", facts.outside),
        pairs_table("Environment and hashes", facts.environment),
    ]
    return self_contained_page(
        facts.title, "What this classifier was made of, and how good it is.", parts
    )


def _result(facts: PageFacts) -> str:
    found = facts.evaluation
    if found is None or found["accuracy"] is None:
        return section("Result", "<p>It was not scored on images: give the report some.</p>")
    low, high = found["accuracy"]["interval"]
    lines = [
        f'<p class="big">{found["accuracy"]["percent"]:.1f} %</p>',
        f"<p>of {found['images']:,} {escaped(found['scored'])} answered right, among "
        f"{escaped(found['among'])}; 95 % interval {low:.1f}–{high:.1f} %.</p>",
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
            f"<p>Left out, since it does not know these {len(unknown)} classes: "
            f"{escaped(names)}</p>"
        )
    return section("Result", "\n".join(lines))


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
    return section("Trained classes and names", html_table(head, rows))


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
        rows.append(table_row(one["name"] + kind, cells, bars))
    head = ("class", "images", "%", "95 % interval", "zero-shot %", "F1", "")
    note = '<p class="soft">The lower bar is the model without any training.</p>'
    return section("Classes", note + html_table(head, rows), wide=True)


def _confusion(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return ""
    names = [one["name"] for one in found["classes"]]
    if len(names) > MOST_CELLS:
        body = f"<p>{len(names)} classes are too many for a matrix; the advice names the worst.</p>"
        return section("Confusions", body)
    head = "".join(f'<th scope="col">{number + 1}</th>' for number in range(len(names)))
    rows = []
    for number, (name, counts) in enumerate(zip(names, found["confusion"], strict=True)):
        most = max(1, sum(counts))
        cells = "".join(_shaded(count, count / most) for count in counts)
        rows.append(f'<tr><th scope="row">{number + 1} {escaped(name)}</th>{cells}</tr>')
    table = (
        f'<table class="matrix"><caption class="soft">Images of the row, answered with the class '
        f'of the column</caption><thead><tr><th scope="col">class</th>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>"
    )
    return section("Confusions", table, wide=True)


def _shaded(count: int, share: float) -> str:
    return f'<td style="background: rgb(var(--shade) / {0.75 * share:.2f})">{count or ""}</td>'


def _curves(stages: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    drawn = [f"<p>{escaped(name)}</p>{curve_chart(points)}" for name, points in stages.items()]
    return section("Training", "".join(drawn)) if drawn else ""


def _reliability(facts: PageFacts) -> str:
    if not facts.reliability:
        return ""
    note = (
        '<p class="soft">How often answers are right that are given with such a probability; on '
        "the line they mean what they say. A circle's area is its share of the images.</p>"
    )
    return section("Reliability", note + reliability_chart(facts.reliability))


def _gallery(mistakes: Sequence[Mistake]) -> str:
    if not mistakes:
        return ""
    shown = "".join(
        f'<figure><img src="{escape(one.picture)}" alt="{escaped(one.image)}">'
        f"<figcaption>{escaped(one.name)}, taken for <b>{escaped(one.answer)}</b> "
        f"({one.probability:.0%})</figcaption></figure>\n"
        for one in mistakes
    )
    return section("The surest mistakes", f'<div class="gallery">\n{shown}</div>', wide=True)
