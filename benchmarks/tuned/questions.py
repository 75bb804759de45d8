"""What the study asks of pairs of rows, and what the records answer.

Differences are over the tasks that both rows of a pair have, paired by task and seed, tasks being
the independent units; p-values of a table are corrected together (Holm).
"""

from collections.abc import Mapping, Sequence

from shotfit.averages import holm, mean
from shotfit.methods import published_names
from shotfit.records import Record
from shotfit.report.labels import metric_title
from shotfit.report.paired import LEVEL, Measured, difference, each_difference, probability, signed
from tuned.rows import Factors, metrics_of, row_label, whole
from tuned.runs import IDEAS, can_be_first

REFERENCE = "2sfs:layernorm"
METRICS = ("base", "novel", "harmonic_mean", "joint")

Pairs = Mapping[str, tuple[str, str]]
"""Rows by what they are called: one less another."""


def questions(names: Sequence[str]) -> dict[str, tuple[Sequence[str], Pairs]]:
    """What is asked of which pairs of the rows that there are, and by which metrics."""
    two_stage = {f"2sfs:{name}": name for name in published_names() if can_be_first(name)}
    adds = {row_label(two): (two, one) for two, one in two_stage.items()}
    better = {row_label(name): (name, REFERENCE) for name in (*two_stage, *IDEAS)}
    others = {row_label(name): (name, REFERENCE) for name in names}
    asked = {
        "What a second stage adds to each first stage": (METRICS, adds),
        "Other two-stage recipes less 2SFS": (("harmonic_mean", "joint"), better),
        "Methods of one stage less 2SFS": (
            METRICS,
            {label: pair for label, pair in others.items() if label not in better},
        ),
    }
    there = set(names)
    return {
        question: (
            metrics,
            {label: (a, b) for label, (a, b) in pairs.items() if a != b and {a, b} <= there},
        )
        for question, (metrics, pairs) in asked.items()
    }


def differences(metrics: Sequence[str], measured: Mapping[str, tuple[Measured, Measured]]) -> str:
    """One row less another on each metric that both have; bold where the corrected test claims a
    difference."""
    cells = {
        (label, metric): pair
        for label, pair in measured.items()
        for metric in metrics
        if all(has(one, metric) for one in pair)
    }
    each = {key: each_difference(*pair, key[1]) for key, pair in cells.items()}
    corrected = dict(zip(each, holm([probability(one) for one in each.values()]), strict=True))

    def told(key: tuple[str, str]) -> str:
        if key not in cells:
            return "–"
        over = difference(*cells[key], key[1])
        sure = corrected[key] < LEVEL and mean(each[key]) * over.mean > 0
        return f"**{signed(over)}**" if sure else signed(over)

    lines = [
        "| | Tasks | " + " | ".join(metric_title(metric) for metric in metrics) + " |",
        "| --- |" + " ---: |" * (1 + len(metrics)),
    ]
    lines += [
        f"| {label} | {len(one)} | "
        + " | ".join(told((label, metric)) for metric in metrics)
        + " |"
        for label, (one, _) in measured.items()
    ]
    note = (
        "Points, with half of the 95 % interval over the tasks that both rows have; bold: more "
        f"than chance at 5 % when all {len(cells)} tests of this table are corrected for (Holm)."
    )
    return "\n".join([*lines, "", note])


def both(
    pair: tuple[str, str], factors: Factors, found: Mapping[str, Record]
) -> tuple[Measured, Measured]:
    """The metrics of two rows on the tasks that both have."""
    tasks = whole(pair, factors, found)
    one, other = (metrics_of(name, tasks, factors, found) for name in pair)
    return one, other


def has(measured: Measured, metric: str) -> bool:
    """Whether runs have a metric, or what a harmonic mean is made of."""
    needed = ("base", "novel") if metric == "harmonic_mean" else (metric,)
    return all(key in run for runs in measured.values() for run in runs for key in needed)
