"""How many cached views does the second stage need? Every number of them against fresh images.

    python benchmarks/views.py                              # a record a cell; again, it goes on
    python benchmarks/views.py --write docs/performance.md  # the table of the records

A cell is (task, seed) with the published budget, base to novel. Its first stage is trained once and
shared; on it a second stage is trained for every number of views and, as published, on images that
are augmented and encoded anew at every iteration. All second stages draw from the same random
stream, so that fewer views are the first of more. Only accuracy that the second stage can change is
compared: novel classes are answered by the first stage, whatever the views.
"""

import argparse
import dataclasses
import json
import random
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from page import run_or_write

from shotfit.averages import Estimate
from shotfit.backbone import Backbone
from shotfit.data.sources import load_dataset
from shotfit.data.sources.demo import list_tasks
from shotfit.data.support_set import SupportSet
from shotfit.data.task import Task, make_task
from shotfit.evaluation.metrics import evaluate
from shotfit.experiment import environment, support_set, task_facts
from shotfit.methods import get_method
from shotfit.methods.base import Method
from shotfit.methods.linear import LinearClassifier, LinearConfig
from shotfit.methods.published import TrainConfig
from shotfit.plan import plan
from shotfit.recipe import Overrides, two_stage
from shotfit.report.paired import Measured, average, difference, signed
from shotfit.system.files import write_atomically
from shotfit.system.memory import reused_memory
from shotfit.training.loop import train

VIEWS = (None, 1, 2, 4, 8, 16, 32)
METRICS = ("base", "harmonic_mean", "joint")
# A number of views is as good as fresh images when it loses less than this many points, at the
# lower end of the interval.
MARGIN = 0.5


def main(arguments: Sequence[str] | None = None) -> None:
    """Parses the command line; measures, or writes the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", default=list_tasks())
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--shots", type=int, default=4)
    parser.add_argument("--iters-per-shot", type=int, default=300)
    parser.add_argument(
        "--precision",
        default="bf16",
        choices=["fp32", "bf16"],
        help="of the first stage, which all numbers of views share",
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--backbone", default="iconclip")
    parser.add_argument("--results", type=Path, default=Path("results/views"))
    parser.add_argument("--write", type=Path, help="only put the table into this page")
    run_or_write(parser, arguments, run_missing, "views", table)


@reused_memory()
def run_missing(options: argparse.Namespace) -> None:
    """Every cell without a record, seed by seed, so that what is there is balanced over tasks."""
    torch.set_num_threads(options.threads)
    for seed in options.seeds:
        for name in options.tasks:
            path = options.results / f"{name}-seed{seed}.json"
            if path.exists():
                continue
            started = time.perf_counter()
            record = cell(name, seed, options)
            write_atomically(path, json.dumps(record, indent=1) + "\n")
            print(f"{path.stem}: {time.perf_counter() - started:.0f} s", flush=True)


def cell(name: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """One first stage, and a second stage on it for every number of views."""
    task = make_task(load_dataset("demo", name=name), "base_to_novel", options.shots, seed)
    backbone = Backbone.from_pretrained(options.backbone)
    recipe = two_stage(iters_per_shot=options.iters_per_shot)
    recipe = Overrides(options={"training.precision": options.precision}).applied(recipe)
    (stage, config, (training,)), (_, _, (rest,)) = plan(recipe, task_facts(task))
    # The second stage is measured as it is shipped.
    rest = TrainConfig(iterations=rest.iterations)
    generator = torch.Generator().manual_seed(seed)
    method = get_method(stage.method)(backbone, config, task.support.template, generator)
    support = support_set(task.support, backbone, seed)
    method.setup(support)
    started = time.perf_counter()
    for _ in train(method, support, training):
        pass
    seconds = time.perf_counter() - started
    return {
        "task": name,
        "seed": seed,
        "options": {
            key: getattr(options, key)
            for key in ("shots", "iters_per_shot", "precision", "threads", "backbone")
        },
        "classes": len(task.support.classnames),
        "first_stage_seconds": round(seconds, 2),
        "variants": [variant(method, task, seed, views, rest) for views in VIEWS],
        "split_hash": task.split_hash,
        "environment": environment(),
    }


def variant(
    method: Method, task: Task, seed: int, views: int | None, training: TrainConfig
) -> dict[str, Any]:
    """A second stage with so many views: its seconds, what it reaches; `method` stays as it is."""
    stream = random.Random(f"second stage {seed}")
    support = SupportSet(task.support, method.backbone.image_spec, stream)
    second = LinearClassifier(method, LinearConfig(views=views))
    started = time.perf_counter()
    second.setup(support)
    scale = method.backbone.hints.classifier_lr_scale
    training = dataclasses.replace(training, lr=training.lr * scale)
    for _ in train(second, support, training):
        pass
    seconds = time.perf_counter() - started
    found = evaluate(second, task.tests)
    metrics = {key: round(found[key], 3) for key in (*METRICS, "novel")}
    return {"views": views, "seconds": round(seconds, 2), **metrics}


def differences(records: Sequence[dict[str, Any]], views: int | None, metric: str) -> Estimate:
    """What so many views gain on fresh images, with its 95 % interval over tasks."""
    return difference(measured(records, views), measured(records, None), metric)


def measured(records: Sequence[dict[str, Any]], views: int | None) -> Measured:
    """By task, what the second stages with so many views reached."""
    found: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        parts = [part for part in record["variants"] if part["views"] == views]
        found.setdefault(record["task"], []).extend(parts)
    return found


def enough(records: Sequence[dict[str, Any]]) -> int | None:
    """The fewest views from which on none loses `MARGIN` points of base accuracy; None: all do."""
    found = None
    for views in sorted((views for views in VIEWS if views is not None), reverse=True):
        gained = differences(records, views, "base")
        if gained.half_width is None or gained.interval[0] < -MARGIN:
            break
        found = views
    return found


def table(records: Sequence[dict[str, Any]]) -> str:
    """Markdown: a line for every number of views, means over tasks of means over seeds, and the
    harmonic means of those."""
    tasks = sorted({record["task"] for record in records})
    options = records[0]["options"]
    lines = [
        f"{len(records)} runs on {len(tasks)} tasks, k={options['shots']}, "
        f"M={options['iters_per_shot']}, first stage in {options['precision']}, "
        f"{options['threads']} thread(s). Differences to fresh images in points, with the 95 % "
        "interval over tasks.",
        "",
        "| views | base | HM | joint | base − fresh | HM − fresh | joint − fresh | stage 2, s |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for views in VIEWS:
        parts = [part for r in records for part in r["variants"] if part["views"] == views]
        cells = [f"{average(measured(records, views), metric):.2f}" for metric in METRICS]
        for metric in METRICS:
            gained = differences(records, views, metric)
            cells.append(signed(gained) if views is not None else "")
        cells.append(f"{statistics.median(part['seconds'] for part in parts):.1f}")
        lines.append(f"| {'fresh' if views is None else views} | {' | '.join(cells)} |")
    found = enough(records)
    lines += [
        "",
        f"Fewest views from which on no interval reaches {MARGIN} points below fresh images (base "
        f"accuracy): {found if found is not None else 'none of these'}.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
