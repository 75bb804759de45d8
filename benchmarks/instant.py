"""How often `instant` has to encode an image: accuracy over passes, by shots.

    python benchmarks/instant.py                                   # measures what is missing
    python benchmarks/instant.py --write docs/speed-and-accuracy.md

GDA's few-shot estimator as `instant` has it, base to novel, with so many passes over the shots. A
task with fewer training images in a class than there are shots is left out.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import torch
from page import put

from shotfit.averages import harmonic_mean, mean
from shotfit.data.sources.demo import list_tasks
from shotfit.errors import DataError
from shotfit.experiment import Experiment, run
from shotfit.recipe import Recipe, Stage
from shotfit.system.files import write_atomically

RESULTS = Path("results/instant/cells.json")
PASSES = {1: (4, 8, 10, 16), 4: (1, 2, 4, 8, 10, 16)}
"""By shots. A single image needs several views, since there is no covariance of one."""
METRICS = {"base": "Base", "novel": "Novel", "harmonic_mean": "HM", "joint": "Joint"}
Cells = dict[str, dict[str, float]]


def main(arguments: Sequence[str] | None = None) -> None:
    """Parses the command line; measures, or writes the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", default=list_tasks())
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--write", type=Path, help="put what was found into this page")
    options = parser.parse_args(arguments)
    kept = options.results.read_text(encoding="utf-8") if options.results.exists() else "{}"
    if options.write is None:
        torch.set_num_threads(1)
        run_missing(json.loads(kept), options.tasks, options.seeds, options.results)
    else:
        put(options.write, "instant", table(json.loads(kept)))


def run_missing(cells: Cells, tasks: Sequence[str], seeds: Sequence[int], path: Path) -> None:
    """Every cell `shots/passes/task/seed` that is not there."""
    for shots, wanted in PASSES.items():
        for seed in seeds:
            for task in tasks:
                for passes in wanted:
                    key = f"{shots}/{passes}/{task}/{seed}"
                    if key not in cells:
                        cells[key] = measured(task, shots, seed, passes)
                        write_atomically(path, json.dumps(cells, indent=0) + "\n")


def measured(task: str, shots: int, seed: int, passes: int) -> dict[str, float]:
    """Metrics and processor seconds of a run; nothing where a class has too few images."""
    stage = Stage("gda", {"estimator": "few_shot", "alpha": 10.0, "passes": passes})
    wanted = Experiment(data={"name": task}, shots=shots, seed=seed, recipe=Recipe((stage,)))
    try:
        record, _ = run(wanted, device="cpu")
    except DataError:
        return {}
    seconds = record.cost["processor_seconds"]
    return {**{key: record.metrics[key] for key in METRICS}, "processor_seconds": seconds}


def table(cells: Cells) -> str:
    """Markdown: means over the runs, a row for shots and passes; HM is that of the averages."""
    lines = [
        f"| shots | passes | views of a class | runs | {' | '.join(METRICS.values())} | CPU s |",
        f"|{'---:|' * (len(METRICS) + 5)}",
    ]
    for shots, wanted in PASSES.items():
        for passes in wanted:
            found = [one for key, one in cells.items() if key.startswith(f"{shots}/{passes}/")]
            done = [one for one in found if one]
            if not done:
                continue
            means = {key: mean([one[key] for one in done]) for key in done[0]}
            means["harmonic_mean"] = harmonic_mean(means["base"], means["novel"])
            told = " | ".join(f"{means[key]:.1f}" for key in METRICS)
            seconds = f"{means['processor_seconds']:.1f}"
            lines.append(
                f"| {shots} | {passes} | {shots * passes} | {len(done)} | {told} | {seconds} |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
