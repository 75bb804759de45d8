"""shotfit list-methods"""

import json
from typing import Annotated

import typer


def list_methods(
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Every adaptation method, with what it is, what it can do, the images on which it chooses what
    training leaves open (an epoch, a weight), and the models it works with."""
    from shotfit.methods import get_method, published_names

    rows = []
    for entry in published_names().values():
        method = get_method(entry.method)
        rows.append(
            {
                "name": entry.name,
                "summary": entry.summary,
                "unseen_classes": method.open_vocabulary,
                "first_stage": method.first_fraction is not None,
                "selects_on": method.selects_on,
                "families": list(method.families),
            }
        )
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    # Narrow headers leave the room to what it does.
    table = Table("method", "what it does", "unseen\nclasses", "first\nstage")
    table.add_column("selects on", max_width=10)
    table.add_column("families", no_wrap=True)
    for row in rows:
        table.add_row(
            row["name"],
            row["summary"],
            "yes" if row["unseen_classes"] else "no",
            "yes" if row["first_stage"] else "no",
            row["selects_on"],
            ", ".join(row["families"]),
        )
    Console().print(table)
