"""shotfit plot"""

from pathlib import Path
from typing import Annotated

import typer

KINDS = ("ranking", "scatter")


def plot(
    kind: Annotated[
        str,
        typer.Argument(
            help="ranking: methods by harmonic mean or accuracy; scatter: base against novel."
        ),
    ],
    out: Annotated[Path, typer.Option(help="The figure: .png, .svg or .pdf.")],
    results: Annotated[Path, typer.Option(help="The folder of records.")] = Path("results"),
    where: Annotated[
        list[str] | None, typer.Option(help="Keep records with FACT=VALUE, such as M=300.")
    ] = None,
) -> None:
    """Draw a figure from records of the embedded suite, all of one protocol."""
    from shotfit.errors import DataError, UsageError, unknown_name
    from shotfit.records import load_records
    from shotfit.report.figures import comparison
    from shotfit.report.figures.canvas import save
    from shotfit.report.protocol import select_records
    from shotfit.report.suite import describe_protocol, protocol_groups, suite_runs

    if kind not in KINDS:
        raise unknown_name("figure", kind, KINDS)
    if not results.is_dir():
        raise DataError(f"There is no folder {results} with records; `shotfit bench` makes them.")
    groups = protocol_groups(suite_runs(select_records(load_records(results), where or [])))
    if not groups:
        raise DataError(f"{results} holds no finished record of the embedded suite.")
    if len(groups) > 1:
        found = "; ".join(describe_protocol(group) for group in groups)
        raise UsageError(f"These records are of several protocols ({found}): keep one, --where.")
    draw = comparison.ranking if kind == "ranking" else comparison.base_novel_scatter
    print(f"Wrote {save(draw(groups[0]), out)}")
