"""Every method with the same tuning: one factor on its rates, chosen on three tasks.

    python -m tuned                                       # what is missing; again, it goes on
    python -m tuned --part 1/2 & python -m tuned --part 2/2    # two processes
    python -m tuned --write docs/comparison.md            # the tables of the records

In the folder `benchmarks`, or with it in `PYTHONPATH`. Base to novel, four shots, one budget of 100
iterations a shot (M), bf16. First every method runs on the three tuning tasks with a quarter of its
published rates, with them, and with four times them (seed 1); the factor with the best harmonic
mean there is its own, base accuracy where it scores base classes alone. Then it runs so on the
other tasks and on shifted ones, three seeds each. A two-stage recipe has one factor for both
stages, over published rates: what the embedded model asks for is left out, but for one row as it is
shipped. CLIP-LoRA is LoRA under one budget.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from page import put

from shotfit.bench.runner import run_all
from shotfit.experiment import Experiment
from shotfit.records import load_records
from tuned.runs import recipes, reported, reporting, tuning
from tuned.tables import tables


def main(arguments: Sequence[str] | None = None) -> None:
    """Parses the command line; runs what is missing, or writes the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=Path("results/tuned"))
    parser.add_argument("--part", default="1/1", help="of the runs that are missing")
    parser.add_argument("--tasks", nargs="+", help="only these [the other tasks and the shifted]")
    parser.add_argument("--methods", nargs="+", help="only these [all]")
    parser.add_argument("--write", type=Path, help="put what was found into this page")
    options = parser.parse_args(arguments)
    names = options.methods or recipes()
    if options.write is not None:
        put(options.write, "tuned", tables(options.results, names))
        return
    part, parts = map(int, options.part.split("/"))
    if parts > 1:
        # Processes of several threads each would wait for one another's.
        torch.set_num_threads(1)
    wanted = [one for name in names for one in tuning(name)]
    run_missing(wanted[part - 1 :: parts], options.results)
    wait_for = {one.id for one in wanted}
    found = {record.id: record for record in load_records(options.results)}
    if not wait_for <= found.keys():
        print("The other part has not ended its tuning: run again when it has.", flush=True)
        return
    wanted = list(reported(names, options.tasks or reporting(), found))
    run_missing(wanted[part - 1 :: parts], options.results)


def run_missing(experiments: Sequence[Experiment], folder: Path) -> None:
    """Runs them one after another; a line for each."""
    for step in run_all(experiments, folder):
        if step.record is not None:
            told = {key: round(value, 1) for key, value in step.record.metrics.items()}
            print(step.record.dataset, step.record.id, step.record.status, told, flush=True)


if __name__ == "__main__":
    main()
