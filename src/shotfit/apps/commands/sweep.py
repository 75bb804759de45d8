"""shotfit sweep"""

from pathlib import Path
from typing import Annotated

import typer

from shotfit.apps import options
from shotfit.apps.arguments import ListCommand

EXAMPLES = (
    "shotfit sweep alpha training.lr --data symbols --second-values 1e-4 2e-4 4e-4",
    "shotfit sweep second-stage --data animals food --shots 4",
)

command_class = ListCommand


def sweep(
    axes: Annotated[
        list[str],
        typer.Argument(
            metavar="OPTION [OPTION]",
            help="alpha, iters-per-shot, batch-size, rank; or an option as bench -o has it, such "
            "as training.lr; two of them for every pair of values. Or second-stage.",
        ),
    ],
    data: Annotated[
        list[str] | None,
        typer.Option(help="Embedded tasks, benchmarks, folders. [default: suite, every task]"),
    ] = None,
    values: Annotated[list[str] | None, typer.Option(help="Values. [default: the paper's]")] = None,
    second_values: Annotated[
        list[str] | None, typer.Option(help="Values of the second option.")
    ] = None,
    method: Annotated[str, typer.Option(help="2sfs, or 2sfs:FIRST.")] = "2sfs",
    shots: Annotated[int, typer.Option(min=1, help="Images a class; the paper has 16.")] = 4,
    seeds: Annotated[
        list[int] | None, typer.Option(help="Runs to average. [default: 1 2 3]")
    ] = None,
    setting: Annotated[str, typer.Option(help="base-to-novel or all-to-all.")] = "base-to-novel",
    iters_per_shot: Annotated[int, typer.Option(min=1, help="M, unless it is swept.")] = 300,
    option: options.MethodOptions = None,
    backbone: Annotated[str, typer.Option(help="Hub id, folder, or iconclip.")] = "iconclip",
    results: Annotated[Path, typer.Option(help="Folder of the records.")] = Path("results/sweep"),
    out: Annotated[Path, typer.Option(help="Folder of the figure.")] = Path("figures"),
    overwrite: options.OverwriteRecords = False,
    device: options.Device = None,
    root: options.Root = None,
    quiet: options.Quiet = False,
) -> None:
    """Sweep one option or two, or measure what the second stage adds.

    "second-stage" is the paper's ablation: accuracy with both stages minus that after the first.
    Means are over all datasets and seeds. The same command again runs what is missing.
    """
    from shotfit.apps.studies import Surroundings, gain_study, sweep_study
    from shotfit.bench.grid import SUITE, expand
    from shotfit.errors import UsageError
    from shotfit.recipe import Overrides

    experiments = expand(
        [method],
        data or [SUITE],
        backbones=[backbone],
        shots=[shots],
        seeds=seeds or [1, 2, 3],
        settings=[setting],
        overrides=Overrides({"iters_per_shot": iters_per_shot}, options.parse_pairs(option)),
    )
    datasets = len({str(experiment.data) for experiment in experiments})
    tasks = (
        f"{datasets} tasks" if datasets > 1 else str(experiments[0].data.get("name", "a folder"))
    )
    title = ", ".join((method, *(option or ()), setting.replace("_", "-"), f"{shots} shots", tasks))
    surroundings = Surroundings(results, out, device, root, quiet, overwrite)
    if axes == ["second-stage"]:
        gain_study(experiments, title, surroundings)
        return
    if len(axes) > 2:
        raise UsageError("Sweep one option or two; more are a grid: see shotfit bench.")
    if second_values and len(axes) == 1:
        raise UsageError("--second-values needs a second option.")
    given = [_plain(values), _plain(second_values)]
    if sweep_study(axes, experiments, given, title, surroundings):
        raise typer.Exit(1)


def _plain(texts: list[str] | None) -> "list[float | str] | None":
    """Numbers as numbers."""
    return [_number(text) for text in texts] if texts else None


def _number(text: str) -> float | str:
    """A number, or the word that it is."""
    try:
        return float(text)
    except ValueError:
        return text
