"""What several templates and descriptions are worth on the embedded suite.

    python benchmarks/words.py --annotations PACKAGE    # once: what is said of the suite's names
    python benchmarks/words.py                          # measures what is missing
    python benchmarks/words.py --write docs/words.md    # the tables of the page

`PACKAGE` is the unpacked npm package cldr-annotations-modern 45.0.0, the Unicode Consortium's
keywords of emoji. Zero-shot: all classes of every task. Two stages: base to novel, four shots.
Every set of words was written down before anything was measured.
"""

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path

import torch
from page import put

from shotfit.averages import Estimate, estimate
from shotfit.backbone import Backbone
from shotfit.backbone.fingerprint import position_fingerprint
from shotfit.data.sources import load_dataset
from shotfit.data.sources.demo import list_tasks
from shotfit.data.template import TEMPLATE, Words
from shotfit.experiment import Experiment, run
from shotfit.layers.ensembles import DIVERSE_TEMPLATES, IMAGENET_TEMPLATES
from shotfit.recipe import Recipe, named_recipe
from shotfit.system.files import write_atomically

RESULTS = Path("results/words")
DRAWN = (
    "a drawing of a {}.",
    "an icon of a {}.",
    "an emoji of a {}.",
    "a symbol of a {}.",
    "a pictogram of a {}.",
    "a cartoon {}.",
)
"""Of the domain, as one would write them for it."""
SETS = {
    "published": (TEMPLATE,),
    "name alone": ("{}",),
    "CLIP's seven": IMAGENET_TEMPLATES,
    "CLIP's sixty": DIVERSE_TEMPLATES,
    "six of drawings": DRAWN,
    "descriptions": (TEMPLATE,),
    "six and descriptions": DRAWN,
}
DESCRIBED = ("descriptions", "six and descriptions")
STAGES = ("published", "CLIP's seven", "six of drawings", "descriptions")
"""The sets that two stages are trained with: the text tower's work grows with the templates."""
TASKS = ("food", "people", "symbols")
METRICS = {"base": "base", "novel": "novel", "harmonic_mean": "harmonic mean"}
Cells = dict[str, dict[str, float]]


def main() -> None:
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--annotations", type=Path, metavar="PACKAGE")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--iters-per-shot", type=int, default=20)
    parser.add_argument("--write", type=Path, metavar="PAGE")
    options = parser.parse_args()
    if options.annotations is not None:
        keep_annotations(options.annotations)
    elif options.write is None:
        torch.set_num_threads(1)
        measure(options.seeds, options.iters_per_shot)
    else:
        cells = json.loads((RESULTS / "cells.json").read_text(encoding="utf-8"))["cells"]
        put(options.write, "zero-shot", zero_shot_table(cells))
        put(options.write, "two-stages", stages_table(cells))


def keep_annotations(package: Path) -> None:
    """Writes the keywords of the suite's names, as sentences."""
    file = package / "annotations" / "en" / "annotations.json"
    found = json.loads(file.read_text(encoding="utf-8"))["annotations"]["annotations"]
    keywords = {plain(one["tts"][0]): one.get("default", []) for one in found.values()}
    names = {name for task in list_tasks() for name in load_dataset("demo", name=task).classnames}
    sentences = {
        name: [f"a photo of a {{}}, {word}." for word in keywords[plain(name)]]
        for name in sorted(names)
        if keywords.get(plain(name))
    }
    text = json.dumps(sentences, indent=0, ensure_ascii=False)
    write_atomically(RESULTS / "descriptions.json", text + "\n")


def plain(name: str) -> str:
    """A name without case and signs."""
    return re.sub(r"[^a-z0-9]+", " ", name.lower().replace("’", "")).strip()


def words_of(name: str, task: str) -> Words:
    """A set of words for a task, with what is said of its own names alone."""
    sentences = {}
    if name in DESCRIBED:
        every = json.loads((RESULTS / "descriptions.json").read_text(encoding="utf-8"))
        classnames = load_dataset("demo", name=task).classnames
        sentences = {one: tuple(every[one]) for one in classnames if one in every}
    return Words(SETS[name], sentences)


def measure(seeds: Sequence[int], iters_per_shot: int) -> None:
    """Every cell without a figure of these options and this model."""
    path = RESULTS / "cells.json"
    options = {
        "model": position_fingerprint(Backbone.from_pretrained("iconclip")),
        "iters_per_shot": iters_per_shot,
    }
    kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    cells: Cells = kept.get("cells", {}) if kept.get("options") == options else {}
    zero_shot = named_recipe("zero_shot")
    two_stages = named_recipe("2sfs", iters_per_shot=iters_per_shot)
    wanted = [("zero_shot", zero_shot, name, task, 1) for name in SETS for task in list_tasks()]
    wanted += [
        ("2sfs", two_stages, name, task, seed)
        for seed in seeds
        for task in TASKS
        for name in STAGES
    ]
    for method, recipe, name, task, seed in wanted:
        key = f"{method}/{name}/{task}/{seed}"
        if key in cells:
            continue
        cells[key] = measured(recipe, words_of(name, task), task, seed)
        text = json.dumps({"options": options, "cells": cells}, indent=1)
        write_atomically(path, text + "\n")
        print(key, {k: round(v, 1) for k, v in cells[key].items()}, flush=True)


def measured(recipe: Recipe, words: Words, task: str, seed: int) -> dict[str, float]:
    """The metrics of a run, as published, and its processor seconds."""
    trains = len(recipe.stages) > 1
    experiment = Experiment(
        data={"name": task, "words": words.plain()},
        setting="base_to_novel" if trains else "all_to_all",
        shots=4,
        seed=seed,
        recipe=recipe,
    )
    record, _ = run(experiment)
    return {**record.metrics, "processor_seconds": record.cost["processor_seconds"]}


def zero_shot_table(cells: Cells) -> str:
    """Accuracy of every task, and the gain over the published template with its interval."""
    tasks = list_tasks()
    rows = ["| words | " + " | ".join(tasks) + " | mean | gain |", "|---" * (len(tasks) + 3) + "|"]
    base = [cells[f"zero_shot/published/{task}/1"]["all"] for task in tasks]
    for name in SETS:
        found = [cells[f"zero_shot/{name}/{task}/1"]["all"] for task in tasks]
        gain = estimate([own - other for own, other in zip(found, base, strict=True)])
        each = " | ".join(f"{value:.1f}" for value in found)
        told = "" if name == "published" else shown(gain)
        rows.append(f"| {name} | {each} | {sum(found) / len(found):.1f} | {told} |")
    return "\n".join(rows)


def stages_table(cells: Cells) -> str:
    """Means over tasks and seeds, and gains in pairs with their intervals."""
    names = [name for name in STAGES if any(key.startswith(f"2sfs/{name}/") for key in cells)]
    places = sorted({key.split("/", 2)[2] for key in cells if key.startswith("2sfs/")})
    runs = [p for p in places if all(f"2sfs/{name}/{p}" in cells for name in names)]
    titles = " | ".join(f"{title} | gain" for title in METRICS.values())
    rows = [
        f"{len(runs)} run{'' if len(runs) == 1 else 's'} each, of four shots: "
        + ", ".join(f"{task} seed {seed}" for task, seed in (place.split("/") for place in runs)),
        "",
        f"| words | {titles} | processor seconds |",
        "|---" * (2 * len(METRICS) + 2) + "|",
    ]
    for name in names:
        parts = []
        for metric in METRICS:
            own = [cells[f"2sfs/{name}/{place}"][metric] for place in runs]
            base = [cells[f"2sfs/published/{place}"][metric] for place in runs]
            gain = estimate([one - other for one, other in zip(own, base, strict=True)])
            parts += [f"{sum(own) / len(own):.1f}", "" if name == "published" else shown(gain)]
        seconds = [cells[f"2sfs/{name}/{place}"]["processor_seconds"] for place in runs]
        rows.append(f"| {name} | {' | '.join(parts)} | {sum(seconds) / len(seconds):.0f} |")
    return "\n".join(rows)


def shown(gain: Estimate) -> str:
    """A difference with half its 95 % interval, which one run does not have."""
    spread = "" if gain.half_width is None else f" ± {gain.half_width:.1f}"
    return f"{gain.mean:+.1f}{spread}"


if __name__ == "__main__":
    main()
