"""Records of the benchmark, with the machine they were measured on, and the table of them."""

import datetime
import json
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from shotfit.experiment import environment
from shotfit.system.files import write_atomically
from speed.measuring import Measured, Settings


def hardware(settings: Settings) -> dict[str, Any]:
    """The processor or accelerator, its cores and memory, and how busy it was before."""
    found: dict[str, Any] = {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": settings.threads,
    }
    if hasattr(os, "sysconf"):
        found["memory_gb"] = round(
            os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1
        )
    if hasattr(os, "getloadavg"):
        found["load_before"] = round(os.getloadavg()[0], 2)
    if settings.device != "cpu":
        import torch

        found["accelerator"] = torch.cuda.get_device_name(settings.device)
    return found


def write(
    folder: Path,
    case: str,
    measured: Measured,
    settings: Settings,
    machine: dict[str, Any],
    command: str,
) -> dict[str, Any]:
    """The record of a case, kept in `folder`."""
    record = {
        "case": case,
        "rows": [{**asdict(row), "met": row.met} for row in measured.rows],
        "curves": measured.curves,
        "raw": measured.raw,
        "settings": asdict(settings),
        "hardware": machine,
        "environment": environment(),
        "command": command,
        "commit": _commit(),
        "date": datetime.date.today().isoformat(),
    }
    write_atomically(folder / f"{case}.json", json.dumps(record, indent=1) + "\n")
    return record


def read(folder: Path) -> dict[str, dict[str, Any]]:
    """The records in a folder by the names of their cases."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        found[record["case"]] = record
    return found


def table(records: Sequence[dict[str, Any]]) -> str:
    """Markdown: a block for every machine, a line for everything measured on it."""
    blocks = []
    for machine in dict.fromkeys(map(_machine, records)):
        lines = [
            machine,
            "",
            "| what | measured | goal | met | how |",
            "| --- | ---: | ---: | --- | --- |",
        ]
        for record in records:
            if _machine(record) == machine:
                lines += [_line(row) for row in record["rows"]]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def number(value: float, unit: str) -> str:
    """A value with three significant digits and its unit."""
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{digits}f} {unit}".strip()


def _line(row: dict[str, Any]) -> str:
    goal = ""
    if row["goal"] is not None:
        goal = f"{'≥' if row['at_least'] else '≤'} {row['goal']:g} {row['unit']}".strip()
    met = {True: "yes", False: "**no**", None: ""}[row["met"]]
    return (
        f"| {row['what']} | {number(row['value'], row['unit'])} | {goal} | {met} | {row['note']} |"
    )


def _machine(record: dict[str, Any]) -> str:
    machine, versions, settings = record["hardware"], record["environment"], record["settings"]
    parts = [f"{machine['processor']}, {machine['cores']} cores"]
    if "memory_gb" in machine:
        parts.append(f"{machine['memory_gb']:.0f} GB")
    if "accelerator" in machine:
        parts.insert(0, machine["accelerator"])
    parts.append(f"{settings['threads']} threads, {settings['precision']}")
    parts.append(f"PyTorch {versions['torch']}, transformers {versions['transformers']}")
    return "Measured on " + "; ".join(parts) + "."


def _commit() -> str | None:
    """The commit measured, marked where the code differs from it; None outside of a repository."""
    root = Path(__file__).parent.parent.parent

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "src", "benchmarks")
        return git("rev-parse", "--short=12", "HEAD") + ("-changed" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    if path.is_file():
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
