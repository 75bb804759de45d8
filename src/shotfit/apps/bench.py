"""What `shotfit bench` does with its grid: the plan on paper, or the runs with a live view."""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from shotfit.apps.grid_progress import progress_view
from shotfit.bench.cost import RunEstimate, check_runs, estimate_runs
from shotfit.bench.runner import GridStep, run_all
from shotfit.experiment import Experiment
from shotfit.methods import published_name
from shotfit.records import Record, load_records, record_files
from shotfit.system.ray_cluster import RayOptions
from shotfit.system.terminal import printable

OVERHEAD = 50.0
"""Loading and evaluating, in training iterations: for the time left, where a guess will do."""

MEANINGS = {
    "same run": "from runs that differ in the seed only",
    "same method": "from seconds per iteration of the same method and backbone",
    "rough": "from a rough figure per iteration, may be wrong several times over",
}


def ray_options(address: str | None, cpus: float, gpus: float) -> RayOptions | None:
    """How to use Ray; None for not at all, "local" for Ray on this machine."""
    if address is None:
        return None
    return RayOptions(None if address == "local" else address, cpus, gpus)


def show_plan(
    experiments: Sequence[Experiment],
    folder: Path,
    root: str | None,
    retry_failed: bool,
    as_json: bool,
) -> None:
    """Prints what would be run and what it is expected to cost; nothing is written."""
    records = load_records(folder)
    statuses = {record.id: record.status for record in records}
    skipped = {"done"} if retry_failed else {"done", "failed"}
    pending = [e for e in experiments if statuses.get(e.id) not in skipped]
    present = Counter(statuses[e.id] for e in experiments if e.id in statuses)
    estimates = estimate_runs(pending, records, root)
    if as_json:
        print(json.dumps(_plain_plan(experiments, present, estimates), indent=2))
        return
    table = Table(box=SIMPLE_HEAD, collapse_padding=True)
    for name in ("dataset", "setting", "shots", "seed", "backbone", "method", "iterations", "cost"):
        # A name that is cut could be mistaken for another.
        table.add_column(name, overflow="fold", no_wrap=name in ("method", "iterations", "cost"))
    for estimate in estimates:
        experiment = estimate.experiment
        table.add_row(
            # As plain text: markup in a name would be interpreted.
            Text(printable(dataset_name(experiment))),
            experiment.setting.replace("_", "-"),
            str(experiment.shots),
            str(experiment.seed),
            Text(printable(experiment.backbone)),
            method_name(experiment),
            f"{estimate.iterations:,}",
            duration(estimate.seconds),
        )
    if estimates:
        Console().print(table)
    print(
        f"{len(experiments)} runs: {present['done']} done, {present['failed']} failed"
        f"{' before' if present['failed'] else ''}, {len(pending)} to run."
    )
    total = sum(estimate.seconds for estimate in estimates)
    if estimates:
        print(f"Estimated cost: {duration(total)} of one machine, one run after another:")
    for basis, meaning in MEANINGS.items():
        costs = [estimate.seconds for estimate in estimates if estimate.basis == basis]
        if costs:
            print(f"  {len(costs)} runs, {duration(sum(costs))}, {meaning}")


def run_grid(
    experiments: Sequence[Experiment],
    folder: Path,
    *,
    ray: RayOptions | None,
    root: str | None,
    device: str | None,
    retry_failed: bool,
    isolate: bool,
    quiet: bool,
    as_json: bool,
    overwrite: bool,
) -> int:
    """Runs what is missing, with its progress; returns the number of failed runs of the grid."""
    # Everything that can be wrong is found now: data, recipes, and records of another version.
    load_records(folder)
    iterations = check_runs(experiments, root)
    step: GridStep | None = None
    names = {experiment.id: describe(experiment) for experiment in experiments}
    with progress_view(quiet=quiet) as show:
        for step in run_all(
            experiments,
            folder,
            executor="ray" if ray else "local",
            ray=ray,
            root=root,
            device=device,
            retry_failed=retry_failed,
            isolate=isolate,
            weights={key: count + OVERHEAD for key, count in iterations.items()},
            overwrite=overwrite,
        ):
            show(step, names)
    wanted = [record for record in load_records(folder) if record.id in names]
    return _summary(wanted, names, folder, retried=step is not None, as_json=as_json)


def _summary(
    records: Sequence[Record], names: dict[str, str], folder: Path, *, retried: bool, as_json: bool
) -> int:
    failed = [record for record in records if record.status != "done"]
    if as_json:
        counts = {"runs": len(names), "done": len(records) - len(failed), "failed": len(failed)}
        ids = {"failed_ids": [record.id for record in failed]}
        print(json.dumps({**counts, **ids, "results": str(folder)}, indent=2))
        return len(failed)
    idle = "" if retried else " Nothing was missing."
    print(f"{len(records) - len(failed)} of {len(names)} runs done, records in {folder}.{idle}")
    files = record_files(folder)
    for record in failed:
        cause = (record.error.strip().splitlines() or ["unknown"])[-1]
        print(f"failed: {names[record.id]} ({files[record.id]}): {cause}", file=sys.stderr)
    if failed:
        print("`--retry-failed` runs the failed ones again.", file=sys.stderr)
    return len(failed)


def _plain_plan(
    experiments: Sequence[Experiment], present: Counter, estimates: Sequence[RunEstimate]
) -> dict:
    runs = [
        {
            "id": estimate.experiment.id,
            "run": describe(estimate.experiment),
            "iterations": estimate.iterations,
            "seconds": round(estimate.seconds, 1),
            "basis": estimate.basis,
        }
        for estimate in estimates
    ]
    seconds = round(sum(estimate.seconds for estimate in estimates), 1)
    return {
        "runs": len(experiments),
        "done": present["done"],
        "failed": present["failed"],
        "to_run": runs,
        "seconds": seconds,
    }


def dataset_name(experiment: Experiment) -> str:
    """What a table calls the data of a run."""
    data = experiment.data
    return str(data.get("name") or Path(str(data.get("path", experiment.source))).name)


def method_name(experiment: Experiment) -> str:
    """The word that means a run's recipe, as `named_recipe` takes it."""
    stage, *second = experiment.recipe.stages
    if second:
        return "2sfs" if stage.method == "layernorm" else f"2sfs:{stage.method}"
    return published_name(stage.method, stage.options).name


def describe(experiment: Experiment) -> str:
    """A run in one line."""
    setting = experiment.setting.replace("_", "-")
    return (
        f"{dataset_name(experiment)} {method_name(experiment)} {setting} "
        f"{experiment.shots} shots, seed {experiment.seed}, {experiment.backbone}"
    )


def duration(seconds: float) -> str:
    """Seconds for a reader: 42 s, 3 min, 2.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
