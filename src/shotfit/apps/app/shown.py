"""Pieces of the page: sentences, tables and bars as HTML, pictures at a small size."""

from collections.abc import Mapping, Sequence
from html import escape

from shotfit.apps.app.project import Answer


def sentence(text: str) -> str:
    """What has happened, read out by screen readers."""
    return f'<p class="said" role="status">{escape(text)}</p>' if text else ""


def sentences(lines: Sequence[str]) -> str:
    """Several of them."""
    return "".join(map(sentence, lines))


def percent(share: float) -> str:
    """A probability as people read it: nothing is certain, and nothing impossible."""
    if share > 0.995:
        return "> 99 %"
    return "< 1 %" if share < 0.005 else f"{100 * share:.0f} %"


def class_table(counts: Mapping[str, int], known: Mapping[str, str]) -> str:
    """The classes, how many pictures each has, and how the classifier knows it."""
    if not counts:
        return sentence("No class yet.")
    rows = "".join(
        f"<tr><th scope='row'>{escape(name)}</th><td>{count}</td>"
        f"<td>{escape(known.get(name, 'name'))}</td></tr>"
        for name, count in counts.items()
    )
    return (
        "<table class='classes'><thead><tr><th scope='col'>Class</th><th scope='col'>Pictures</th>"
        f"<th scope='col'>Known by</th></tr></thead><tbody>{rows}</tbody></table>"
    )


def answer_bars(answers: Sequence[Answer]) -> str:
    """Classes with a bar for the probability of each."""
    rows = "".join(
        f"<li><span class='name'>{escape(one.name)}</span>"
        f"<span class='bar'><span style='width: {100 * one.probability:.1f}%'></span></span>"
        f"<span class='share'>{percent(one.probability)}</span></li>"
        for one in answers
    )
    return f"<ol class='answers'>{rows}</ol>"


def diagnoses_list(found: Mapping[str, Sequence[str]]) -> str:
    """What `check` says: what would stop a fit first, then what is worth knowing."""
    if not any(found.values()):
        return sentence("Nothing to complain about.")
    rows = "".join(
        f"<li class='{kind}'><b>{kind.removesuffix('s').capitalize()}:</b> {escape(text)}</li>"
        for kind in ("problems", "notes")
        for text in found[kind]
    )
    return f"<ul class='diagnoses'>{rows}</ul>"
