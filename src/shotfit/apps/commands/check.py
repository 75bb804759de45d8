"""shotfit check"""

import json
from pathlib import Path
from typing import Annotated

import typer

from shotfit.apps import options
from shotfit.errors import DataError, UsageError
from shotfit.system.files import check_new

EXAMPLES = (
    "shotfit check photos --shots 4 --out check.html",
    "shotfit check photos.csv --no-decode --no-model",
)


def check(
    data: Annotated[
        str, typer.Argument(help="A folder, a manifest, an embedded task or a benchmark dataset.")
    ],
    shots: Annotated[int | None, typer.Option(help="Ask for this many images per class.")] = None,
    decode: Annotated[
        bool, typer.Option(help="Open every image (benchmarks: many minutes).")
    ] = True,
    model: Annotated[
        bool,
        typer.Option(
            help="Ask a model which names it confuses, and which images look mislabelled."
        ),
    ] = True,
    backbone: Annotated[
        str | None, typer.Option(help="The model to ask, as of fit. [default: iconclip]")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Write a page with pictures (.html), or everything as .json."),
    ] = None,
    overwrite: options.Overwrite = False,
    root: options.Root = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Find what would stop a run, or spoil its result, before the run: files, images, names.

    Errors, which would stop a fit, end in exit code 3; warnings do not.
    """
    if out is not None and out.suffix.lower() not in (".html", ".json"):
        raise UsageError(f"--out writes .html or .json, got {out.name}.")
    if out is not None and not out.parent.is_dir():
        raise UsageError(f"There is no folder {out.parent} for {out.name}.")
    if out is not None:
        check_new(out, overwrite=overwrite)
    if backbone is not None and not model:
        raise UsageError("--no-model asks no model, so that --backbone has no effect.")
    from shotfit.apps.check.doctor import Wanted, check_data
    from shotfit.apps.check.showing import show_report, write_report
    from shotfit.observers.counting import counting

    asked = (backbone or "iconclip") if model else None
    with counting(quiet=quiet or as_json) as watch:
        report = check_data(data, Wanted(shots, decode, asked), root, watch)
    if out is not None:
        write_report(report, out)
    if as_json:
        print(json.dumps(report.plain(), indent=2, ensure_ascii=False))
    else:
        show_report(report)
        if out is not None:
            print(f"Wrote {out}")
    count = len(report.texts("error"))
    if count:
        raise DataError(f"{count} problem{'s' if count > 1 else ''} found in {data}.")
    if not as_json:
        warned = len(report.texts("warning"))
        told = f", {warned} note{'s' if warned > 1 else ''} above" if warned else ""
        print(f"No problems found that would stop a fit{told}.")
