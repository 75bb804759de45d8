"""`python -m torture`; see the package."""

import argparse
import json
import multiprocessing
import os
import resource
import tempfile
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torture.page import page

RECORD = Path("results/reliability/record.json")
VERSIONS = Path("results/reliability/versions.json")
"""What checks/versions.py has kept."""
PAGE = Path("docs/reliability.md")
PARTS = ("fuzz", "interruptions", "leaks", "guided")
MEMORY = Path("/dev/shm")
"""Where files are made where there is such a place: nobody waits for a disk."""


@dataclass(frozen=True)
class Counts:
    """How often everything is tried; what is drawn is drawn from the seed."""

    kills: int = 50
    points: int = 1000
    inputs: int = 100_000
    guided: int = 100_000
    predictions: int = 10_000
    fits: int = 500
    seed: int = 1


def main() -> None:
    """Parses the command line."""
    parser = argparse.ArgumentParser(prog="torture")
    parser.add_argument("action", choices=("run", "write"))
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS, help="no others")
    parser.add_argument("--only", help="commands and readers with this in their names")
    parser.add_argument("--again", action="store_true", help="also what the record has already")
    parser.add_argument("--jobs", type=int, default=2, help="processes [default: 2]")
    parser.add_argument("--scale", type=float, default=1.0, help="of all counts")
    for name, full in asdict(Counts()).items():
        parser.add_argument(f"--{name}", type=int, help=f"instead of {full:,}")
    options = parser.parse_args()
    if options.action == "run":
        run(options)
    record, versions = (
        json.loads(path.read_text()) if path.exists() else {} for path in (RECORD, VERSIONS)
    )
    PAGE.write_text(page(record, versions), encoding="utf-8")


def run(options: argparse.Namespace) -> None:
    """Runs what is asked for and is not in the record with these counts. The record is written
    after every command and reader, so that a run that is broken off goes on."""
    warnings.simplefilter("ignore")
    counts = _counts(options)
    if MEMORY.is_dir() and os.access(MEMORY, os.W_OK):
        tempfile.tempdir = str(MEMORY)
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    units = [
        (part, name)
        for part, name in _units(options.part, options.only)
        if options.again or record.get(part, {}).get(name, {}).get("asked") != asked(part, counts)
    ]
    if any(part in ("fuzz", "interruptions") for part, _ in units):
        _prepare(counts, commands=any(part == "interruptions" for part, _ in units))
    # Forked, so that each starts with what was imported here.
    forking = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(options.jobs, forking) as processes:
        running = {processes.submit(measured, part, name, counts): (part, name)
                   for part, name in units}  # fmt: skip
        for done in as_completed(running):
            part, name = running[done]
            record.setdefault(part, {})[name] = done.result()
            record["processors"] = os.cpu_count()
            RECORD.parent.mkdir(parents=True, exist_ok=True)
            RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")
            print(part, name, json.dumps(done.result())[:300], flush=True)


def _counts(options: argparse.Namespace) -> Counts:
    given = {name: getattr(options, name) for name in asdict(Counts())}
    full = asdict(Counts())
    scaled = {
        name: count if name == "seed" else max(1, round(count * options.scale))
        for name, count in full.items()
    }
    return Counts(**{name: scaled[name] if given[name] is None else given[name] for name in full})


def _units(parts: tuple[str, ...], only: str | None) -> list[tuple[str, str]]:
    from torture.commands import commands
    from torture.inputs import readers

    names = {
        "fuzz": readers(),
        "interruptions": commands(),
        "leaks": ("predictions", "fits"),
        "guided": readers(),
    }
    found = [(part, name) for part in parts for name in names[part]]
    return [(part, name) for part, name in found if only is None or only in name]


def asked(part: str, counts: Counts) -> dict[str, int]:
    """The counts that a part depends on."""
    names = {
        "fuzz": ("inputs", "seed"),
        "interruptions": ("kills", "points", "seed"),
        "leaks": ("predictions", "fits"),
        "guided": ("guided", "seed"),
    }
    return {name: getattr(counts, name) for name in names[part]}


def _prepare(counts: Counts, *, commands: bool) -> None:
    """What every forked process starts with: modules, and values that were drawn."""
    import torch

    torch.set_num_threads(1)
    import transformers.models.auto.modeling_auto
    import transformers.models.clip.modeling_clip  # noqa: F401

    from torture.commands import import_what_they_need
    from torture.fuzz import values
    from torture.inputs import FORMATS_SO_FAR

    values(counts.seed)
    if commands:
        import_what_they_need(FORMATS_SO_FAR)


def measured(part: str, name: str, counts: Counts) -> dict[str, Any]:
    """What one command or reader did, what was asked, and the seconds of the processor."""
    before = _processor_seconds()
    found = _outcome(part, name, counts)
    own = round(_processor_seconds() - before, 1)
    seconds = found.get("processor_seconds", own)
    return {"asked": asked(part, counts), "found": found, "processor_seconds": seconds}


def _outcome(part: str, name: str, counts: Counts) -> dict[str, Any]:
    from torture.fuzz import fuzz
    from torture.guided import guided
    from torture.inputs import readers
    from torture.interruptions import interruptions
    from torture.leaks import leaks

    if part == "interruptions":
        return interruptions(name, counts.kills, counts.points, counts.seed)
    if part == "leaks":
        return leaks(name, getattr(counts, name))
    reader = readers()[name]
    if part == "fuzz":
        return fuzz(name, reader, max(1, round(counts.inputs * reader.share)), counts.seed)
    return guided(name, max(1, round(counts.guided * reader.share)), counts.seed)


def _processor_seconds() -> float:
    own, children = (resource.getrusage(who)
                     for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))  # fmt: skip
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


if __name__ == "__main__":
    main()
