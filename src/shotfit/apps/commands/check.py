"""shotfit check"""

import json
from typing import Annotated

import typer

from shotfit.apps import options
from shotfit.errors import DataError

EXAMPLES = (
    "shotfit check photos --shots 4",
    "shotfit check photos.csv --no-decode",
)


def check(
    data: Annotated[
        str, typer.Argument(help="A folder, a manifest, an embedded task or a benchmark dataset.")
    ],
    shots: Annotated[int | None, typer.Option(help="Ask for this many images per class.")] = None,
    decode: Annotated[
        bool, typer.Option(help="Open every image (benchmarks: many minutes).")
    ] = True,
    root: options.Root = None,
    as_json: options.Json = False,
) -> None:
    """Find what would stop a run before the run: files, images, class names."""
    from shotfit.apps.check import check_data

    report = check_data(data, shots, root, decode=decode)
    if as_json:
        print(json.dumps(report, indent=2, ensure_ascii=False))
    else:
        counts = report["images"]
        sizes = ", ".join(f"{counts[part]:,} {part}" for part in counts if counts[part])
        print(f"{report['name']}: {report['classes']} classes; {sizes} images")
        for note in report["notes"]:
            print(f"note: {note}")
        for problem in report["problems"]:
            print(f"problem: {problem}")
    if report["problems"]:
        count = len(report["problems"])
        raise DataError(f"{count} problem{'s' if count > 1 else ''} found in {data}.")
    if not as_json:
        print("No problems found.")
