"""shotfit list-methods"""

import json
from typing import Annotated

import typer

from shotfit.apps import options

EXAMPLES = (
    "shotfit list-methods",
    "shotfit list-methods 2sfs:lora",
)


def list_methods(
    name: Annotated[
        str | None,
        typer.Argument(help="One method or preset: its options, with defaults and ranges."),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Every adaptation method, with what it is, what it can do, the images on which it chooses what
    training leaves open (an epoch, a weight), and the models it works with; and the presets."""
    from shotfit.apps import method_list

    if name is not None:
        found = method_list.describe(name)
        print(json.dumps(found, indent=2)) if as_json else method_list.show_one(found)
        return
    rows = method_list.rows()
    print(json.dumps(rows, indent=2)) if as_json else method_list.show(rows)
