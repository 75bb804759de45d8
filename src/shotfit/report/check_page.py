"""What the doctor found in a dataset, as one HTML page with small pictures."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby

from shotfit.report.charts import bar
from shotfit.system.html_page import (
    bullets,
    escaped,
    html_table,
    pairs_table,
    section,
    self_contained_page,
    table_row,
)

MOST_CLASSES = 200
"""Classes whose numbers of images are drawn."""


@dataclass(frozen=True)
class Picture:
    """An image of a diagnosis: the data address of a small copy, empty where there is none,
    its name, its class, and what is said of it alone."""

    address: str
    image: str
    name: str
    note: str = ""


@dataclass(frozen=True)
class PageDiagnosis:
    """A diagnosis with the pictures that are shown, pairs together; `more` groups are not."""

    kind: str
    text: str
    groups: Sequence[Sequence[Picture]] = ()
    more: int = 0


@dataclass(frozen=True)
class CheckFacts:
    """What the page tells: `about` are pairs of what and how much, `classes` the names with their
    numbers of training images."""

    title: str
    about: Sequence[tuple[str, str]]
    errors: Sequence[PageDiagnosis]
    warnings: Sequence[PageDiagnosis]
    classes: Sequence[tuple[str, int]]


def check_page(facts: CheckFacts) -> str:
    """The page. It loads nothing and runs nothing."""
    parts = [
        _verdict(facts),
        pairs_table("What was looked at", facts.about),
        *_diagnoses("Error", facts.errors),
        *_diagnoses("Warning", facts.warnings),
        _classes(facts),
    ]
    return self_contained_page(facts.title, "What a fit on this data would meet.", parts)


def _verdict(facts: CheckFacts) -> str:
    errors, warnings = len(facts.errors), len(facts.warnings)
    if errors:
        words = f"A fit would stop: {errors} error{'s' if errors > 1 else ''}."
    else:
        words = "Nothing would stop a fit."
    noted = f"{warnings} warning{'' if warnings == 1 else 's'}." if warnings else "No warnings."
    return section("Verdict", f'<p class="big">{words}</p>\n<p>{noted}</p>')


def _diagnoses(level: str, diagnoses: Sequence[PageDiagnosis]) -> list[str]:
    """A section for each kind, in the order of their first diagnosis."""
    order = list(dict.fromkeys(one.kind for one in diagnoses))
    ranked = sorted(diagnoses, key=lambda one: order.index(one.kind))
    parts = []
    for kind, same in groupby(ranked, key=lambda one: one.kind):
        found = list(same)
        title = f"{level}: {kind}"
        if not any(one.groups for one in found):
            parts.append(bullets(title, [one.text for one in found]))
            continue
        single = all(len(one.groups) == 1 and len(one.groups[0]) == 1 for one in found)
        if single and len(found) > 1:
            # One sentence an image: the picture's caption says it.
            shown = "".join(_figure(one.groups[0][0]) for one in found)
            parts.append(section(title, f'<div class="gallery">\n{shown}</div>', wide=True))
        else:
            parts.append(section(title, "\n".join(map(_one, found)), wide=True))
    return parts


def _one(diagnosis: PageDiagnosis) -> str:
    words = f"<p>{escaped(diagnosis.text)}</p>"
    if not diagnosis.groups:
        return words
    if len(diagnosis.groups[0]) == 1:
        shown = "".join(_figure(group[0]) for group in diagnosis.groups)
    else:
        shown = "".join(
            f'<div class="pair">{"".join(map(_figure, group))}</div>\n'
            for group in diagnosis.groups
        )
    more = f'<p class="soft">and {diagnosis.more:,} more</p>' if diagnosis.more else ""
    wide = "gallery" if len(diagnosis.groups[0]) == 1 else "gallery pairs"
    return f'{words}\n<div class="{wide}">\n{shown}</div>{more}'


def _figure(picture: Picture) -> str:
    drawn = (
        f'<img src="{escape(picture.address)}" alt="{escaped(picture.image)}">'
        if picture.address
        else '<div class="none">no picture</div>'
    )
    note = f"<br><b>{escaped(picture.note)}</b>" if picture.note else ""
    return (
        f"<figure>{drawn}<figcaption>{escaped(picture.image)}<br>{escaped(picture.name)}{note}"
        "</figcaption></figure>\n"
    )


def _classes(facts: CheckFacts) -> str:
    pairs = facts.classes
    if not pairs:
        return ""
    most = max(count for _, count in pairs) or 1
    rows = [
        table_row(name, (f"{count:,}",), bar(100 * count / most, None))
        for name, count in pairs[:MOST_CLASSES]
    ]
    left = len(pairs) - MOST_CLASSES
    more = f'<p class="soft">and {left:,} more classes</p>' if left > 0 else ""
    return section(
        "Training images of each class",
        html_table(("class", "images", ""), rows) + more,
        wide=True,
    )
