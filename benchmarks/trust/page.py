"""The page of the study, from its records alone: tables with paired intervals, and a diagram."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from page import put

from shotfit.averages import estimate, mean
from shotfit.evaluation.expected import EASIER, CurvePoint, Expected, expect
from shotfit.report.figures.canvas import new_figure, save
from shotfit.report.paired import Measured, average, difference, signed

Record = Mapping[str, Any]
KINDS = {"base": "base, all names", "novel": "novel, among novel names", "joint": "all together"}
FIGURE = Path("figures") / "reliability.png"


def write_page(records: Sequence[Record], page: Path) -> None:
    """Puts tables and figure into the page, between its marks."""
    rule = max(record.get("rule", 1) for record in records)
    # Accuracies are the same under both; probabilities, and what follows from them, are not.
    newest = [record for record in records if record.get("rule", 1) == rule]
    put(page, "run", _what_was_run(records))
    put(page, "rules", _rules(records))
    put(page, "probabilities", _probabilities(newest))
    put(page, "refusal", _refusal(newest))
    put(page, "sets", _sets(newest))
    put(page, "expected", _expected(records))
    figure = save(_diagram(newest), page.parent / FIGURE)
    print(f"Wrote {page} and {figure}")


def _what_was_run(records: Sequence[Record]) -> str:
    tasks = sorted({record["task"] for record in records})
    seeds = sorted({record["seed"] for record in records})
    options = records[0]["options"]
    images = [sum(record["images"][side] for record in records) for side in range(3)]
    where = Counter(record["environment"]["platform"] for record in records).most_common(1)[0][0]
    return (
        f"{len(records)} runs: {len(tasks)} of the eleven tasks ({', '.join(tasks)}), seeds "
        f"{', '.join(map(str, seeds))}, {options['shots']} shots, M = {options['iters_per_shot']}, "
        f"{options['precision']}, on {where}; {images[0]:,} base, {images[1]:,} novel and "
        f"{images[2]:,} images of other tasks were answered. Intervals are of 95 % over tasks, of "
        "differences in pairs."
    )


def _measured(records: Sequence[Record], of: Callable[[Record], Mapping[str, Any]]) -> Measured:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        found.setdefault(record["task"], []).append(of(record))
    return found


def _rules(records: Sequence[Record]) -> str:
    plain = _measured(records, lambda record: record["rules"]["published"])
    best = _measured(records, lambda record: record["hindsight"])
    bound = average(best, "harmonic_mean") - average(plain, "harmonic_mean")
    lines = [
        "| rule | joint | base, all names | novel, all names | harmonic mean | gain | of hindsight "
        "| lost to 100 unrelated names | base among base |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for rule in records[0]["rules"]:
        ours = _measured(records, lambda record, rule=rule: record["rules"][rule])
        gain = difference(ours, plain, "harmonic_mean")
        share = f"{100 * gain.mean / bound:.0f} %" if rule != "published" and bound > 0 else ""
        cells = [f"{average(ours, key):.1f}" for key in ("joint", "base", "novel", "harmonic_mean")]
        lost, closed = (f"{average(ours, key):.1f}" for key in ("lost_to_unrelated", "closed_base"))
        moved = "" if rule == "published" else signed(gain, 1)
        lines.append(f"| {' | '.join((rule, *cells, moved, share, lost, closed))} |")
    cells = [f"{average(best, key):.1f}" for key in ("base", "novel", "harmonic_mean")]
    row = ("best constant in hindsight", "", *cells, f"{bound:+.1f}", "100 %", "", "")
    lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def _probabilities(records: Sequence[Record]) -> str:
    lines = [
        "| images | published, a run | above chance | fitted, a run | above chance "
        "| mean distance of confidence from accuracy, published | fitted | published, pooled "
        "| fitted, pooled |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for key, title in KINDS.items():
        found = []
        for rule in ("published", "fitted"):
            parts = [record["rules"][rule]["reliability"][key] for record in records]
            error = mean([part["error"] for part in parts])
            above = error - mean([part["by_chance"] for part in parts])
            found.append((error, above, mean([_distance(part) for part in parts]), parts))
        (one, chance, gap, plain), (other, other_chance, other_gap, ours) = found
        cells = [f"{one:.1f}", f"{chance:+.1f}", f"{other:.1f}", f"{other_chance:+.1f}"]
        values = (gap, other_gap, _pooled_error(plain), _pooled_error(ours))
        cells += [f"{value:.1f}" for value in values]
        lines.append(f"| {' | '.join((title, *cells))} |")
    return "\n".join([*lines, "", _of_runs(records)])


def _of_runs(records: Sequence[Record]) -> str:
    seeds = ", ".join(map(str, sorted({record["seed"] for record in records})))
    return f"{len(records)} runs, seeds {seeds}."


def _distance(part: Mapping[str, Any]) -> float:
    """How far the mean confidence of a run's answers is from the share that is right, in points."""
    counts, sure, right = map(sum, part["bins"])
    return 100 * abs(sure - right) / counts


def _pooled(parts: Sequence[Mapping[str, Any]]) -> list[tuple[float, float, float]]:
    """Count, sum of confidences and right answers of each bin, over runs."""
    each = zip(*(zip(*part["bins"], strict=True) for part in parts), strict=True)
    return [tuple(map(sum, zip(*bins, strict=True))) for bins in each]  # type: ignore[misc]


def _pooled_error(parts: Sequence[Mapping[str, Any]]) -> float:
    bins = _pooled(parts)
    return 100 * sum(abs(sure - right) for _, sure, right in bins) / sum(bin[0] for bin in bins)


def _refusal(records: Sequence[Record]) -> str:
    tasks = sorted({record["task"] for record in records})
    lines = ["| task | fitted score | maximum softmax probability |", "|---|---|---|"]
    above = 0
    for task in tasks:
        own = [record["refusal"] for record in records if record["task"] == task]
        pair = [mean([one[key] for one in own]) for key in ("auroc", "auroc_of_softmax")]
        above += pair[0] > pair[1]
        lines.append(f"| {task} | {pair[0]:.1f} | {pair[1]:.1f} |")
    every = [record["refusal"] for record in records]
    pair = [mean([one[key] for one in every]) for key in ("auroc", "auroc_of_softmax")]
    lines.append(f"| mean | {pair[0]:.1f} | {pair[1]:.1f} |")
    lines.append(f"\n{_of_runs(records)} Above the softmax on {above} of {len(tasks)} tasks.")
    for rate in sorted({rate for one in every for rate in one["rates"]}):
        found = [one["rates"][rate] for one in every if rate in one["rates"]]
        parts = [mean([one[key] for one in found]) for key in ("trained", "other")]
        lines.append(
            f"At a rate of {float(rate):.0%}, {parts[0]:.1f} % of test images of trained classes "
            f"and {parts[1]:.1f} % of other tasks' images were refused."
        )
    return "\n".join(lines)


def _sets(records: Sequence[Record]) -> str:
    lines = [
        "| asked for | trained classes alone | classes in a set | beside names | classes in a set "
        "| novel images | classes in a set | runs |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for coverage in sorted({key for record in records for key in record["sets"]}):
        own = [record["sets"][coverage] for record in records if coverage in record["sets"]]
        cells = []
        for side in own[0]:
            covered = mean([one[side]["covered"] for one in own])
            size = mean([one[side]["size"] for one in own])
            cells += [f"{covered:.1f} %", f"{size:.1f}"]
        lines.append(f"| {float(coverage):.0%} | {' | '.join(cells)} | {len(own)} |")
    return "\n".join(lines)


def _expected(records: Sequence[Record]) -> str:
    """The estimate of each run's curve, and with a constant that its own task had no part in."""
    found = [record for record in records if record["expected"] is not None]
    ours = _estimates(found, {record["task"]: EASIER for record in found})
    easier = _measured(found, lambda one: {"points": _without(one).level - _right_in_log_odds(one)})
    others = {
        task: mean([mean([run["points"] for run in easier[key]]) for key in easier if key != task])
        for task in easier
        if len(easier) > 1
    }
    lines = [
        f"{len(found)} runs. The 90 % interval, with the scatter of as many test images, held the "
        f"test accuracy in {ours}; the interval that is printed was "
        f"{mean([_width(_with(one, EASIER)) for one in found]):.1f} points wide."
    ]
    if others:
        lines.append(
            f"With a constant from the other tasks alone, in turns: {_estimates(found, others)}. "
            f"With none: {_estimates(found, dict.fromkeys(others, 0.0))}."
        )
    return "\n".join(lines)


def _estimates(records: Sequence[Record], seen: Mapping[str, float]) -> str:
    held, away = 0, []
    for record in records:
        estimated, right = _with(record, seen[record["task"]]), record["expected"]["test_accuracy"]
        low, high = estimated.interval(images=record["images"][0])
        held += low <= right <= high
        away.append(estimated.accuracy() - right)
    off = estimate(away)
    return (
        f"{held} of {len(records)} runs, the estimate {signed(off, 1)} points off on average and "
        f"{mean([abs(one) for one in away]):.1f} in size"
    )


def _with(record: Record, seen: float) -> Expected:
    """What a record's curve lets expect, with this in place of `EASIER`."""
    curve = record["expected"]["curve"]
    points = [CurvePoint(one["share"], one["accuracy"] / 100, one["images"]) for one in curve]
    found = expect(points)
    return replace(found, level=found.level + EASIER - seen)


def _without(record: Record) -> Expected:
    return _with(record, 0.0)


def _right_in_log_odds(record: Record) -> float:
    images = record["images"][0]
    share = (record["expected"]["test_accuracy"] / 100 * images + 0.5) / (images + 1)
    return math.log(share / (1 - share))


def _width(expected: Expected) -> float:
    low, high = expected.interval()
    return high - low


def _diagram(records: Sequence[Record]) -> Any:
    """Accuracy over confidence, pooled; a bin's area is its share of the images."""
    figure = new_figure(10.5, 3.8)
    axes = figure.subplots(1, len(KINDS), sharey=True)
    for axis, (key, title) in zip(axes, KINDS.items(), strict=True):
        axis.plot([0, 100], [0, 100], color="0.6", linewidth=1, zorder=1)
        for rule, color in (("published", "#c2702c"), ("fitted", "#2c6fc2")):
            parts = [record["rules"][rule]["reliability"][key] for record in records]
            bins = [one for one in _pooled(parts) if one[0]]
            total = sum(one[0] for one in bins)
            sure, right = ([100 * one[place] / one[0] for one in bins] for place in (1, 2))
            axis.plot(sure, right, color=color, linewidth=1, alpha=0.6, zorder=2)
            areas = [12 + 500 * one[0] / total for one in bins]
            axis.scatter(sure, right, areas, color=color, alpha=0.7, label=rule, zorder=3)
        axis.set(title=title, xlabel="confidence, %", xlim=(0, 100), ylim=(0, 100), aspect="equal")
    axes[0].set_ylabel("right, %")
    axes[0].legend(markerscale=0.5, frameon=False, loc="upper left")
    return figure
