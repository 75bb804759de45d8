"""shotfit predict"""

import json
from pathlib import Path
from typing import Annotated

import typer

from shotfit.apps import options
from shotfit.errors import UsageError


def predict(
    model: Annotated[str, typer.Argument(help="A saved classifier.")],
    images: Annotated[list[str], typer.Argument(help="Images, folders or glob patterns.")],
    classes: Annotated[
        str | None,
        typer.Option(help="Comma-separated names to choose among, also ones never trained on."),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Answers per image.")] = 1,
    out: Annotated[
        Path | None, typer.Option(help="Write JSON lines here instead of printing.")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1)] = 64,
    device: options.Device = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Name the class of images."""
    from shotfit.apps.predicting import predictions
    from shotfit.classifier import FewShotClassifier

    names = [name.strip() for name in classes.split(",")] if classes else None
    if names == [] or (names is not None and not all(names)):
        raise UsageError("--classes takes names separated by commas.")
    classifier = FewShotClassifier.from_pretrained(model, device=device)
    rows = predictions(classifier, images, names, top=top, batch_size=batch_size, quiet=quiet)
    if out is not None:
        # Written under another name first: an interrupted run leaves no half file behind.
        partial = out.with_name(out.name + ".partial")
        with partial.open("w", encoding="utf-8") as file:
            for row in rows:
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        partial.replace(out)
        return
    for row in rows:
        if as_json:
            print(json.dumps(row, ensure_ascii=False))
        else:
            answers = ", ".join(f"{a['class']} ({a['probability']:.0%})" for a in row["answers"])
            print(f"{row['image']}: {answers}")
