"""Options that several commands share, and the rule of config files: flags win over the file."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from shotfit.errors import UsageError, unknown_name

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Options = TypeVar("Options", bound="DataclassInstance")

ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="YAML file with options; flags win over it.")
]
Device = Annotated[
    str | None, typer.Option(help="cpu, cuda, cuda:1 … [default: an accelerator, else cpu]")
]
Root = Annotated[
    str | None, typer.Option(envvar="SHOTFIT_DATA", help="Folder of the benchmark datasets.")
]
FewShot = Annotated[
    str | None,
    typer.Option(
        help="Folder of few-shot lists to train on instead of drawing, relative to --root; "
        "{dataset} in it stands for the dataset's name, {folder} for its published folder, such "
        "as caltech-101."
    ),
]
FirstFraction = Annotated[
    str | None, typer.Option(help="Share of the first stage, alpha. [default: the method's]")
]
Budget = Annotated[
    str | None,
    typer.Option(help="published, or shared for M x shots iterations whatever the method."),
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace what another command has written there.")
]
OverwriteRecords = Annotated[
    bool,
    typer.Option(
        "--overwrite", help="Run again what has a result of other images, and replace figures."
    ),
]
Host = Annotated[str, typer.Option(help="Where to listen; other addresses open it to a network.")]
Port = Annotated[int, typer.Option(min=1, max=65535, help="Where to listen.")]
PageBackbone = Annotated[
    str, typer.Option(help="Hub id, folder, or iconclip, which knows drawn icons only.")
]
Browser = Annotated[bool, typer.Option(help="Open it in the browser.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
Int8 = Annotated[
    bool,
    typer.Option("--int8", help="Round the image tower to 8 bits: faster on a CPU, not the same."),
]
PublishedScores = Annotated[
    bool,
    typer.Option(
        "--published-scores",
        help="Score as the paper does, trained rows and names as they are, and not by the levels "
        "that were fitted on the shots.",
    ),
]
Classes = Annotated[
    str | None,
    typer.Option(help="Comma-separated names to choose among, also ones never trained on."),
]
SavedBackbone = Annotated[
    str | None,
    typer.Option(
        "--backbone",
        metavar="MODEL",
        help="The pretrained model, for a classifier of someone else's that refers to one outside "
        "of its folder.",
    ),
]
MethodOptions = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", metavar="NAME=VALUE", help="Option of the method, repeatable."),
]


def merged(config: Path | None, given: Options) -> Options:
    """The options that were given as flags, on top of the file's (kebab-case or snake_case).

    Raises:
        UsageError: for a file that cannot be read, an option that the command does not have, or a
            value of a wrong type.
    """
    from shotfit.config import from_dict, read_yaml

    flags = {field.name: getattr(given, field.name) for field in dataclasses.fields(given)}
    values: dict[str, Any] = {}
    for key, value in (read_yaml(config) if config else {}).items():
        name = str(key).replace("-", "_")
        if name not in flags:
            raise unknown_name(f"option in {config}", str(key), flags)
        values[name] = value
    values |= {name: value for name, value in flags.items() if value not in (None, [])}
    return from_dict(type(given), values)


def parse_pairs(pairs: Any) -> dict[str, Any]:
    """`NAME=VALUE` strings, or a mapping from a config file, as a mapping.

    Raises:
        UsageError: for a string without "=".
    """
    if isinstance(pairs, dict):
        return pairs
    parsed = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"--option takes NAME=VALUE, got {pair!r}.")
        parsed[name.strip().replace("-", "_")] = value.strip()
    return parsed


def class_names(classes: str | None) -> tuple[str, ...] | None:
    """The names of `--classes`; None where it was not given.

    Raises:
        UsageError: for an empty name, or one that is there twice.
    """
    if classes is None:
        return None
    names = tuple(name.strip() for name in classes.split(","))
    if not all(names):
        raise UsageError("--classes takes names separated by commas.")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"--classes has {twice!r} twice.")
    return names


METRIC_NAMES = {
    "accuracy": "accuracy, among all names",
    "accuracy_low": "  95 % interval, from",
    "accuracy_high": "  to",
    "base": "base classes",
    "novel": "novel classes",
    "harmonic_mean": "harmonic mean",
    "joint": "all classes together",
    "base_in_joint": "  base images, all names",
    "novel_in_joint": "  novel images, all names",
    "joint_harmonic_mean": "  harmonic mean of these",
    "all": "accuracy",
    "zero_shot": "zero-shot, among the same names",
    "top5": "top 5",
    "macro_f1": "macro F1",
    "calibration_error": "calibration error",
}


def show_metrics(metrics: dict[str, float]) -> None:
    """Prints metrics as a small table, or that there are none."""
    from rich.console import Console
    from rich.table import Table

    if not metrics:
        print("Not evaluated with these classes.")
        return
    table = Table("accuracy on test images", "%", show_edge=False)
    table.columns[1].justify = "right"
    for key, name in METRIC_NAMES.items():
        if key in metrics:
            table.add_row(name, f"{metrics[key]:.2f}")
    Console().print(table)
