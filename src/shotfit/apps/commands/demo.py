"""shotfit demo"""

import json
from pathlib import Path
from typing import Annotated

import typer

from shotfit.apps import options

EXAMPLES = (
    "shotfit demo",
    "shotfit demo --task food --shots 8",
)


def demo(
    task: Annotated[str, typer.Option(help="An embedded task (see list-datasets).")] = "activities",
    shots: Annotated[int, typer.Option(min=1, help="Images per class.")] = 4,
    seed: Annotated[int, typer.Option(help="Decides shots and order.")] = 1,
    out: Annotated[Path, typer.Option(help="Folder for the picture and the classifier.")] = Path(
        "demo"
    ),
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
) -> None:
    """See it work: two stages on an embedded task, beside zero-shot and one stage."""
    from shotfit.apps.demo.showcase import showcase

    result = showcase(task, shots, seed, out, quiet=as_json, overwrite=overwrite)
    if as_json:
        print(json.dumps(result, indent=2))
