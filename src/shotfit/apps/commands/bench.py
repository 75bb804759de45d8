"""shotfit bench"""

from pathlib import Path
from typing import Annotated, ClassVar

import typer

from shotfit.apps import options, words
from shotfit.apps.arguments import ListCommand
from shotfit.errors import UsageError

EXAMPLES = (
    "shotfit bench --methods 2sfs lora --datasets animals food --shots 4 --seeds 1 2 3",
    "shotfit bench --methods every --datasets suite --setting base-to-novel --dry-run",
)


class BenchCommand(ListCommand):
    """`--ray` alone means Ray on this machine; a template may hold commas."""

    implied: ClassVar = {"--ray": "local"}
    whole: ClassVar = ("--template",)


command_class = BenchCommand


def bench(
    methods: Annotated[
        list[str] | None,
        typer.Option(
            help="2sfs, 2sfs:FIRST (another first stage), a method alone, or every. [default: 2sfs]"
        ),
    ] = None,
    datasets: Annotated[
        list[str] | None,
        typer.Option(help="Embedded tasks, benchmarks, folders. [default: suite, every task]"),
    ] = None,
    backbones: Annotated[
        list[str] | None, typer.Option(help="Hub ids, folders, or iconclip. [default: iconclip]")
    ] = None,
    shots: Annotated[list[int] | None, typer.Option(help="Images per class. [default: 4]")] = None,
    seeds: Annotated[
        list[int] | None, typer.Option(help="Decide shots and order. [default: 1]")
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(help="base-to-novel, all-to-all, or both. [default: base-to-novel]"),
    ] = None,
    iters_per_shot: Annotated[
        int | None, typer.Option(help="Iterations per shot, M. [default: 300]")
    ] = None,
    first_fraction: options.FirstFraction = None,
    budget: options.Budget = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            "-o",
            metavar="NAME=VALUE",
            help="Option of the method; training.NAME=VALUE of its training, "
            "linear.NAME=VALUE of the second stage.",
        ),
    ] = None,
    template: Annotated[
        list[str] | None,
        typer.Option(
            help='Prompt with {} for the name; "specific" for a benchmark\'s own. Methods that '
            "learn the prompt read none. Given several times, the mean of them."
        ),
    ] = None,
    templates: words.Templates = None,
    descriptions: words.Descriptions = None,
    fewshot: options.FewShot = None,
    imbalance: Annotated[
        float,
        typer.Option(help="Shots of the most frequent class over those of the rarest."),
    ] = 1.0,
    wrong_labels: Annotated[
        float, typer.Option(help="Share of training images with another class's label.")
    ] = 0.0,
    transfer: Annotated[
        list[str] | None,
        typer.Option(
            help="Other datasets to be measured on, among their own names: cross-dataset transfer; "
            "imagenetv2, imagenet_sketch, imagenet_a, imagenet_r: domain generalisation."
        ),
    ] = None,
    results: Annotated[Path, typer.Option(help="Folder of the records.")] = Path("results"),
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="[ADDRESS]",
            help="Run as Ray tasks: on this machine, or on the cluster at host:port, "
            "ray://host:port or auto.",
        ),
    ] = None,
    cpus_per_run: Annotated[float, typer.Option(help="CPUs of a Ray task.")] = 1,
    gpus_per_run: Annotated[float, typer.Option(help="GPUs of a Ray task, also fractions.")] = 0,
    isolate: Annotated[
        bool, typer.Option("--isolate", help="A process of its own for every run (without Ray).")
    ] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Run failed ones again.")
    ] = False,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Run again what has a record of other images by now."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan and its estimated cost.")
    ] = False,
    device: options.Device = None,
    root: options.Root = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Run a grid of methods, datasets, shots and seeds: one record a run, finished runs skipped.

    Lists are written with spaces or commas: --shots 4 8 16. The folder of records makes a grid
    resumable: the same command again runs what is missing.
    """
    from shotfit.apps import bench as benchmarking
    from shotfit.bench.grid import SUITE, expand
    from shotfit.recipe import Overrides

    named = template in (["generic"], ["specific"])
    if named and (templates is not None or descriptions is not None):
        raise UsageError(f"--template {template[0]} is the whole prompt: give no other words.")
    asked = template[0] if named else words.chosen_words(template or (), templates, descriptions)
    given = {"iters_per_shot": iters_per_shot, "first_fraction": first_fraction, "budget": budget}
    experiments = expand(
        methods or ["2sfs"],
        datasets or [SUITE],
        backbones=backbones or ["iconclip"],
        shots=shots or [4],
        seeds=seeds or [1],
        settings=setting or ["base_to_novel"],
        overrides=Overrides(
            {key: value for key, value in given.items() if value is not None},
            options.parse_pairs(option),
        ),
        template=asked,
        fewshot=fewshot,
        imbalance=imbalance,
        wrong_labels=wrong_labels,
        transfer=transfer or [],
    )
    if dry_run:
        benchmarking.show_plan(experiments, results, root, retry_failed, as_json)
        return
    failed = benchmarking.run_grid(
        experiments,
        results,
        ray=benchmarking.ray_options(ray, cpus_per_run, gpus_per_run),
        root=root,
        device=device,
        retry_failed=retry_failed,
        isolate=isolate,
        quiet=quiet,
        as_json=as_json,
        overwrite=overwrite,
    )
    if failed:
        raise typer.Exit(1)
