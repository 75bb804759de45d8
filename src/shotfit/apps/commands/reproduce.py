"""shotfit reproduce"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shotfit.apps import options
from shotfit.apps.arguments import ListCommand

if TYPE_CHECKING:
    from shotfit.experiment import Experiment

EXAMPLES = (
    "shotfit reproduce 1 --root ~/data",
    "shotfit reproduce suite",
)

command_class = ListCommand


def reproduce(
    name: Annotated[str, typer.Argument(metavar="TABLE", help="A table's id or number.")],
    results: Annotated[Path, typer.Option(help="The folder of records.")] = Path("results"),
    root: Annotated[Path | None, typer.Option(help="The folder of the datasets.")] = None,
    seeds: Annotated[list[int] | None, typer.Option(help="Default: 1 2 3.")] = None,
    seconds_per_iteration: Annotated[
        list[str] | None, typer.Option(help="BACKBONE=SECONDS, such as ViT-B/16=0.1.")
    ] = None,
    fewshot: options.FewShot = None,
    precision: Annotated[
        str, typer.Option(help="fp16 as printed, for an accelerator; or fp32, bf16.")
    ] = "fp16",
    run: Annotated[bool, typer.Option("--run", help="Run what has no record yet.")] = False,
) -> None:
    """The exact grid that a table of the paper needs, its cost, and with --run its records."""
    if name == "suite":
        _suite(run)
        return
    from shotfit.bench.cost import SECONDS_PER_ITERATION, device_hours
    from shotfit.bench.reproduction import SEEDS, reproduction
    from shotfit.paper import paper_table

    table = paper_table(name)
    plan = reproduction(table, seeds or SEEDS, fewshot, precision)
    seconds = {**SECONDS_PER_ITERATION, **_numbers(seconds_per_iteration or [])}
    print(f"# Table {table.number}: {table.title}")
    for grid in plan.grids:
        hours = device_hours(grid.experiments(), seconds)
        print(
            f"\n# {grid.backbone}, {len(grid.experiments())} runs, about {hours:.1f} device hours"
        )
        print(grid.command)
    if plan.missing:
        print(f"\n# Printed, but not a method of this version: {', '.join(plan.missing)}")
    experiments = plan.experiments()
    assumed = ", ".join(f"{key} {seconds[key]:g} s" for key in table.backbones)
    hours = device_hours(experiments, seconds)
    print(f"\n# In all {len(experiments)} runs, about {hours:.0f} device hours, assuming an")
    print(f"# iteration takes {assumed} (--seconds-per-iteration) and testing a third of one per")
    print("# 32 images. Loading models and images is not counted.")
    if run:
        _run(experiments, results, root)


def _suite(run: bool) -> None:
    """The command line of the suite's tables: every method, alone and as a first stage."""
    from shotfit.errors import UsageError
    from shotfit.methods import get_method, list_methods

    if run:
        raise UsageError("The suite's grid is run by `shotfit bench`: see `reproduce suite`.")
    first = [f"2sfs:{name}" for name in list_methods() if get_method(name).first_fraction]
    methods = " ".join(["every", *first])
    print(
        f"shotfit bench --methods {methods} --datasets suite --seeds 1 2 3 "
        "--setting base-to-novel all-to-all"
    )
    print("# add --dry-run for what it costs")


def _run(experiments: "list[Experiment]", results: Path, root: Path | None) -> None:
    from shotfit.bench.runner import run_all

    step = None
    for step in run_all(experiments, results, root=str(root) if root else None):
        if step.record is not None:
            left = "" if step.seconds_left is None else f", {step.seconds_left / 3600:.1f} h left"
            print(f"{step.done} done, {step.failed} failed of {step.total}{left}", flush=True)
    if step is not None and step.failed:
        raise typer.Exit(1)


def _numbers(texts: list[str]) -> dict[str, float]:
    from shotfit.errors import UsageError

    numbers = {}
    for text in texts:
        name, _, value = text.partition("=")
        try:
            numbers[name] = float(value)
        except ValueError:
            raise UsageError(
                f"--seconds-per-iteration takes BACKBONE=SECONDS, like ViT-B/16=0.1; got {text!r}."
            ) from None
    return numbers
