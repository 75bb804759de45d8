"""What `shotfit table` and `shotfit compare` share: records in, a report out."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shotfit.errors import DataError, unknown_name

if TYPE_CHECKING:
    from shotfit.records import Record
    from shotfit.report import Report

DEFAULT_RESULTS = Path("results")

Results = Annotated[Path, typer.Option(help="The folder of records.")]
Format = Annotated[str, typer.Option("--format", help="terminal, markdown, latex, csv or html.")]
Out = Annotated[Path | None, typer.Option(help="Write to this file.")]
Where = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FACT=VALUE",
        help="Keep the records that have it, such as method=2sfs:coop, dataset=food, seed=1, "
        "setting=base-to-novel, shots=4, budget=shared, precision=bf16 or M=300; repeat it "
        "for more facts. A wrong one is answered with those there are.",
    ),
]


def read_records(results: Path, where: Sequence[str]) -> "list[Record]":
    """The records of a folder that are as `where` says; none of the default folder when it is not
    there, since a printed table has its printed side without any.

    Raises:
        DataError: for a folder that is asked for and not there, or a damaged record.
        UsageError: as `select_records`.
    """
    from shotfit.records import load_records
    from shotfit.report.protocol import select_records

    if results != DEFAULT_RESULTS and not results.is_dir():
        raise DataError(f"There is no folder {results} with records; `shotfit bench` makes them.")
    return select_records(load_records(results), where)


def require_format(form: str) -> None:
    """Refuses an unknown format before anything is read.

    Raises:
        UsageError: with the nearest known one.
    """
    from shotfit.report import FORMATS

    if form not in FORMATS:
        raise unknown_name("format", form, FORMATS)


def show(report: "Report", form: str, out: Path | None, *, overwrite: bool) -> None:
    """Prints a report, in colour where it is looked at, or writes it to a file.

    Raises:
        DataError: for a file with other content, unless `overwrite`; or when it cannot be written:
            what was there before is there still.
    """
    from shotfit.report import render
    from shotfit.report.render import to_terminal
    from shotfit.system.files import write_result

    if out is None and form == "terminal" and sys.stdout.isatty():
        from rich.console import Console

        print(to_terminal(report, Console().width, color=True), end="")
        return
    text = render(report, form)
    if out is None:
        print(text, end="")
        return
    try:
        write_result(out, text.encode(), overwrite=overwrite)
    except OSError as error:
        raise DataError(f"Cannot write {out}: {error}") from error
    print(f"Wrote {out}")
