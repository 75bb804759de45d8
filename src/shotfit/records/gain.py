"""The record of a two-stage run that was measured twice."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

from shotfit.errors import DataError
from shotfit.records.files import parse, read_values, write_text
from shotfit.records.run import SCHEMA, Record

KIND = "gain of a second stage"


@dataclass(frozen=True)
class Gain:
    """A two-stage run measured twice: where its first stage ended, and at its end."""

    record: Record
    after_first: dict[str, float]


def write_gain(path: Path, gain: Gain) -> None:
    """Keeps a gain in one line.

    Raises:
        DataError: when it cannot be written.
    """
    write_text(path, json.dumps(dataclasses.asdict(gain), ensure_ascii=False))


def read_gain(path: Path) -> Gain:
    """The gain that a file holds.

    Raises:
        DataError: when it cannot be read, is damaged, or was written by another version.
    """
    values = read_values(path, KIND)
    if not isinstance(values.get("record"), dict):
        raise DataError(f"{path} holds no {KIND}. Keep other files out of the folder.")
    record = parse(Record, values["record"], path, KIND, SCHEMA)
    return Gain(record, values.get("after_first", {}))
