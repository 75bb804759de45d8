"""How often `instant` has to encode an image: accuracy over passes, by shots.

    python benchmarks/instant.py                                   # measures what is missing
    python benchmarks/instant.py --write docs/speed-and-accuracy.md
    python benchmarks/instant.py --shapes ViT-B/32 ViT-B/16 --write docs/speed-and-accuracy.md

GDA's few-shot estimator as `instant` has it, base to novel, with so many passes over the shots. A
task with fewer training images in a class than there are shots is left out. The third times the
preset by the clock on the wall, with models of CLIP's shapes and random weights.
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from page import put
from PIL import Image
from speed.ours import Words
from speed.shapes import SHAPES, class_names, random_clip

from shotfit.averages import harmonic_mean, mean
from shotfit.backbone import Backbone
from shotfit.data.dataset import Example, Split
from shotfit.data.sources.demo import list_tasks
from shotfit.data.transforms import ImageSpec
from shotfit.errors import DataError
from shotfit.experiment import Experiment, run, support_set
from shotfit.methods import get_method
from shotfit.presets import PRESETS
from shotfit.recipe import Recipe, Stage
from shotfit.shots_assessment import assess_shots
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
    parser.add_argument("--shapes", nargs="+", default=[], help="time the preset on these")
    parser.add_argument("--threads", type=int, default=2, help="with --shapes")
    options = parser.parse_args(arguments)
    if options.shapes:
        times = timed(options.shapes, options.threads)
        print(times)
        if options.write is not None:
            put(options.write, "instant-times", times)
        return
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


def timed(names: Sequence[str], threads: int, classes: int = 24, shots: int = 16) -> str:
    """Markdown: seconds by the clock from images in memory to a classifier that can answer, with
    what its shots say."""
    torch.set_num_threads(threads)
    (stage,) = PRESETS["instant"].recipe.stages
    kind = get_method(stage.method)
    lines = [f"| model | seconds, {threads} threads |", "|---|---:|"]
    for name in names:
        shape = SHAPES[name]
        spec = ImageSpec(size=shape.image, resize=shape.image)
        backbone = Backbone.from_model(random_clip(shape), Words(shape.vocabulary), spec)
        examples = tuple(
            Example(str(n), n % classes, Image.effect_noise((300, 300), 80).convert("RGB"))
            for n in range(classes * shots)
        )
        started = time.perf_counter()
        with support_set(Split(class_names(classes), examples), backbone, 1) as support:
            method = kind(backbone, kind.Config(**stage.options))
            method.setup(support)
            method.encode_classes(support.classnames)
            assess_shots(method, support, None, 1)
        lines.append(f"| {name} | {time.perf_counter() - started:.0f} |")
    return "\n".join(lines)


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
