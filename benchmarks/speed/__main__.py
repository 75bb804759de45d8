"""`python -m speed`: measures the cases that are asked for, and writes the table from records."""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from page import put

from speed import __doc__ as about
from speed import figure, report
from speed.cases import CASES
from speed.measuring import Settings

ROOT = Path(__file__).parent.parent.parent


def main(arguments: list[str] | None = None) -> None:
    """Parses the command line and does what it says."""
    parser = argparse.ArgumentParser(
        prog="speed",
        description=about,
        epilog="cases: " + "; ".join(f"{case.name} ({case.what})" for case in CASES.values()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", nargs="+", choices=CASES, metavar="CASE")
    parser.add_argument("--rounds", type=int, default=3, help="turns of the two sides")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--device", help="cpu or cuda; an accelerator where there is one")
    parser.add_argument("--precision", choices=["fp32", "bf16"], help="fp32; bf16 on cuda")
    parser.add_argument("--quick", action="store_true", help="tiny shapes: a smoke test")
    parser.add_argument("--results", type=Path, help="folder of the records [results/speed]")
    parser.add_argument("--table", action="store_true", help="only write page and figure")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "performance.md")
    parser.add_argument(
        "--figure", type=Path, default=ROOT / "docs" / "figures" / "performance.png"
    )
    options = parser.parse_args(arguments)
    if options.quick and options.results is None:
        parser.error("--quick needs --results: its records are no measurements")
    settings = _settings(options)
    folder = options.results or ROOT / "results" / "speed"
    if options.table:
        _show(folder, options.page, options.figure)
        return
    given = sys.argv[1:] if arguments is None else arguments
    command = " ".join(["python -m speed", *given])
    missed = measure(options.only or list(CASES), settings, _own(folder, settings), command)
    if missed:
        parser.exit(1, f"not measured: {', '.join(missed)}\n")


def measure(names: list[str], settings: Settings, folder: Path, command: str) -> list[str]:
    """Measures and records cases, one after the other; the names of those that failed."""
    failed = []
    for name in names:
        machine = report.hardware(settings)
        try:
            measured = CASES[name].run(settings, report.read(folder))
        except LookupError as reason:
            print(f"{name}: left out, {reason.args[0]}", flush=True)
            continue
        except RuntimeError as reason:
            # One case too large for this machine must not cost the others.
            print(f"{name}: {reason}", file=sys.stderr, flush=True)
            failed.append(name)
            continue
        report.write(folder, name, measured, settings, machine, command)
        for row in measured.rows:
            met = {True: "  met", False: "  MISSED", None: ""}[row.met]
            print(f"{name}: {row.what}: {report.number(row.value, row.unit)}{met}  {row.note}")
        sys.stdout.flush()
    return failed


def _settings(options: argparse.Namespace) -> Settings:
    device = options.device
    if device is None:
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"
    precision = options.precision or ("fp32" if device == "cpu" else "bf16")
    rounds = 1 if options.quick else options.rounds
    return Settings(rounds, options.threads, device, precision, options.quick)


def _own(folder: Path, settings: Settings) -> Path:
    """Records of an accelerator, or of another precision, lie in a folder of their own."""
    parts = [settings.device.partition(":")[0], settings.precision]
    return folder if parts == ["cpu", "fp32"] else folder / "-".join(parts)


def _show(folder: Path, page: Path, picture: Path) -> None:
    folders = [folder, *sorted(path for path in folder.glob("*") if path.is_dir())]
    found = [_in_order(report.read(path)) for path in folders]
    records = [record for part in found for record in part.values()]
    if not records:
        raise SystemExit(f"no records in {folder}: run make bench-speed")
    put(page, "speed", report.table(records))
    # One machine a figure: the processor's where there are records of it.
    figure.draw(next(part for part in found if part), picture)


def _in_order(records: dict[str, Any]) -> dict[str, Any]:
    return {name: records[name] for name in CASES if name in records}


if __name__ == "__main__":
    main()
