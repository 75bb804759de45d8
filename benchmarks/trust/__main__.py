"""Runs what is missing of the study, a record a task and seed, and writes the page of the records.

python -m trust            # again, it goes on
python -m trust --write    # docs/trust.md and its reliability diagram
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from shotfit.backbone import Backbone
from shotfit.backbone.fingerprint import position_fingerprint
from shotfit.data.sources import load_dataset
from shotfit.data.sources.demo import list_tasks
from shotfit.system.files import write_atomically
from shotfit.system.memory import reused_memory
from trust.cell import cell
from trust.fits import kept_fit
from trust.page import write_page

RULE = 2
"""Counts the changes of what is fitted to the shots, so that older records are made anew."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", default=list_tasks())
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--shots", type=int, default=4)
    parser.add_argument("--iters-per-shot", type=int, default=100)
    parser.add_argument("--precision", default="bf16", choices=["fp32", "bf16"])
    parser.add_argument("--backbone", default="iconclip")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--results", type=Path, default=Path("results/trust"))
    parser.add_argument("--fits", type=Path, help="keep what the fits leave behind in this folder")
    parser.add_argument("--page", type=Path, default=Path("docs/trust.md"))
    parser.add_argument("--write", action="store_true", help="only write the page of the records")
    options = parser.parse_args(arguments)
    if not options.write:
        run_missing(options)
        return
    records = [json.loads(path.read_text()) for path in sorted(options.results.glob("*.json"))]
    if not records:
        parser.error(f"no records in {options.results}; run the study first")
    write_page(records, options.page)


@reused_memory()
def run_missing(options: argparse.Namespace) -> None:
    """Every cell without a record of these very options and this model, seed by seed, so that what
    is there is balanced over tasks."""
    torch.set_num_threads(options.threads)
    keys = ("shots", "iters_per_shot", "precision", "backbone")
    chosen = {key: getattr(options, key) for key in keys}
    chosen["model"] = position_fingerprint(Backbone.from_pretrained(options.backbone))
    for seed in options.seeds:
        for name in options.tasks:
            path = options.results / f"{name}-seed{seed}.json"
            kept = json.loads(path.read_text()) if path.exists() else {}
            if kept.get("options") == chosen and kept.get("rule") == RULE:
                continue
            started = time.perf_counter()
            dataset = load_dataset("demo", name=name)
            found = cell(kept_fit(dataset, seed, chosen, options.fits))
            write_atomically(path, json.dumps({**found, "rule": RULE}) + "\n")
            print(f"{path.stem}: {time.perf_counter() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
