"""shotfit splits make | verify | from-raw"""

import json
from pathlib import Path
from typing import Annotated

import typer

from shotfit.apps import options
from shotfit.errors import DataError

EXAMPLES = (
    "shotfit splits make eurosat lists --shots 4 --shots 16 --root ~/data",
    "shotfit splits make photos.csv lists --shots 8 --seeds 1",
    "shotfit splits verify eurosat lists --root ~/data",
    "shotfit splits verify photos.csv lists --shots 8 --seeds 1",
    "shotfit splits from-raw eurosat --root ~/data",
    "shotfit splits from-raw dtd --root ~/data --seed 1",
)

app = typer.Typer(
    help="Few-shot lists and splits as files: make them, or verify them.", no_args_is_help=True
)

Data = Annotated[str, typer.Argument(help="A benchmark dataset, folder, manifest or task.")]
Folder = Annotated[Path, typer.Argument(help="Folder of the lists.")]
Shots = Annotated[list[int], typer.Option(help="Images per class; repeatable.")]
Seeds = Annotated[list[int], typer.Option(help="Seeds; repeatable.")]


@app.command()
def make(
    data: Data,
    folder: Folder,
    shots: Shots = [1, 2, 4, 8, 16],  # noqa: B006 - Typer copies defaults
    seeds: Seeds = [1, 2, 3],  # noqa: B006
    overwrite: Annotated[bool, typer.Option(help="Replace lists with other content.")] = False,
    root: options.Root = None,
) -> None:
    """Draw few-shot lists by the published rule and write them."""
    from shotfit.data import fewshot_lists
    from shotfit.data.inputs import as_dataset

    dataset = as_dataset(data, root)
    written = fewshot_lists.make(dataset, folder, shots=shots, seeds=seeds, overwrite=overwrite)
    print(f"{len(written)} lists in {folder}")


@app.command()
def verify(
    data: Data,
    folder: Folder,
    shots: Shots = [1, 2, 4, 8, 16],  # noqa: B006
    seeds: Seeds = [1, 2, 3],  # noqa: B006
    root: options.Root = None,
    as_json: options.Json = False,
) -> None:
    """Compare lists with their own hashes and with what the published rule draws."""
    from shotfit.data import fewshot_lists
    from shotfit.data.inputs import as_dataset

    found = fewshot_lists.verify(as_dataset(data, root), folder, shots=shots, seeds=seeds)
    if as_json:
        rows = [{"path": str(c.path), "status": c.status, "detail": c.detail} for c in found]
        print(json.dumps(rows, indent=2))
    else:
        for one in found:
            print(f"{one.status:<9}{one.path}{f'  ({one.detail})' if one.detail else ''}")
    bad = [one for one in found if one.status in ("missing", "damaged")]
    if bad:
        raise DataError(f"{len(bad)} of {len(found)} lists are missing or damaged.")


@app.command("from-raw")
def from_raw(
    name: Annotated[str, typer.Argument(help="A benchmark dataset.")],
    root: options.Root = None,
    seed: Annotated[int, typer.Option(help="That of the published splits is 1.")] = 1,
) -> None:
    """Make a benchmark's train, val and test split from its raw files.

    For when the published split file cannot be had. For Flowers, Pets, Cars and UCF101 it is the
    published split with the default seed; the file says whether it is.
    """
    from shotfit.data.benchmark.making_splits import write_made_split
    from shotfit.errors import UsageError

    if root is None:
        raise UsageError("Say where the datasets lie, with --root or SHOTFIT_DATA.")
    path = write_made_split(root, name, seed=seed)
    print(f"{path}: {json.loads(path.read_text(encoding='utf-8'))['note']}")
