"""shotfit datasets"""

import dataclasses
import json
from typing import Annotated

import typer

from shotfit.apps import options
from shotfit.errors import UsageError

EXAMPLES = (
    "shotfit datasets --root ~/data",
    "shotfit datasets eurosat --root ~/data",
)


def datasets(
    name: Annotated[
        str | None, typer.Argument(help="One dataset, shown with its layout and sources.")
    ] = None,
    root: options.Root = None,
    as_json: options.Json = False,
) -> None:
    """The eleven benchmark datasets: what is there, what is missing, where it comes from."""
    from shotfit.data.benchmark import catalogue

    if root is None:
        raise UsageError(
            "Say where datasets lie: --root FOLDER, or SHOTFIT_DATA in the environment."
        )
    found = catalogue.all_statuses(root) if name is None else (catalogue.status(root, name),)
    if as_json:
        rows = [dataclasses.asdict(status) for status in found]
        print(json.dumps(rows, indent=2, default=str))
        return
    from rich.console import Console
    from rich.table import Table

    if name is not None:
        status = found[0]
        print(f"{status.benchmark.key}: {status.state} ({status.directory})\n")
        print(catalogue.layout_tree(status.benchmark, status))
        print("\n" + catalogue.how_to_get(status.benchmark))
        return
    table = Table("dataset", "classes", "state", "missing")
    for status in found:
        missing = ", ".join(status.missing) if status.state == "incomplete" else ""
        table.add_row(status.benchmark.key, str(status.benchmark.classes), status.state, missing)
    Console().print(table)
    print("`shotfit datasets NAME` shows a dataset's layout and where it comes from.")
