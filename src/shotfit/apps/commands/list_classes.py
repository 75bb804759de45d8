"""shotfit list-classes"""

import json
from pathlib import Path
from typing import Annotated

import typer

from shotfit.apps import options

EXAMPLES = (
    "shotfit list-classes pets",
    "shotfit list-classes pets --json",
)


def list_classes(
    model: Annotated[Path, typer.Argument(help="A saved classifier.")],
    as_json: options.Json = False,
) -> None:
    """The classes that a saved classifier answers with, and where each comes from."""
    from shotfit.classes import ClassList
    from shotfit.saved_settings import read_settings

    classes = ClassList.saved(read_settings(model))
    if as_json:
        rows = [{"name": name, "origin": origin} for name, origin in classes.origins]
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from shotfit.system.terminal import printable

    table = Table("class", "origin", show_edge=False)
    for name, origin in classes.origins:
        table.add_row(escape(printable(name)), origin)
    Console().print(table)
