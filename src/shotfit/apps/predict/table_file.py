"""Predictions as a table: a row an image, or with several answers a row an answer."""

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]
"""An image with its answers, or with the error that there is in their place."""
FIRST = ("image", "class", "probability")
SEPARATORS = {".csv": ",", ".tsv": "\t"}


def write_table(path: Path, rows: Callable[[], Iterable[Row]], separator: str) -> None:
    """Writes image, class and probability, the rank where images have several answers, and what
    else a row has. `rows` gives them from the first one, as often as it is asked."""
    ranked, more = False, {}
    for row in rows():
        ranked = ranked or len(row.get("answers", ())) > 1
        more.update(dict.fromkeys(key for key in row if key not in (*FIRST, "answers")))
    columns = [*FIRST, *(["rank"] if ranked else []), *more]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, delimiter=separator, lineterminator="\n")
        writer.writeheader()
        for row in rows():
            for line in _lines(row, ranked):
                writer.writerow({key: _text(value) for key, value in line.items()})


def _lines(row: Row, ranked: bool) -> Iterator[dict[str, Any]]:
    facts = {key: value for key, value in row.items() if key != "answers"}
    answers = row.get("answers", ())
    for rank, answer in enumerate(answers, start=1):
        yield {**facts, **answer, **({"rank": rank} if ranked else {})}
    if not answers:
        yield facts


def _text(value: Any) -> Any:
    if isinstance(value, list):
        return "; ".join(map(str, value))
    return escaped(value) if isinstance(value, str) else value


def escaped(text: str) -> str:
    """`text` with the bytes of a file's name that are not valid Unicode written as in "\\udce9",
    which is also JSON's own escape: nothing is lost, and everything can be printed."""
    return text.encode("utf-8", "backslashreplace").decode()
