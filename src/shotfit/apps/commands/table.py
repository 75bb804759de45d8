"""shotfit table"""

from typing import Annotated

import typer

from shotfit.apps import options, tables

EXAMPLES = (
    "shotfit table list",
    "shotfit table suite --where method=2sfs --format markdown",
)


def table(
    name: Annotated[
        str,
        typer.Argument(
            metavar="TABLE",
            help="A table's id or number, 'suite', 'shifted-suite', 'runs' for every record, or "
            "'list'.",
        ),
    ],
    results: tables.Results = tables.DEFAULT_RESULTS,
    form: tables.Format = "terminal",
    out: tables.Out = None,
    overwrite: options.Overwrite = False,
    where: tables.Where = None,
    across: Annotated[
        str | None,
        typer.Option(
            metavar="FACT",
            help="With 'runs': the values of one fact side by side, such as shots, backbone, M, "
            "precision or an option like rank.",
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(help="With --across: a key of records. [default: harmonic_mean, or all]"),
    ] = None,
) -> None:
    """One of the paper's tables beside our records, the embedded suite's, or those of any runs."""
    if name == "list":
        _list()
        return
    from shotfit.errors import UsageError
    from shotfit.paper import paper_table
    from shotfit.report import across_report, paper_report, runs_report, suite_report
    from shotfit.report.protocol import runs_of

    tables.require_format(form)
    if across is not None and name != "runs":
        raise UsageError("--across is for `shotfit table runs`; keep the suite's by --where.")
    ours = name in ("suite", "shifted-suite", "runs")
    printed = None if ours else paper_table(name)
    records = tables.read_records(results, where or [])
    if printed is not None:
        report = paper_report(printed, records)
    elif across is not None:
        report = across_report(runs_of(records), across, metric)
    elif name == "runs":
        report = runs_report(records)
    else:
        report = suite_report(records, shifted=name == "shifted-suite")
    tables.show(report, form, out, overwrite=overwrite)


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
    table.add_row("runs", "", "", "Every record: any dataset, backbone, shots and recipe")
    Console().print(table)
