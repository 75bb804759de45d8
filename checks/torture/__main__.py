"""`python -m torture`; see the package."""

import argparse
import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torture.page import page

RECORD = Path("results/reliability/record.json")
PAGE = Path("docs/reliability.md")
# What `make torture` does: counts of everything, which --scale multiplies.
KILLS, POINTS, INPUTS, PREDICTIONS, FITS = 50, 1000, 100_000, 10_000, 500


def main() -> None:
    """Parses the command line."""
    parser = argparse.ArgumentParser(prog="torture")
    parser.add_argument("action", choices=("run", "write"))
    parser.add_argument("--part", choices=("interruptions", "fuzz", "leaks"), help="no other")
    parser.add_argument("--only", help="one command or reader, by its name")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1.0, help="of all counts")
    for name, count in (("kills", KILLS), ("points", POINTS), ("inputs", INPUTS),
                        ("predictions", PREDICTIONS), ("fits", FITS)):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, help=f"instead of {count:,} times the scale")
    options = parser.parse_args()
    if options.action == "run":
        run(options)
    PAGE.write_text(page(json.loads(RECORD.read_text())), encoding="utf-8")


def run(options: argparse.Namespace) -> None:
    """Runs the parts that are asked for; what the record says of others stays."""
    warnings.simplefilter("ignore")
    import torch

    torch.set_num_threads(1)
    # In the forked processes too, which start with what is loaded here.
    import shotfit.apps.fit
    import shotfit.bench.runner
    import shotfit.classifier  # noqa: F401
    from torture.fuzz import fuzz
    from torture.interruptions import interruptions
    from torture.leaks import leaks

    def count(name: str, full: int) -> int:
        given = getattr(options, name)
        return given if given is not None else max(1, round(full * options.scale))

    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "interruptions": lambda: interruptions(
            count("kills", KILLS), count("points", POINTS), options.seed, options.only
        ),
        "fuzz": lambda: fuzz(count("inputs", INPUTS), options.seed, options.only),
        "leaks": lambda: leaks(count("predictions", PREDICTIONS), count("fits", FITS)),
    }
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    for name, part in parts.items():
        if options.part in (None, name):
            started = time.monotonic()
            found = part()
            # With --only, beside what others were found to do before.
            before = record.get(name, {}) if options.only else {}
            record[name] = {
                "found": {**before.get("found", {}), **found},
                "seconds": before.get("seconds", 0) + round(time.monotonic() - started),
                "processors": os.cpu_count(),
                "commands": [*before.get("commands", ()), " ".join(sys.argv[1:])],
            }
            RECORD.parent.mkdir(parents=True, exist_ok=True)
            RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
