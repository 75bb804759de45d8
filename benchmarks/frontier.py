"""What the presets reach, and for how many seconds of the processor.

    python benchmarks/frontier.py
    python benchmarks/frontier.py --write docs/speed-and-accuracy.md
    python benchmarks/frontier.py --shapes ViT-B/32 ViT-B/16

The first measures, a record a cell, and goes on when run again; the second puts table and figure of
the records into the page. A cell is (preset, task, seed), base to novel; a run that is among the
records of `--known`, as those of the published recipe are, is taken from there. Seconds are the
processor's, of the whole fit: reading the images, both stages; other work on the machine hardly
adds to them. Only tasks and seeds that all presets have are compared.
"""

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from page import put
from PIL import Image
from speed.ours import Words
from speed.shapes import SHAPES, class_names, random_clip

from shotfit.averages import estimate, harmonic_mean, mean
from shotfit.backbone import Backbone
from shotfit.config import from_dict, to_dict
from shotfit.data.dataset import Example, Split
from shotfit.data.sources.demo import list_tasks
from shotfit.data.transforms import ImageSpec
from shotfit.experiment import Experiment, pick_device, run, support_set
from shotfit.methods.published import TaskFacts
from shotfit.pace import MORE, expected_seconds, measure_pace
from shotfit.presets import PRESETS
from shotfit.recipe import one_stage
from shotfit.records import Record, load_records
from shotfit.report.figures.canvas import new_figure, save
from shotfit.system.files import write_atomically

METRICS = {"base": "Base", "novel": "Novel", "harmonic_mean": "HM", "joint": "Joint"}
RESULTS = Path("results/frontier")
SUITE = Path("results/suite")
FIGURE = Path("figures/frontier.png")
NOTHING = "zero_shot"
"""What the presets are compared with beside each other: the model as it comes."""
Cells = dict[tuple[str, int], Record]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, or writes the table and the figure."""
    options = parse(arguments)
    if options.shapes:
        times = foreseen(options.shapes, options.threads)
        if options.write is None:
            print(times)
        else:
            put(options.write, "preset-times", times)
        return
    if options.write is None:
        run_missing(options)
        return
    cells = read(options)
    if not common(cells):
        sys.exit(
            f"no task in {options.results} and {options.known} has every preset; run "
            "benchmarks/frontier.py"
        )
    put(options.write, "frontier", table(cells))
    save(figure(cells), options.write.parent / FIGURE)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", default=list_tasks())
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--shots", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--known", type=Path, default=SUITE, help="records of `shotfit bench`")
    parser.add_argument("--write", type=Path, help="put what was found into this page")
    parser.add_argument(
        "--shapes", nargs="+", default=[], help="only foresee times on models of these"
    )
    return parser.parse_args(arguments)


def run_missing(options: argparse.Namespace) -> None:
    """Every cell without a record, seed by seed, so that what is there is balanced over tasks."""
    torch.set_num_threads(options.threads)
    known = {record.id for record in load_records(options.known)}
    for (name, task, seed), experiment in wanted(options.tasks, options.seeds, options.shots):
        path = options.results / f"{task}-seed{seed}-{name}.json"
        if path.exists() or experiment.id in known:
            continue
        record, _ = run(experiment, device="cpu")
        # What a run was like step by step is not what this is about.
        plain = to_dict(dataclasses.replace(record, curve=[]))
        write_atomically(path, json.dumps(plain, indent=1) + "\n")
        print(f"{path.stem}: {record.cost['processor_seconds']:.0f} s", flush=True)


def wanted(
    tasks: Sequence[str], seeds: Sequence[int], shots: int
) -> Iterator[tuple[tuple[str, str, int], Experiment]]:
    """The preset, task and seed of every cell, and its run as this processor carries it out."""
    recipes = {name: preset.on(pick_device("cpu")) for name, preset in PRESETS.items()}
    recipes[NOTHING] = one_stage(NOTHING)
    for seed in seeds:
        for task in tasks:
            for name, recipe in recipes.items():
                run = Experiment(data={"name": task}, shots=shots, seed=seed, recipe=recipe)
                yield (name, task, seed), run


def foreseen(names: Sequence[str], threads: int, classes: int = 24, shots: int = 16) -> str:
    """Markdown: processor seconds of the presets on models of these shapes with random weights, as
    `fit` foresees them from a few images and updates, and not of whole fits."""
    torch.set_num_threads(threads)
    facts = TaskFacts("photographs", "all_to_all", shots, classes, classes * shots)
    lines = [f"| model | {' | '.join(PRESETS)} |", f"|---|{'---:|' * len(PRESETS)}"]
    for name in names:
        shape = SHAPES[name]
        spec = ImageSpec(size=shape.image, resize=shape.image)
        backbone = Backbone.from_model(random_clip(shape), Words(shape.vocabulary), spec)
        picture = Image.effect_noise((300, 300), 80).convert("RGB")
        examples = tuple(Example(str(n), n % classes, picture) for n in range(MORE))
        split = Split(class_names(classes), examples)
        with support_set(split, backbone, 1) as support:
            pace = measure_pace(backbone, support, time.process_time)
        seconds = [
            sum(expected_seconds(preset.on(backbone.device), facts, pace))
            for preset in PRESETS.values()
        ]
        lines.append(f"| {name} | {' | '.join(f'{value:,.0f} s' for value in seconds)} |")
    return "\n".join(lines)


def read(options: argparse.Namespace) -> dict[str, Cells]:
    """The records by preset, and then by task and seed."""
    cells: dict[str, Cells] = {name: {} for name in (NOTHING, *PRESETS)}
    known = {record.id: record for record in load_records(options.known)}
    for (name, task, seed), experiment in wanted(options.tasks, options.seeds, options.shots):
        path = options.results / f"{task}-seed{seed}-{name}.json"
        if path.exists():
            plain = json.loads(path.read_text(encoding="utf-8"))
            cells[name][task, seed] = from_dict(Record, plain)
        elif experiment.id in known:
            cells[name][task, seed] = known[experiment.id]
    return cells


def common(cells: dict[str, Cells]) -> list[tuple[str, int]]:
    """The tasks and seeds that all presets have."""
    return sorted(set.intersection(*(set(found) for found in cells.values())))


def table(cells: dict[str, Cells]) -> str:
    """Markdown: accuracy in percent, seconds, and the share of the published gain that is kept."""
    places = common(cells)
    tasks = sorted({task for task, _ in places})
    seeds = sorted({seed for _, seed in places})
    first = cells["published"][places[0]]
    lines = [
        f"Means over {len(places)} fits each: {', '.join(tasks)}; seeds "
        f"{', '.join(map(str, seeds))}, {first.experiment['shots']} shots, base to novel, "
        f"{first.environment['threads']} thread, PyTorch {first.environment['torch']}.",
        "HM is that of the averages, and gain the share that is kept of what the published recipe",
        "gains in it over the model as it comes. Less published: differences of the fits' own,",
        "with half of their 95 % interval. CPU s: of a fit, and as a share of *published*'s, whose",
        "records are the suite's, of another day on the same machine.",
        "",
        f"| preset | {' | '.join(METRICS.values())} | HM less published | joint less published | "
        "gain | CPU s | share |",
        f"|---|{'---:|' * (len(METRICS) + 5)}",
    ]
    start = _mean(cells[NOTHING], places, "harmonic_mean")
    gain = _mean(cells["published"], places, "harmonic_mean") - start
    whole = _seconds(cells["published"], places)
    for name, found in cells.items():
        values = [f"{_mean(found, places, key):.1f}" for key in METRICS]
        less = [_less_published(cells, name, key) for key in ("harmonic_mean", "joint")]
        kept = (_mean(found, places, "harmonic_mean") - start) / gain
        seconds = _seconds(found, places)
        lines.append(
            f"| {name} | {' | '.join([*values, *less])} | {100 * kept:.0f} % | "
            f"{seconds:.1f} | {100 * seconds / whole:.1f} % |"
        )
    return "\n".join(lines)


def _less_published(cells: dict[str, Cells], name: str, key: str) -> str:
    """The mean over fits of their differences, with half of its 95 % interval."""
    found = estimate(
        [
            cells[name][place].metrics[key] - cells["published"][place].metrics[key]
            for place in common(cells)
        ]
    )
    return f"{found.mean:+.1f}" + ("" if found.half_width is None else f" ± {found.half_width:.1f}")


def figure(cells: dict[str, Cells]):
    """HM and joint accuracy over processor seconds, a point a preset."""
    places = common(cells)
    drawn = new_figure(7.2, 4.2)
    axes = drawn.subplots()
    for key, color, marker in (("harmonic_mean", "#0072B2", "o"), ("joint", "#E69F00", "s")):
        seconds = [_seconds(cells[name], places) for name in PRESETS]
        values = [_mean(cells[name], places, key) for name in PRESETS]
        axes.plot(seconds, values, marker=marker, color=color, label=METRICS[key])
        axes.axhline(_mean(cells[NOTHING], places, key), color=color, linewidth=1, linestyle=":")
    for name in PRESETS:
        height = max(_mean(cells[name], places, key) for key in ("harmonic_mean", "joint"))
        place = _seconds(cells[name], places), height
        axes.annotate(name, place, (0, 8), textcoords="offset points", ha="center", fontsize=9)
    axes.set_xscale("log")
    axes.set_xlabel("processor seconds of a fit (log)")
    axes.set_ylabel(f"%, mean of {len(places)} fits; dotted: zero-shot")
    axes.margins(x=0.1, y=0.15)
    axes.grid(color="#DFE3EA", linewidth=0.8)
    axes.legend(loc="lower right", frameon=False)
    return drawn


def _mean(found: Cells, places: Sequence[tuple[str, int]], key: str) -> float:
    """The average of a metric; of the harmonic mean, that of the averages."""
    if key == "harmonic_mean":
        return harmonic_mean(_mean(found, places, "base"), _mean(found, places, "novel"))
    return mean([found[place].metrics[key] for place in places])


def _seconds(found: Cells, places: Sequence[tuple[str, int]]) -> float:
    return mean([found[place].cost["processor_seconds"] for place in places])


if __name__ == "__main__":
    main()
