"""Writes the README's table anew from the records of the embedded suite.

    python tools/update_readme.py [--results results]

Only complete rows are written: a task that has not run with all three seeds is named as missing.
"""

import argparse
import statistics
from pathlib import Path

from shotfit.evaluation import harmonic_mean
from shotfit.records import Record, load_records

README = Path(__file__).parent.parent / "README.md"
START, END = "<!-- suite -->", "<!-- /suite -->"
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
        )
        if wanted:
            key = (record.dataset, method_of(record))
            found.setdefault(key, {})[experiment["seed"]] = record
    return found


def mean_spread(records: dict[int, Record], key: str) -> tuple[float, float]:
    """Mean and standard deviation over the seeds."""
    values = [records[seed].metrics[key] for seed in SEEDS]
    return statistics.mean(values), statistics.stdev(values)


def table(records: list[Record]) -> str:
    """The Markdown table, with the commands that make it."""
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
        "half of the classes; mean over seeds 1, 2, 3 and, behind ±, standard deviation. *All* is",
        "accuracy over base and novel names together.",
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
                    means = [mean_spread(runs, half)[0] for half in ("base", "novel")]
                    cells.append(f"{harmonic_mean(*means):.1f}")
                    continue
                mean, spread = mean_spread(runs, key)
                sums.setdefault((key, method), []).append(mean)
                cells.append(
                    f"{mean:.1f}" if method == "zero_shot" else f"{mean:.1f} ± {spread:.1f}"
                )
        lines.append("| " + " | ".join(cells) + " |")
    lines.append(_average(sums))
    lines += ["", _summary(found, complete)]
    missing = sorted(set(tasks) - set(complete))
    if missing:
        lines += ["", f"Not run with all seeds yet: {', '.join(missing)}."]
    lines += ["", "Made by `make suite` from the records in `results/`."]
    return "\n".join(lines)


def _average(sums: dict[tuple[str, str], list[float]]) -> str:
    cells = ["**average**"]
    for key in ("base", "novel", "harmonic_mean", "joint"):
        for method in ("zero_shot", "layernorm+linear"):
            if key == "harmonic_mean":
                halves = [statistics.mean(sums[half, method]) for half in ("base", "novel")]
                cells.append(f"**{harmonic_mean(*halves):.1f}**")
            else:
                cells.append(f"**{statistics.mean(sums[key, method]):.1f}**")
    return "| " + " | ".join(cells) + " |"


def _summary(found: dict[tuple[str, str], dict[int, Record]], tasks: list[str]) -> str:
    def gain(task: str, key: str) -> float:
        ours, start = found[task, "layernorm+linear"], found[task, "zero_shot"]
        return mean_spread(ours, key)[0] - mean_spread(start, key)[0]

    good = [task for task in tasks if gain(task, "base") >= 15 and gain(task, "novel") >= -2]
    return (
        f"2SFS gains at least 15 points on base classes and loses at most 2 on novel ones on "
        f"{len(good)} of {len(tasks)} tasks."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=README.parent / "results")
    arguments = parser.parse_args()
    text = README.read_text(encoding="utf-8")
    before, rest = text.split(START)
    after = rest.split(END)[1]
    page = table(load_records(arguments.results))
    README.write_text(f"{before}{START}\n{page}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
