"""Tables of a benchmark in a page of the documentation, between two marks."""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def run_or_write(
    parser: argparse.ArgumentParser,
    arguments: Sequence[str] | None,
    run_missing: Callable[[argparse.Namespace], None],
    mark: str,
    table: Callable[[Sequence[dict[str, Any]]], str],
) -> None:
    """What a study does: makes the records that are missing; with `--write`, puts the table of
    those in `--results` into a page. Both options are the parser's."""
    options = parser.parse_args(arguments)
    if options.write is None:
        run_missing(options)
        return
    records = [json.loads(path.read_text()) for path in sorted(options.results.glob("*.json"))]
    if not records:
        parser.error(f"no records in {options.results}; run the study without --write first")
    put(options.write, mark, table(records))


def put(page: Path, mark: str, text: str) -> None:
    """Replaces what stands between `<!-- mark -->` and `<!-- /mark -->`.

    Raises:
        ValueError: when the page has no such marks; it is left as it is.
    """
    start, end = f"<!-- {mark} -->", f"<!-- /{mark} -->"
    before, found, rest = page.read_text(encoding="utf-8").partition(start)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{page} lacks the marks {start} and {end}")
    page.write_text(f"{before}{start}\n\n{text}\n\n{end}{after}", encoding="utf-8")
