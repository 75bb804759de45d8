"""shotfit plot"""

from pathlib import Path
from typing import Annotated, TypeVar

import typer

from shotfit.apps import options, tables
from shotfit.errors import DataError, UsageError, unknown_name

EXAMPLES = (
    "shotfit plot ranking --out ranking.png",
    "shotfit plot scatter --where shots=4 --out scatter.svg",
)

Shown = TypeVar("Shown")

KINDS = ("ranking", "scatter", "lines")


def plot(
    kind: Annotated[
        str,
        typer.Argument(
            help="ranking: methods by harmonic mean or accuracy; scatter: base against novel; "
            "lines: accuracy over --across."
        ),
    ],
    out: Annotated[Path, typer.Option(help="The figure: .png, .svg or .pdf.")],
    overwrite: options.Overwrite = False,
    results: tables.Results = tables.DEFAULT_RESULTS,
    where: tables.Where = None,
    across: Annotated[
        str, typer.Option(metavar="FACT", help="For lines: shots, M, backbone, rank …")
    ] = "shots",
    metric: Annotated[
        str | None,
        typer.Option(help="A key of records. [default: harmonic_mean, or all]"),
    ] = None,
) -> None:
    """Draw a figure from records of any dataset, all of one protocol."""
    from shotfit.report.across import across as across_fact
    from shotfit.report.figures import comparison
    from shotfit.report.figures.canvas import save
    from shotfit.report.figures.lines import lines
    from shotfit.report.protocol import runs_of
    from shotfit.report.suite import describe_protocol, protocol_groups

    if kind not in KINDS:
        raise unknown_name("figure", kind, KINDS)
    runs = runs_of(tables.read_records(results, where or []))
    if not runs:
        raise DataError(f"{results} holds no finished record; `shotfit bench` makes them.")
    if kind == "lines":
        figure = lines(_only({one.heading: one for one in across_fact(runs, across, metric)}))
    else:
        group = _only({describe_protocol(group): group for group in protocol_groups(runs)})
        if kind == "ranking":
            figure = comparison.ranking(group, metric)
        else:
            figure = comparison.base_novel_scatter(group)
    print(f"Wrote {save(figure, out, overwrite=overwrite)}")


def _only(protocols: dict[str, Shown]) -> Shown:
    """The one protocol there is, by its description."""
    if len(protocols) > 1:
        found = "; ".join(protocols)
        raise UsageError(f"These records are of several protocols ({found}): keep one, --where.")
    (shared,) = protocols.values()
    return shared
