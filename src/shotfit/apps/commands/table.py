"""shotfit table"""

import sys
from pathlib import Path
from typing import Annotated

import typer

DEFAULT_RESULTS = Path("results")


def table(
    name: Annotated[
        str,
        typer.Argument(
            metavar="TABLE", help="A table's id or number, 'suite', 'shifted-suite', or 'list'."
        ),
    ],
    results: Annotated[Path, typer.Option(help="The folder of records.")] = DEFAULT_RESULTS,
    form: Annotated[
        str, typer.Option("--format", help="terminal, markdown, latex, csv or html.")
    ] = "terminal",
    out: Annotated[Path | None, typer.Option(help="Write to this file.")] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FACT=VALUE",
            help="Keep the records that have it, such as method=2sfs:coop, dataset=food, seed=1, "
            "setting=base-to-novel, shots=4, budget=shared, precision=bf16 or M=300; repeat it "
            "for more facts. A wrong one is answered with those there are.",
        ),
    ] = None,
) -> None:
    """One of the paper's tables beside our records, or the embedded suite's tables."""
    if name == "list":
        _list()
        return
    from shotfit.errors import DataError, UsageError, unknown_name
    from shotfit.paper import paper_table
    from shotfit.records import load_records
    from shotfit.report.protocol import select_records
    from shotfit.report.render import FORMATS, render, to_terminal
    from shotfit.report.suite import suite_report
    from shotfit.report.tables import paper_report

    if form not in FORMATS:
        raise unknown_name("format", form, FORMATS)
    suites = ("suite", "shifted-suite")
    printed = None if name in suites else paper_table(name)
    # Without records a printed table still has its printed side; a folder asked for must exist.
    if results != DEFAULT_RESULTS and not results.is_dir():
        raise DataError(f"There is no folder {results} with records; `shotfit bench` makes them.")
    records = select_records(load_records(results), where or [])
    if printed is None:
        report = suite_report(records, shifted=name == "shifted-suite")
    else:
        report = paper_report(printed, records)
    if out is None and form == "terminal" and sys.stdout.isatty():
        from rich.console import Console

        print(to_terminal(report, Console().width, color=True), end="")
        return
    text = render(report, form)
    if out is None:
        print(text, end="")
        return
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"Cannot write {out}: {error}") from error
    print(f"Wrote {out}")


def _list() -> None:
    """The sixteen tables and the suite's."""
    from rich.console import Console
    from rich.table import Table

    from shotfit.paper import paper_tables

    table = Table("table", "number", "section", "what it shows", box=None, padding=(0, 2, 0, 0))
    for entry in paper_tables():
        table.add_row(entry.id, str(entry.number), entry.section, entry.title)
    table.add_row("suite", "", "", "The embedded suite: every method, offline")
    table.add_row("shifted-suite", "", "", "Its tasks under shifts")
    Console().print(table)
