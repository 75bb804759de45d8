"""shotfit compare"""

import dataclasses
from typing import Annotated

import typer

from shotfit.apps import options, tables

EXAMPLES = (
    "shotfit compare 2sfs coop lora",
    "shotfit compare 2sfs zero_shot --where shots=4 --format markdown",
)


def compare(
    methods: Annotated[
        list[str],
        typer.Argument(
            metavar="METHOD METHOD ...",
            help="Two or more rows, as `shotfit table` names them (2sfs_lora[M=100]) or as "
            "`shotfit bench` takes them (2sfs:lora). The others are compared with the first.",
        ),
    ],
    results: tables.Results = tables.DEFAULT_RESULTS,
    form: tables.Format = "terminal",
    out: tables.Out = None,
    overwrite: options.Overwrite = False,
    where: tables.Where = None,
    classes: Annotated[
        int,
        typer.Option(min=0, help="Also as many classes of each dataset, those that differ most."),
    ] = 0,
) -> None:
    """Whether one method is above another: paired differences, intervals and corrected p-values.

    Runs are paired by dataset and seed; datasets are the independent units.
    """
    from shotfit.errors import DataError
    from shotfit.report import compare_report
    from shotfit.report.paired_classes import class_panels
    from shotfit.report.protocol import runs_of

    tables.require_format(form)
    records = tables.read_records(results, where or [])
    if not records:
        raise DataError(f"There is no finished record in {results}; `shotfit bench` makes them.")
    report = compare_report(runs_of(records), methods)
    if classes:
        panels = class_panels(runs_of(records), methods, classes)
        report = dataclasses.replace(report, panels=(*report.panels, *panels))
    tables.show(report, form, out, overwrite=overwrite)
