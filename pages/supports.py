"""Writes what harder support sets cost five methods into docs/tables.md.

    python pages/supports.py [--results results/supports]

Wrong labels and unbalanced shots beside the support sets as drawn, from the records of
`make supports`; over the tasks and seeds that a method has in all three.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from marked import put

from shotfit.records import load_records
from shotfit.report.labels import method_label
from shotfit.report.paired import Measured, average, difference, signed
from shotfit.report.protocol import Run, runs_of

PAGE = Path(__file__).parent.parent / "docs" / "tables.md"
METRICS = {"base": "base", "harmonic_mean": "harmonic mean", "joint": "joint"}
HARDER = {"wrong_labels": "wrong labels", "imbalance": "unbalanced"}


def support_of(run: Run) -> str:
    """What is hard about the support set of a run; "" where nothing is."""
    return next((fact for fact in HARDER if run.fact(fact)), "")


def table(runs: Sequence[Run]) -> str:
    """A row for every method: averages on the sets as drawn, and what the harder ones differ."""
    found: dict[str, dict[str, dict[tuple[str, int], Run]]] = {}
    for run in runs:
        of_method = found.setdefault(run.method, {}).setdefault(support_of(run), {})
        of_method[run.dataset, run.seed] = run
    titles = [f"{title} | {' | '.join(HARDER.values())}" for title in METRICS.values()]
    lines = [
        "| method | tasks | " + " | ".join(titles) + " |",
        "| --- |" + " ---: |" * (1 + len(METRICS) * (1 + len(HARDER))),
    ]
    for method, supports in found.items():
        if set(supports) != {"", *HARDER}:
            continue
        shared = sorted(set.intersection(*(set(there) for there in supports.values())))
        measured = {support: metrics_of(there, shared) for support, there in supports.items()}
        cells = [cell for metric in METRICS for cell in cells_of(measured, metric)]
        lines.append(
            f"| {method_label(method)} | {len(measured[''])} | " + " | ".join(cells) + " |"
        )
    return "\n".join([*lines, "", "± is half of the 95 % interval over tasks."])


def metrics_of(runs: Mapping[tuple[str, int], Run], shared: Sequence[tuple[str, int]]) -> Measured:
    """The metrics by task, in order of the seeds, of what other support sets have, too."""
    return {task: [runs[one].metrics for one in shared if one[0] == task] for task, _ in shared}


def cells_of(measured: Mapping[str, Measured], metric: str) -> list[str]:
    """The average on the sets as drawn, and the differences of the harder ones."""
    plain = measured[""]
    away = (signed(difference(measured[harder], plain, metric), 1) for harder in HARDER)
    return [f"{average(plain, metric):.1f}", *away]


def main() -> None:
    """Parses the command line; writes the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--results", type=Path, default=Path("results/supports"))
    found = table(runs_of(load_records(parser.parse_args().results)))
    there = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(put(there, "supports", found), encoding="utf-8")


if __name__ == "__main__":
    main()
