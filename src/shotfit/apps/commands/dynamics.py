"""shotfit dynamics"""

from pathlib import Path
from typing import Annotated

import typer

from shotfit.apps import options
from shotfit.apps.arguments import ListCommand

EXAMPLES = (
    "shotfit dynamics --data symbols --method layernorm lora --iterations 600 --every 20",
    "shotfit dynamics --data suite --method layernorm --lr 5e-4 --seeds 1 2 3",
)

command_class = ListCommand


def dynamics(
    method: Annotated[list[str], typer.Option(help="Methods, each trained dynamics_recipe.")],
    data: Annotated[list[str], typer.Option(help="Embedded tasks, benchmarks, folders.")],
    iterations: Annotated[int, typer.Option(min=1, help="Updates; the paper has 8000.")] = 8000,
    every: Annotated[int, typer.Option(min=1, help="Updates between two evaluations.")] = 100,
    shots: Annotated[int, typer.Option(min=1, help="Images a class; the paper has 16.")] = 4,
    seeds: Annotated[list[int] | None, typer.Option(help="Runs to average. [default: 1]")] = None,
    lr: Annotated[float | None, typer.Option(help="Rate. [default: the method's, 2e-4]")] = None,
    batch_size: Annotated[int | None, typer.Option(help="[default: the method's, 32]")] = None,
    precision: Annotated[
        str | None, typer.Option(help="fp32, bf16 or fp16. [default: the method's, fp32]")
    ] = None,
    backbone: Annotated[str, typer.Option(help="Hub id, folder, or iconclip.")] = "iconclip",
    results: Annotated[Path, typer.Option(help="Folder of the curves.")] = Path("results/dynamics"),
    out: Annotated[Path, typer.Option(help="Folder of the figures.")] = Path("figures"),
    option: options.MethodOptions = None,
    overwrite: options.OverwriteRecords = False,
    device: options.Device = None,
    root: options.Root = None,
    quiet: options.Quiet = False,
) -> None:
    """Draw base and novel accuracy along training, and the break between the two phases.

    Lists are written with spaces or commas: --method layernorm lora bitfit. The same command again
    runs what is missing and draws the rest from the kept curves.
    """
    from shotfit.apps.studies import Surroundings, dynamics_study
    from shotfit.bench.dynamics import dynamics_recipe
    from shotfit.bench.grid import find_datasets
    from shotfit.experiment import Experiment

    given = {"lr": lr, "batch_size": batch_size, "precision": precision}
    training = {key: value for key, value in given.items() if value is not None}
    recipes = [
        dynamics_recipe(
            name.replace("-", "_"),
            iterations,
            options=options.parse_pairs(option),
            training=training,
        )
        for name in method
    ]
    experiments = [
        Experiment(source, facts, shots=shots, seed=seed, backbone=backbone, recipe=recipe)
        for name in data
        for source, facts in find_datasets(name)
        for recipe in recipes
        for seed in seeds or [1]
    ]
    dynamics_study(experiments, every, Surroundings(results, out, device, root, quiet, overwrite))
