"""What learning from reduced photographs costs in accuracy: pairs of fits, reduced and full size.

    python benchmarks/reduction.py                              # a record a pair; it goes on
    python benchmarks/reduction.py --write docs/performance.md  # the table of the records

Photographs are those of the package `conformal-clip-data` (MIT; a development dependency): 2,000
photographs of textiles, 250 pixels wide, in three classes. Shots are drawn from all of them, and
the others are the test images, which are always read at full size. Both fits of a pair
learn from the same shots, from crops of whole images or of images at a quarter of their size (63
pixels where the embedded model's crops need 46). Crops are drawn in whole pixels, so that beyond
the first they are not the same ones.
"""

import argparse
import dataclasses
import json
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from page import run_or_write

from shotfit.averages import estimate
from shotfit.data.dataset import Dataset, Example
from shotfit.data.task import make_task
from shotfit.evaluation.metrics import evaluate
from shotfit.experiment import Experiment, environment, fit_task
from shotfit.recipe import named_recipe
from shotfit.system.files import write_atomically
from shotfit.system.memory import reused_memory

CLASSES = {"nominal": "intact textile", "local": "local defect", "global": "global defect"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Parses the command line; measures, or writes the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(1, 11)))
    parser.add_argument("--shots", type=int, default=16)
    parser.add_argument("--iters-per-shot", type=int, default=20)
    parser.add_argument("--test", type=int, default=200, help="test images of a class")
    parser.add_argument("--results", type=Path, default=Path("results/reduction"))
    parser.add_argument("--write", type=Path, help="only put the table into this page")
    run_or_write(parser, arguments, run_missing, "reduction", table)


@reused_memory()
def run_missing(options: argparse.Namespace) -> None:
    """Every pair without a record."""
    torch.set_num_threads(1)
    for seed in options.seeds:
        path = options.results / f"seed{seed}.json"
        if not path.exists():
            record = pair(textiles(seed, options.shots, options.test), seed, options)
            write_atomically(path, json.dumps(record, indent=1) + "\n")
            print(f"seed {seed}: {record['reduced']} reduced, {record['full_size']}", flush=True)


def textiles(seed: int, shots: int, test: int) -> Dataset:
    """Photographs of textiles: `shots` for training and `test` others of each class."""
    from conformal_clip_data import textile_simulated_root

    stream = random.Random(f"textiles {seed}")
    train, tests = [], []
    for label, folder in enumerate(CLASSES):
        files = sorted((textile_simulated_root() / folder).glob("*.jpg"))
        drawn = stream.sample(files, shots + test)
        examples = [Example(f"{folder}/{file.name}", label, file) for file in drawn]
        train += examples[:shots]
        tests += examples[shots:]
    return Dataset("textiles", tuple(CLASSES.values()), tuple(train), test=tuple(tests))


def pair(dataset: Dataset, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Accuracy and seconds of both fits."""
    recipe = named_recipe("2sfs", iters_per_shot=options.iters_per_shot)
    experiment = Experiment(setting="all_to_all", shots=options.shots, seed=seed, recipe=recipe)
    found: dict[str, Any] = {}
    for kind in ("reduced", "full_size"):
        chosen = dataclasses.replace(dataset, reduced=kind == "reduced")
        task = make_task(chosen, "all_to_all", options.shots, seed)
        started = time.process_time()
        method = fit_task(experiment, task)
        seconds = time.process_time() - started
        found[kind] = {
            "accuracy": round(evaluate(method, task.tests)["all"], 3),
            "processor_seconds": round(seconds, 1),
        }
    settings = {key: getattr(options, key) for key in ("shots", "iters_per_shot", "test")}
    return {"seed": seed, "options": settings, **found, "environment": environment()}


def table(records: Sequence[dict[str, Any]]) -> str:
    """Markdown: both accuracies, and the mean difference with its interval over pairs."""
    options, count = records[0]["options"], len(records)
    means = {
        kind: sum(record[kind]["accuracy"] for record in records) / count
        for kind in ("reduced", "full_size")
    }
    found = estimate(
        [record["reduced"]["accuracy"] - record["full_size"]["accuracy"] for record in records]
    )
    half = found.half_width or float("nan")
    images = 3 * options["test"]
    return "\n".join(
        [
            f"{count} pairs, 2SFS on the embedded model, three classes of textile photographs, "
            f"k={options['shots']}, M={options['iters_per_shot']}, {images} test images a pair:",
            "",
            "| crops from | accuracy, % |",
            "| --- | ---: |",
            f"| reduced photographs | {means['reduced']:.2f} |",
            f"| full size | {means['full_size']:.2f} |",
            f"| difference, points (95 % interval over pairs) | {found.mean:+.2f} ± {half:.2f} |",
        ]
    )


if __name__ == "__main__":
    main()
