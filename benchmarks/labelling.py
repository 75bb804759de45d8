"""How much sooner a classifier is good when it says which images to label.

    python benchmarks/labelling.py
    python benchmarks/labelling.py --write docs/labelling.md

The first measures, a record for each task, seed and way of choosing, and goes on when run again;
the second puts table and figure of the records into the page. The training images of a task are the
unlabelled ones; before each round the classifier, the first time the untouched model with the
task's names, proposes half as many as there are classes, the task says what they are, and a
classifier is fitted anew on all that are labelled: the second stage alone, on the untouched model's
features. Classes without an image are known by their names. Accuracy is on the task's test images.
"""

import argparse
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from page import put

from shotfit.averages import estimate, mean
from shotfit.backbone.fingerprint import position_fingerprint
from shotfit.classifier import FewShotClassifier
from shotfit.data.dataset import Dataset, Example
from shotfit.data.sources.demo import list_tasks, load
from shotfit.labelling import next_to_label
from shotfit.recipe import Recipe, Stage
from shotfit.report.figures.canvas import new_figure, save
from shotfit.system.files import write_atomically
from shotfit.untrained import untrained

RESULTS = Path("results/labelling")
FIGURE = Path("figures/labelling.png")
WAYS = ("proposed", "random")
CHOSEN_ON = ("activities", "animals", "digits", "food", "interface", "objects")
"""The tasks on which the rule was chosen among others."""
COLORS = {"proposed": "#0072B2", "random": "#E69F00"}
ROUNDS = 5
RECIPE = Recipe(
    (
        Stage("layernorm", training={"iterations": 1}),
        Stage("linear", {"views": 8}, training={"iterations": 100}),
    )
)
"""A first stage of one update, which moves nothing: features are the untouched model's."""
Cells = dict[tuple[str, int, str], dict[str, Any]]


def main(arguments: Sequence[str] | None = None) -> None:
    """Parses the command line; measures, or writes the table and the figure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", choices=list_tasks(), default=list_tasks())
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--backbone", default="iconclip")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--write", type=Path, help="put what was found into this page")
    options = parser.parse_args(arguments)
    if options.write is None:
        run_missing(options)
        return
    cells = read(options.results)
    if not complete(cells):
        parser.error(f"{options.results} has no task with both ways; run benchmarks/labelling.py")
    if len({one["model"] for one in cells.values()}) > 1:
        parser.error(f"the records in {options.results} are of more than one model; run those anew")
    put(options.write, "labelling", table(cells))
    save(figure(cells), options.write.parent / FIGURE)


def run_missing(options: argparse.Namespace) -> None:
    """Every cell without a record, seed by seed, so that what is there is balanced over tasks."""
    torch.set_num_threads(options.threads)
    for seed in options.seeds:
        for task in options.tasks:
            for way in WAYS:
                path = options.results / f"{task}-seed{seed}-{way}.json"
                if path.exists():
                    continue
                found = labelled_in_rounds(
                    load(task), way, seed, options.rounds, backbone=options.backbone
                )
                write_atomically(path, json.dumps(found, indent=1) + "\n")
                print(f"{path.stem}: {found['accuracy']}", flush=True)


def labelled_in_rounds(
    dataset: Dataset, way: str, seed: int, rounds: int, *, backbone: str
) -> dict[str, Any]:
    """Clicks, and the accuracy in percent and the classes with an image after them."""
    stream = random.Random(f"{dataset.name}{seed}")
    pool = stream.sample(dataset.train, len(dataset.train))
    batch = (len(dataset.classnames) + 1) // 2
    labelled: list[Example] = []
    classifier = untrained(dataset.classnames, backbone)
    found: dict[str, Any] = {
        "task": dataset.name,
        "seed": seed,
        "way": way,
        "model": position_fingerprint(classifier.method.backbone),
        "classes": len(dataset.classnames),
        "pool": len(pool),
        "test_images": len(dataset.test),
        "clicks": [0],
        "accuracy": [accuracy(classifier, dataset)],
        "seen_classes": [0],
    }
    for _ in range(rounds):
        places = list(range(min(batch, len(pool))))
        if way == "proposed":
            images, known = ([e.image for e in part] for part in (pool, labelled))
            places = [one.place for one in next_to_label(classifier, images, known, batch)]
        labelled += [pool[place] for place in places]
        pool = [one for place, one in enumerate(pool) if place not in set(places)]
        classifier = fitted(labelled, dataset, seed, backbone)
        found["clicks"].append(len(labelled))
        found["accuracy"].append(accuracy(classifier, dataset))
        found["seen_classes"].append(len({example.label for example in labelled}))
    return found


def fitted(
    labelled: Sequence[Example], dataset: Dataset, seed: int, backbone: str
) -> FewShotClassifier:
    """A classifier of what is labelled, and of the other classes by their names."""
    pairs = [(example.image, dataset.classnames[example.label]) for example in labelled]
    classifier = FewShotClassifier(backbone, RECIPE, seed=seed).fit(pairs, verbose=False)
    unseen = [name for name in dataset.classnames if name not in classifier.classes]
    if unseen:
        classifier.add_classes(unseen)
    return classifier


def accuracy(classifier: FewShotClassifier, dataset: Dataset) -> float:
    """Percent of right answers on the test images."""
    answers = classifier.predict([example.image for example in dataset.test])
    right = [dataset.classnames[e.label] == a for e, a in zip(dataset.test, answers, strict=True)]
    return round(100 * mean(right), 2)


def read(folder: Path) -> Cells:
    """The records by task, seed and way."""
    found = [json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json"))]
    return {(one["task"], one["seed"], one["way"]): one for one in found}


def complete(cells: Cells) -> list[tuple[str, int]]:
    """The tasks and seeds that have both ways."""
    return sorted(
        {(task, seed) for task, seed, _ in cells if all((task, seed, w) in cells for w in WAYS)}
    )


def table(cells: Cells) -> str:
    """Markdown: accuracy by rounds of both ways, a task each, and the difference over all."""
    places = complete(cells)
    tasks, seeds = sorted({task for task, _ in places}), sorted({seed for _, seed in places})
    rounds = min(len(cells[task, seed, way]["clicks"]) for task, seed in places for way in WAYS)
    lines = [
        f"Accuracy in percent, means over the seeds {', '.join(map(str, seeds))} "
        f"({len(places)} pairs of runs); a round is half a click a class. Test images: "
        + ", ".join(f"{task} {_first(cells, places, task)['test_images']}" for task in tasks)
        + ".",
        "",
        f"| task | classes | chosen | {' | '.join(_heading(n) for n in range(rounds))} | classes "
        "seen at the end |",
        f"|---|---:|---|{'---:|' * (rounds + 1)}",
    ]
    for task in tasks:
        for way in WAYS:
            own = [cells[task, seed, way] for other, seed in places if other == task]
            values = [f"{mean([one['accuracy'][n] for one in own]):.1f}" for n in range(rounds)]
            seen = mean([one["seen_classes"][rounds - 1] for one in own])
            lines.append(
                f"| {task} | {own[0]['classes']} | {way} | {' | '.join(values)} | {seen:.0f} |"
            )
    others = [task for task in tasks if task not in CHOSEN_ON]
    for name, some in {"all": tasks, "not chosen on": others}.items():
        if some:
            gains = [_gain(cells, places, some, number) for number in range(1, rounds)]
            lines.append(
                f"| {name} ({len(some)}) | | proposed less random | +0.0 | {' | '.join(gains)} | |"
            )
    return "\n".join([*lines, "", _clicks_saved(cells, places, rounds)])


def _first(cells: Cells, places: Sequence[tuple[str, int]], task: str) -> dict[str, Any]:
    return cells[(*next(place for place in places if place[0] == task), WAYS[0])]


def _heading(number: int) -> str:
    return "no click" if not number else f"{number / 2:g} a class"


def _gain(
    cells: Cells, places: Sequence[tuple[str, int]], tasks: Sequence[str], number: int
) -> str:
    """Proposed less random after a round: the mean over tasks of that over seeds, which share a
    task's images, with its 95 % interval."""
    found = []
    for task in tasks:
        pairs = [
            [cells[(*place, way)]["accuracy"][number] for way in WAYS]
            for place in places
            if place[0] == task
        ]
        found.append(mean([proposed - random for proposed, random in pairs]))
    one = estimate(found)
    shown = round(one.mean, 1) + 0.0  # which is no -0.0
    return f"{shown:+.1f}" + ("" if one.half_width is None else f" ± {one.half_width:.1f}")


def _clicks_saved(cells: Cells, places: Sequence[tuple[str, int]], rounds: int) -> str:
    """How soon proposed images reach what random ones reach at the end."""
    curves = {
        way: [mean([cells[(*p, way)]["accuracy"][n] for p in places]) for n in range(rounds)]
        for way in WAYS
    }
    target = curves["random"][-1]
    needed = next((n for n, value in enumerate(curves["proposed"]) if value >= target), None)
    if needed is None:
        return f"Proposed images do not reach the {target:.1f} % of random ones at the end."
    return (
        f"On average, what random images reach at the end ({target:.1f} %), proposed ones reach "
        f"or pass after round {needed} of {rounds - 1}."
    )


def figure(cells: Cells):
    """Accuracy over clicks a class, a panel for each task; the band is from lowest to highest."""
    places = complete(cells)
    tasks = sorted({task for task, _ in places})
    columns = min(4, len(tasks))
    rows = -(-len(tasks) // columns)
    drawn = new_figure(2.6 * columns, 2.3 * rows + 0.4)
    panels = drawn.subplots(rows, columns, squeeze=False).flatten()
    for axes, task in zip(panels, tasks, strict=False):
        for way in WAYS:
            own = [cells[task, seed, way] for other, seed in places if other == task]
            clicks = [count / own[0]["classes"] for count in own[0]["clicks"]]
            columns_of = list(zip(*(one["accuracy"] for one in own), strict=True))
            axes.plot(
                clicks, list(map(mean, columns_of)), color=COLORS[way], marker="o", ms=3, label=way
            )
            low, high = list(map(min, columns_of)), list(map(max, columns_of))
            axes.fill_between(clicks, low, high, color=COLORS[way], alpha=0.15, linewidth=0)
        axes.set_title(task, fontsize=10)
        axes.grid(color="#DFE3EA", linewidth=0.8)
        axes.tick_params(labelsize=8)
    for axes in panels[len(tasks) :]:
        axes.set_axis_off()
    panels[0].legend(frameon=False, fontsize=8)
    drawn.supxlabel("clicks a class", fontsize=9)
    drawn.supylabel("accuracy, %", fontsize=9)
    return drawn


if __name__ == "__main__":
    main()
