"""What the records of `study.py` say of each policy: chosen alpha, accuracy, intervals.

    PYTHONPATH=benchmarks python -m stopping.policies                          # prints the tables
    PYTHONPATH=benchmarks python -m stopping.policies --write docs/stopping.md # into the page

Each suite has its own tables. A rule's threshold is chosen on the other tasks of the suite, both
methods and all seeds of them, for every task anew: no task's numbers decide its own alpha, nor do
those of its images under another shift. "best alpha in hindsight" is chosen on each cell's
own test images and no rule can be expected to reach it; with 2 images a class it is mostly luck.
"""

import argparse
import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from page import put

from shotfit.report.paired import average, difference, signed
from shotfit.training.stopping import MAX_FRACTION, MIN_FRACTION, best_fraction
from stopping.study import PUBLISHED, SIGNALS

Policy = Callable[[dict], float]


def place(record: dict, fraction: float) -> dict:
    """The measured place nearest to a fraction, never before the first tenth."""
    places = [p for p in record["places"] if p["fraction"] >= MIN_FRACTION]
    return min(places, key=lambda p: abs(p["fraction"] - fraction))


def outcome(record: dict, fraction: float) -> float:
    return place(record, fraction)["harmonic_mean"]


def stopped(record: dict, signal: str, threshold: float) -> float:
    """The fraction at which a signal passes a threshold; the most when it never does."""
    total = record["options"]["iters_per_shot"] * record["options"]["shots"]
    for iteration, value in record["signals"][signal]:
        fraction = iteration / total
        if fraction >= MIN_FRACTION and SIGNALS[signal].direction * (value - threshold) > 0:
            return fraction
    return MAX_FRACTION


def held_out(record: dict) -> float:
    """`stopping.LeaveClassesOut`'s choice, from its kept curve."""
    return best_fraction([(fraction, score) for fraction, score in record["leave_classes_out"]])


def calibrated(records: Sequence[dict], signal: str) -> Policy:
    """The rule with, for every task, the threshold that did best on the other tasks."""
    thresholds: dict[str, float] = {}
    for task in {unshifted(record) for record in records}:
        others = [record for record in records if unshifted(record) != task]
        thresholds[task] = best_threshold(others or records, signal)
    return lambda record: stopped(record, signal, thresholds[unshifted(record)])


def unshifted(record: dict) -> str:
    """The task whose images these are, shifted or not."""
    return record["task"].partition("@")[0]


def best_threshold(records: Sequence[dict], signal: str) -> float:
    """The one of forty quantiles of the signal's values with the highest mean harmonic mean."""
    values = sorted(value for record in records for _, value in record["signals"][signal])
    candidates = sorted({values[int(i * (len(values) - 1) / 39)] for i in range(40)})
    return max(
        candidates,
        key=lambda t: statistics.fmean(outcome(r, stopped(r, signal, t)) for r in records),
    )


def best_fixed(records: Sequence[dict]) -> Policy:
    """One alpha a method for all tasks, for every task chosen on the others."""

    def choose(record: dict) -> float:
        same = [r for r in records if r["method"] == record["method"]]
        others = [r for r in same if unshifted(r) != unshifted(record)] or same
        tenths = [i / 10 for i in range(1, 9)]
        return max(tenths, key=lambda f: statistics.fmean(outcome(r, f) for r in others))

    return choose


def policies(records: Sequence[dict]) -> dict[str, Policy]:
    published = {
        "published alpha": lambda r: PUBLISHED[r["method"]],
        "longest (0.8)": lambda r: MAX_FRACTION,
        "shortest (0.1)": lambda r: MIN_FRACTION,
        "leave classes out": held_out,
        "gradient evidence > 0": lambda r: stopped(r, "evidence", 0.0),
        "class agreement < 0": lambda r: stopped(r, "agreement", 0.0),
    }
    rules = {
        "gradient evidence": calibrated(records, "evidence"),
        "text drift": calibrated(records, "drift"),
        "training fit": calibrated(records, "fit"),
        "class agreement": calibrated(records, "agreement"),
    }
    hindsight = {
        "one alpha a method, from other tasks": best_fixed(records),
        "best alpha in hindsight": lambda r: max(
            (i / 10 for i in range(1, 9)), key=lambda f: outcome(r, f)
        ),
    }
    return {**published, **rules, **hindsight}


def table(records: Sequence[dict]) -> str:
    """One Markdown table a method and one for both."""
    chosen = policies(records)
    blocks = []
    for method in (*sorted({record["method"] for record in records}), "both"):
        cells = [r for r in records if method in ("both", r["method"])]
        tasks = len({r["task"] for r in cells})
        lines = [
            f"**{method}** ({len(cells)} runs, {tasks} tasks)",
            "",
            "| policy | mean α | base | novel | HM | HM − published α, 95 % |",
            "| --- | ---: | ---: | ---: | ---: | ---: |",
        ]
        for name, policy in chosen.items():
            lines.append(_line(name, [(r, place(r, policy(r)), policy(r)) for r in cells]))
        own = [(r, r["published_alpha_own_cosine"]) for r in cells]
        rows = [(record, found, found["fraction"]) for record, found in own if found]
        if rows:
            lines.append(_line(f"published alpha, own cosine ({len(rows)} runs)", rows))
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _line(name: str, rows: list[tuple[dict, dict, float]]) -> str:
    chosen: dict[str, list[dict]] = {}
    fixed: dict[str, list[dict]] = {}
    for record, found, _ in rows:
        chosen.setdefault(record["task"], []).append(found)
        published = place(record, PUBLISHED[record["method"]])
        fixed.setdefault(record["task"], []).append(published)
    gained = difference(chosen, fixed, "harmonic_mean")
    numbers = [
        f"{statistics.fmean(fraction for _, _, fraction in rows):.2f}",
        *(f"{average(chosen, key):.2f}" for key in ("base", "novel", "harmonic_mean")),
        signed(gained) if name != "published alpha" else "",
    ]
    return f"| {name} | {' | '.join(numbers)} |"


def costs(records: Sequence[dict]) -> str:
    """What deciding takes, in shares of the longest first stage's seconds."""
    lines = ["| cost of | share of the longest first stage |", "| --- | ---: |"]
    for name in ("leave_classes_out", *SIGNALS):
        shares = [r["seconds"][name] / r["seconds"]["first_stage"] for r in records]
        lines.append(f"| {name.replace('_', ' ')} | {statistics.median(shares):.3f} |")
    return "\n".join(lines)


def along(records: Sequence[dict], signal: str) -> str:
    """A signal's mean over runs, and their standard deviation: at first and at each quarter."""
    methods = sorted({record["method"] for record in records})
    title = f"{signal}, mean (standard deviation over runs), at update"
    taken = [at for at, _ in records[0]["signals"][signal]]
    quarters = [taken[round(len(taken) * quarter / 4) - 1] for quarter in range(1, 5)]
    shown = [taken[0], *quarters]
    lines = [f"| {title} | {' | '.join(map(str, shown))} |", "| --- |" + " ---: |" * len(shown)]
    for method in methods:
        runs = [dict(r["signals"][signal]) for r in records if r["method"] == method]
        values = [[run[at] for run in runs] for at in shown]
        cells = [f"{statistics.fmean(v):.3f} ({statistics.pstdev(v):.3f})" for v in values]
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(lines)


def shipped(records: Sequence[dict]) -> str:
    """The thresholds that all tasks together would choose."""
    chosen = (f"{name} {best_threshold(records, name):.4g}" for name in SIGNALS)
    return f"Thresholds from all tasks together: {', '.join(chosen)}."


def by_suite(records: Sequence[dict]) -> dict[str, list[dict]]:
    """The records of either suite, as far as there are some."""
    shifted = [record for record in records if "@" in record["task"]]
    plain = [record for record in records if "@" not in record["task"]]
    found = {"On the embedded suite": plain, "On the shifted suite": shifted}
    return {title: mine for title, mine in found.items() if mine}


def tables(records: Sequence[dict]) -> str:
    """What policies reach, what deciding costs, what would be decided by."""
    return "\n\n".join(
        [table(records), along(records, "agreement"), costs(records), shipped(records)]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--results", type=Path, default=Path("results/stopping"))
    parser.add_argument("--write", type=Path, help="page to put the tables into")
    options = parser.parse_args()
    records = [json.loads(path.read_text()) for path in sorted(options.results.glob("*.json"))]
    if not records:
        parser.error(f"no records in {options.results}; run `make stopping-study`")
    text = "\n\n".join(
        [f"### {title}\n\n{tables(found)}" for title, found in by_suite(records).items()]
    )
    if options.write is None:
        print(text)
        return
    put(options.write, "study", text)


if __name__ == "__main__":
    main()
