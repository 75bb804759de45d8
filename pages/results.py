"""Writes the tables of the README, docs/comparison.md and docs/shifts.md anew from the records.

    python pages/results.py [--results results/suite] [--shifted results/shifted]

2SFS beside zero-shot CLIP, in fp32: averages for the README, every task for the page. Only complete
rows are written, and a task that has not run with all three seeds is named as missing. Then what
two stages do on shifted tasks.
"""

import argparse
from pathlib import Path

from marked import put

from shotfit.averages import Estimate, estimate, harmonic_mean, mean
from shotfit.records import Record, load_records
from shotfit.report.paired import compare_report
from shotfit.report.protocol import runs_of
from shotfit.report.render import render
from shotfit.report.suite import suite_report
from shotfit.report.tables import Report

README = Path(__file__).parent.parent / "README.md"
COMPARISON = README.parent / "docs" / "comparison.md"
SHIFTS = README.parent / "docs" / "shifts.md"
ON_SHIFTS = ("2sfs", "zero-shot", "layernorm")
SEEDS = (1, 2, 3)
KEYS = ("base", "novel", "joint")


def method_of(record: Record) -> str:
    """The record's stages in one word, such as "layernorm+linear"."""
    stages = record.experiment["recipe"]["stages"]
    return "+".join(stage["method"] for stage in stages)


def collect(records: list[Record]) -> dict[tuple[str, str], dict[int, Record]]:
    """Finished base-to-novel records at four shots with published options, by task and method."""
    found: dict[tuple[str, str], dict[int, Record]] = {}
    for record in records:
        experiment = record.experiment
        wanted = (
            record.status == "done"
            and experiment["source"] == "demo"
            and experiment["setting"] == "base_to_novel"
            and experiment["shots"] == 4
            and experiment["recipe"]["iters_per_shot"] == 300
            and experiment["recipe"]["first_fraction"] is None
            and not any(s["options"] or s["training"] for s in experiment["recipe"]["stages"])
        )
        if wanted:
            key = (record.dataset, method_of(record))
            found.setdefault(key, {})[experiment["seed"]] = record
    return found


def over_seeds(records: dict[int, Record], key: str) -> Estimate:
    """The mean over the seeds, with its interval."""
    return estimate([records[seed].metrics[key] for seed in SEEDS])


def tables(records: list[Record]) -> tuple[str, str]:
    """The Markdown table of every task, with the command that makes it, and a short one."""
    found = collect(records)
    tasks = sorted({task for task, _ in found})
    complete = [
        task
        for task in tasks
        if all(
            set(found.get((task, m), {})) >= set(SEEDS) for m in ("zero_shot", "layernorm+linear")
        )
    ]
    lines = [
        "Accuracy in percent on the embedded suite, four images per class, trained on the first",
        "half of the classes; mean over seeds 1, 2, 3 and, behind ±, the half-width of its 95 %",
        "interval (t distribution). *All* is accuracy over base and novel names together.",
        "Harmonic means are those of the means beside them, in the last row too, as in the paper:",
        "not the mean of those above.",
        "",
        "| task | base: zero-shot | 2SFS | novel: zero-shot | 2SFS "
        "| harmonic mean: zero-shot | 2SFS | all: zero-shot | 2SFS |",
        "|---|" + "---:|" * 8,
    ]
    sums: dict[tuple[str, str], list[float]] = {}
    for task in complete:
        cells = [task]
        for key in ("base", "novel", "harmonic_mean", "joint"):
            for method in ("zero_shot", "layernorm+linear"):
                runs = found[task, method]
                if key == "harmonic_mean":
                    means = [over_seeds(runs, half).mean for half in ("base", "novel")]
                    cells.append(f"{harmonic_mean(*means):.1f}")
                    continue
                found_here = over_seeds(runs, key)
                sums.setdefault((key, method), []).append(found_here.mean)
                # Zero-shot is the same whatever the seed.
                spread = "" if method == "zero_shot" else f" ± {found_here.half_width:.1f}"
                cells.append(f"{found_here.mean:.1f}{spread}")
        lines.append("| " + " | ".join(cells) + " |")
    lines.append("| " + " | ".join(["**average**", *(f"**{c}**" for c in _averages(sums))]) + " |")
    lines += ["", _summary(found, complete)]
    missing = sorted(set(tasks) - set(complete))
    if missing:
        lines += ["", f"Not run with all seeds yet: {', '.join(missing)}."]
    lines += ["", "Made by `make suite` from the records in `results/suite/`."]
    return "\n".join(lines), _short(sums, _summary(found, complete), len(complete))


def _short(sums: dict[tuple[str, str], list[float]], summary: str, tasks: int) -> str:
    """The averages alone, a row a method."""
    cells = _averages(sums)
    rows = {"zero-shot CLIP": cells[::2], "2SFS": cells[1::2]}
    return "\n".join(
        [
            f"Accuracy in percent, average of {tasks} embedded tasks and seeds 1, 2, 3, with four",
            "images per class of the first half of the classes (base), none of the others (novel).",
            "",
            "| | base | novel | harmonic mean | all names together |",
            "|---|" + "---:|" * 4,
            *(f"| {name} | " + " | ".join(row) + " |" for name, row in rows.items()),
            "",
            summary,
        ]
    )


def _averages(sums: dict[tuple[str, str], list[float]]) -> list[str]:
    """Of base, novel, harmonic mean and joint, each of zero-shot CLIP and of 2SFS."""
    cells = []
    for key in ("base", "novel", "harmonic_mean", "joint"):
        for method in ("zero_shot", "layernorm+linear"):
            if key == "harmonic_mean":
                halves = [mean(sums[half, method]) for half in ("base", "novel")]
                cells.append(f"{harmonic_mean(*halves):.1f}")
            else:
                cells.append(f"{mean(sums[key, method]):.1f}")
    return cells


def _summary(found: dict[tuple[str, str], dict[int, Record]], tasks: list[str]) -> str:
    def gain(task: str, key: str) -> float:
        ours, start = found[task, "layernorm+linear"], found[task, "zero_shot"]
        return over_seeds(ours, key).mean - over_seeds(start, key).mean

    better = [task for task in tasks if gain(task, "base") > 0]
    worse = [task for task in tasks if gain(task, "novel") < -2]
    return (
        f"On base classes 2SFS is above zero-shot CLIP on {len(better)} of {len(tasks)} tasks, by\n"
        f"{mean([gain(task, 'base') for task in tasks]):.1f} points on average; on novel ones it "
        f"loses more than 2 points on {len(worse)}."
    )


def long(report: Report) -> str:
    """Every panel, under second headings."""
    return render(report, "markdown").split("\n", 2)[2].strip()


def shifted(records: list[Record]) -> str:
    """Averages over the shifted suite, and what may be claimed of them."""
    differences = compare_report(runs_of(records), ON_SHIFTS)
    text = f"{long(suite_report(records, shifted=True))}\n\n{long(differences)}"
    return text.replace("## ", "### ")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=README.parent / "results" / "suite")
    parser.add_argument("--shifted", type=Path, default=README.parent / "results" / "shifted")
    arguments = parser.parse_args()
    records = load_records(arguments.results)
    every_task, short = tables(records)
    README.write_text(put(README.read_text(encoding="utf-8"), "suite", short), encoding="utf-8")
    page = put(COMPARISON.read_text(encoding="utf-8"), "suite", every_task)
    COMPARISON.write_text(page, encoding="utf-8")
    page = put(SHIFTS.read_text(encoding="utf-8"), "runs", shifted(load_records(arguments.shifted)))
    SHIFTS.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
