"""A file of predictions that grows row by row, survives an interruption, and appears whole.

Rows go to `FILE.partial` as JSON lines; `FILE.partial.json` says what they are the answers to, so
that the same command goes on after the last of them and another one does not. Whoever writes holds
a lock on it, which ends with the process, however that ends.
"""

import contextlib
import importlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import IO, Any

from shotfit.apps.predict.table_file import SEPARATORS, Row, escaped, write_table
from shotfit.data.images import HashedFile
from shotfit.errors import DataError, UsageError
from shotfit.system.files import check_new, replacing, write_atomically
from shotfit.system.locks import WriterLock
from shotfit.system.parsing import parse_json

JSON_LINES = (".jsonl", ".ndjson", ".json")
# Rows of a Parquet row group, which are in memory at a time.
GROUP = 10_000
# Images that are read again at a time when a command goes on.
WINDOW, THREADS = 256, 4


class PredictionFile:
    """The rows of one command on their way into `path`: JSON lines or, by its suffix, CSV, values
    between tabs, or Parquet."""

    def __init__(self, path: Path, question: Mapping[str, Any], *, overwrite: bool = True) -> None:
        """Resumes from the rows that an interrupted command with the same question left.

        Raises:
            UsageError: for Parquet without pyarrow, and a suffix of another kind of file.
            DataError: when the file is there, unless `overwrite`, the rows belong to another
                question, another process is writing them, or nothing can be written.
        """
        self.path = path
        self.partial = path.with_name(path.name + ".partial")
        self.note = path.with_name(path.name + ".partial.json")
        self._question = question
        self.rows = 0
        """The number of rows so far."""
        self._suffix = path.suffix.lower()
        self.parquet = self._suffix == ".parquet"
        if self._suffix not in ("", ".parquet", *SEPARATORS, *JSON_LINES):
            known = ", ".join((*SEPARATORS, JSON_LINES[0], ".parquet"))
            raise UsageError(f"--out writes {known}, by the end of its name; got {path.name}.")
        if self.parquet:
            _pyarrow()
        if path.is_dir():
            raise DataError(f"{path} is a folder; --out takes the name of a file.")
        check_new(path, overwrite=overwrite)
        with contextlib.ExitStack() as opened:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._lock = _lock(self.partial)
                opened.callback(self._lock.release)
                self._file = opened.enter_context(self.partial.open("a+b"))
                self._take_up(question)
            except OSError as error:
                raise DataError(f"Cannot write {self.partial}: {error}") from error
            self._opened = opened.pop_all()

    def __enter__(self) -> "PredictionFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def write(self, rows: Iterable[Row]) -> None:
        """Appends rows; from here on an interruption keeps them."""
        for row in rows:
            self._file.write(_line(row))
            self.rows += 1
        self._file.flush()

    def read(self) -> Iterator[Row]:
        """The rows so far, from the first one; the next is written behind them."""
        self._file.seek(0)
        yield from map(json.loads, self._file)

    def keep_unchanged(self, images: Iterator[str], batch_size: int) -> str | None:
        """Keeps the whole batches of rows before the first one whose image has other content by
        now; the image, or None where there is none.

        `images` are all images, in the order of the rows. Batches stay the same ones, since the
        last digit of an answer may depend on the others in its batch.
        """
        count = end = 0
        kept = 0, 0
        changed = None
        self._file.seek(0)
        with ThreadPoolExecutor(THREADS, "shotfit-contents") as threads:
            while changed is None and (lines := list(islice(self._file, WINDOW))):
                named = list(islice(images, len(lines)))
                for line, name, content in zip(
                    lines, named, threads.map(_content, named), strict=False
                ):
                    if _noted_content(line) != content:
                        changed = name
                        break
                    count, end = count + 1, end + len(line)
                    kept = (count, end) if count % batch_size == 0 else kept
        self.rows, end = kept
        self._file.truncate(end)
        self._file.seek(0, os.SEEK_END)
        return changed

    def finish(self) -> None:
        """Turns the rows into the file.

        Raises:
            OSError: when it cannot be written; the rows are kept.
        """
        with replacing(self.path) as made:
            if self.parquet:
                _write_parquet(made, self._answers(), self._question)
            elif self._suffix in SEPARATORS:
                write_table(made, self._answers, SEPARATORS[self._suffix])
            else:
                with made.open("wb") as file:
                    file.writelines(map(_line, self._answers()))
        self._file.close()
        self.partial.unlink(missing_ok=True)
        self.note.unlink(missing_ok=True)
        self._opened.close()

    def _answers(self) -> Iterator[Row]:
        """The rows as they are asked for, without what tells images apart."""
        for row in self.read():
            yield {key: value for key, value in row.items() if key != "content"}

    def _take_up(self, question: Mapping[str, Any]) -> None:
        if self._file.seek(0, os.SEEK_END):
            self._check(question)
            self.rows = _whole_rows(self._file)
        else:
            text = json.dumps(question, indent=1, ensure_ascii=False) + "\n"
            write_atomically(self.note, text)

    def _check(self, question: Mapping[str, Any]) -> None:
        try:
            known = dict(parse_json(self.note.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            known = {}
        differs = [key for key, value in question.items() if known.get(key) != value]
        if differs:
            raise DataError(
                f"{self.partial} holds the rows of an interrupted command with other "
                f"{', '.join(differs)}. Give another --out, or delete it to start anew."
            )
        # Some network file systems have no locks: there it goes on without.


def _lock(partial: Path) -> WriterLock:
    try:
        return WriterLock(partial)
    except DataError as error:
        raise DataError(f"{error} Wait for it, or give another --out.") from None


def _line(row: Row) -> bytes:
    # Where a name is not valid Unicode, backslashreplace writes what is JSON's own escape.
    return (json.dumps(row, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")


def _noted_content(line: bytes) -> str | None:
    try:
        return parse_json(line).get("content")
    except (ValueError, AttributeError):  # no row: somebody else wrote it
        return None


def _content(name: str) -> str:
    file = HashedFile(name)
    with contextlib.suppress(OSError, ValueError):
        file.read()
    return file.content


def _whole_rows(file: IO[bytes]) -> int:
    """The number of complete lines; what a killed process has written of one more is cut off."""
    count = end = 0
    file.seek(0)
    for line in file:
        if not line.endswith(b"\n"):
            file.truncate(end)
            break
        count += 1
        end += len(line)
    file.seek(0, os.SEEK_END)
    return count


def _write_parquet(path: Path, rows: Iterator[Row], question: Mapping[str, Any]) -> None:
    arrow, parquet = _pyarrow()
    answer = arrow.struct([("class", arrow.string()), ("probability", arrow.float64())])
    columns = {
        "image": arrow.string(),
        "class": arrow.string(),
        "probability": arrow.float64(),
        "answers": arrow.list_(answer),
        "error": arrow.string(),
    }
    if question.get("reject") is not None:
        columns["refused"] = arrow.bool_()
    if question.get("sets") is not None:
        columns["set"] = arrow.list_(arrow.string())
    schema = arrow.schema(list(columns.items()))
    with parquet.ParquetWriter(path, schema) as writer:
        while group := list(islice(rows, GROUP)):
            printable = [
                {key: escaped(item) if isinstance(item, str) else item for key, item in row.items()}
                for row in group
            ]
            writer.write_table(arrow.Table.from_pylist(printable, schema=schema))


def _pyarrow() -> tuple[Any, Any]:
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise UsageError(
            "Writing Parquet needs pyarrow: pip install 'shotfit[datasets]'; or give --out a "
            "name that ends in .jsonl."
        ) from None
