"""A file of predictions that grows row by row, survives an interruption, and appears whole.

Rows go to `FILE.partial` as JSON lines; `FILE.partial.json` says what they are the answers to, so
that the same command goes on after the last of them and another one does not.
"""

import importlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from shotfit.errors import DataError, UsageError
from shotfit.keep import write_atomically

Row = Mapping[str, Any]
# Rows of a Parquet row group, which are in memory at a time.
GROUP = 10_000


class PredictionFile:
    """The rows of one command on their way into `path`: JSON lines or, by its suffix, Parquet."""

    def __init__(self, path: Path, question: Mapping[str, Any]) -> None:
        """Takes up the rows that an interrupted command with the same question has left.

        Raises:
            UsageError: for Parquet without pyarrow.
            DataError: when the rows belong to another question, or nothing can be written.
        """
        self.path = path
        self.partial = path.with_name(path.name + ".partial")
        self.note = path.with_name(path.name + ".partial.json")
        self.rows = 0
        """Rows that are there."""
        if path.suffix == ".parquet":
            _pyarrow()
        try:
            if self.partial.exists():
                self._check(question)
                self.rows = _whole_rows(self.partial)
            else:
                text = json.dumps(question, indent=1, ensure_ascii=False) + "\n"
                write_atomically(self.note, text)
            # Where a name is no Unicode, backslashreplace writes what is JSON's own escape.
            self._file = self.partial.open("a", encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise DataError(f"Cannot write {self.partial}: {error}") from error

    def __enter__(self) -> "PredictionFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, rows: Iterable[Row]) -> None:
        """Appends rows; from here on an interruption keeps them."""
        for row in rows:
            self._file.write(json.dumps(row, ensure_ascii=False) + "\n")
            self.rows += 1
        self._file.flush()

    def finish(self) -> None:
        """Turns the rows into the file."""
        self._file.close()
        if self.path.suffix == ".parquet":
            made = self.path.with_name(self.path.name + ".tmp")
            _write_parquet(made, _read(self.partial))
            os.replace(made, self.path)
            self.partial.unlink()
        else:
            os.replace(self.partial, self.path)
        self.note.unlink(missing_ok=True)

    def _check(self, question: Mapping[str, Any]) -> None:
        try:
            known = json.loads(self.note.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            known = {}
        differs = [key for key, value in question.items() if known.get(key) != value]
        if differs:
            raise DataError(
                f"{self.partial} holds the rows of an interrupted command with other "
                f"{', '.join(differs)}. Give another --out, or delete it to start anew."
            )


def _whole_rows(path: Path) -> int:
    """The number of complete lines; what a killed process has written of one more is cut off."""
    count = end = 0
    with path.open("r+b") as file:
        for line in file:
            if not line.endswith(b"\n"):
                file.truncate(end)
                break
            count += 1
            end += len(line)
    return count


def _read(path: Path) -> Iterator[Row]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def _write_parquet(path: Path, rows: Iterator[Row]) -> None:
    arrow, parquet = _pyarrow()
    answer = arrow.struct([("class", arrow.string()), ("probability", arrow.float64())])
    schema = arrow.schema(
        [("image", arrow.string()), ("answers", arrow.list_(answer)), ("error", arrow.string())]
    )
    with parquet.ParquetWriter(path, schema) as writer:
        while group := list(islice(rows, GROUP)):
            printable = [
                {key: escaped(item) if isinstance(item, str) else item for key, item in row.items()}
                for row in group
            ]
            writer.write_table(arrow.Table.from_pylist(printable, schema=schema))


def escaped(text: str) -> str:
    """`text` with the bytes of a file's name that are no Unicode as in "\\udce9", which is also
    JSON's own escape: nothing is lost, and everything can be printed."""
    return text.encode("utf-8", "backslashreplace").decode()


def _pyarrow() -> tuple[Any, Any]:
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise UsageError(
            "Writing Parquet needs pyarrow: pip install 'shotfit[datasets]'; or give --out a "
            "name that ends in .jsonl."
        ) from None
