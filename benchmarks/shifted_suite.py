"""Which tasks under which shifts make the shifted suite: chosen on zero-shot accuracy alone.

    python benchmarks/shifted_suite.py                          # measures, and prints the choice
    python benchmarks/shifted_suite.py --write docs/shifts.md   # the table and the picture

A pair of a task and a shift qualifies when the shift costs much and not everything: zero-shot
accuracy over all classes is 20 to 60 % of what it is without the shift. Of these, twelve are taken,
the closest to 40 % first, none of a task or of a shift that has two already. No method is run.
"""

import argparse
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from page import put
from PIL import Image, ImageDraw

from shotfit.backbone import Backbone
from shotfit.data.images import open_image
from shotfit.data.shifts import list_shifts
from shotfit.data.sources.demo import list_tasks, load
from shotfit.data.task import make_task
from shotfit.evaluation.metrics import evaluate
from shotfit.methods import get_method
from shotfit.system.files import write_atomically

RECORD = Path("results/shifts/zero-shot.json")
PICTURE = Path("docs/figures/shifts.png")
PAIRS, OF_A_TASK, OF_A_SHIFT, LEAST, MOST, MIDDLE = 12, 2, 3, 0.2, 0.6, 0.4


def main(arguments: Sequence[str] | None = None) -> None:
    """Parses the command line; measures, or writes the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backbone", default="iconclip")
    parser.add_argument("--write", type=Path, metavar="PAGE")
    options = parser.parse_args(arguments)
    if options.write is None:
        found = measure(options.backbone)
        write_atomically(RECORD, json.dumps(found, indent=1) + "\n")
        print("\n".join(choose(found["accuracy"])))
        return
    found = json.loads(RECORD.read_text(encoding="utf-8"))
    put(options.write, "zero-shot", table(found["accuracy"]))
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    picture().save(PICTURE, optimize=True)


@torch.no_grad()
def measure(name: str) -> dict:
    """Zero-shot accuracy over all classes of every task, without a shift and under each."""
    torch.set_num_threads(1)
    method = get_method("zero_shot")(Backbone.from_pretrained(name)).eval()
    accuracy: dict[str, dict[str, float]] = {}
    for task in list_tasks():
        accuracy[task] = {}
        for shift in ("", *list_shifts()):
            dataset = load(f"{task}@{shift}" if shift else task)
            tests = make_task(dataset, "all_to_all", 1, 1).tests
            accuracy[task][shift] = round(evaluate(method, tests)["all"], 2)
    return {"backbone": name, "accuracy": accuracy}


def choose(accuracy: Mapping[str, Mapping[str, float]]) -> tuple[str, ...]:
    """The pairs, as `task@shift`, by the rule of the module's docstring; sorted by name."""
    shares = {
        (task, shift): value / found[""]
        for task, found in accuracy.items()
        for shift, value in found.items()
        if shift
    }
    qualified = [pair for pair, share in shares.items() if LEAST <= share <= MOST]
    qualified.sort(key=lambda pair: (abs(shares[pair] - MIDDLE), pair))
    chosen: list[tuple[str, str]] = []
    tasks, shifts = Counter(), Counter()
    for task, shift in qualified:
        free = tasks[task] < OF_A_TASK and shifts[shift] < OF_A_SHIFT
        if len(chosen) < PAIRS and free:
            chosen.append((task, shift))
            tasks[task] += 1
            shifts[shift] += 1
    return tuple(sorted(f"{task}@{shift}" for task, shift in chosen))


def table(accuracy: Mapping[str, Mapping[str, float]]) -> str:
    """Markdown: tasks by shifts, the chosen pairs in bold."""
    shifts = list_shifts()
    chosen = set(choose(accuracy))
    lines = [
        f"| task | none | {' | '.join(shifts)} |",
        f"| --- | ---: |{' ---: |' * len(shifts)}",
    ]
    for task, found in accuracy.items():
        cells = [f"{found['']:.1f}"]
        for shift in shifts:
            text = f"{found[shift]:.1f}"
            cells.append(f"**{text}**" if f"{task}@{shift}" in chosen else text)
        lines.append(f"| {task} | {' | '.join(cells)} |")
    return "\n".join(lines)


def picture(side: int = 96) -> Image.Image:
    """One image of four tasks under every shift."""
    names, tasks = ("", *list_shifts()), ("animals", "food", "objects", "symbols")
    gap, head = 6, 18
    sheet = Image.new(
        "RGB", (len(names) * (side + gap) + gap, head + len(tasks) * (side + gap)), "white"
    )
    draw = ImageDraw.Draw(sheet)
    for column, shift in enumerate(names):
        left = gap + column * (side + gap)
        draw.text((left, 3), (shift or "no shift").replace("_", " "), fill="black")
        for row, task in enumerate(tasks):
            image = open_image(load(f"{task}@{shift}" if shift else task).train[7].image)
            sheet.paste(image.resize((side, side)), (left, head + row * (side + gap)))
    return sheet


if __name__ == "__main__":
    main()
