"""The record of a run: what it holds, and where it lies."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shotfit.config import to_dict
from shotfit.records.files import parse, read_values, write_text

KIND = "record of a run"
SCHEMA = 1
"""Version of the record's format; a record of another version is refused, not guessed at."""


@dataclass(frozen=True)
class Record:
    """What a run left: config, metrics in percent, loss curve, cost, environment."""

    id: str
    experiment: dict[str, Any]
    dataset: str
    status: str
    """"done", or "failed" with the traceback in `error`."""
    metrics: dict[str, float] = field(default_factory=dict)
    curve: list[list[float]] = field(default_factory=list)
    """[stage, iteration, loss, learning rate], thinned to at most 200 points a stage."""
    trainable_parameters: list[int] = field(default_factory=list)
    """Per stage."""
    cost: dict[str, float] = field(default_factory=dict)
    """`seconds` of training, `processor_seconds` of it (summed over the processors: other work on
    the machine hardly adds to it), `evaluation_seconds`, `iterations`, `peak_memory_bytes`."""
    split_hash: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    error: str = ""
    schema: int = SCHEMA


def record_path(folder: Path, run_id: str) -> Path:
    """Where the record of a run lies."""
    return folder / f"{run_id}.json"


def write_record(folder: Path, record: Record) -> Path:
    """Keeps a record as `<id>.json`; the file is there whole or not at all.

    Raises:
        DataError: when the folder cannot be written to.
    """
    path = record_path(folder, record.id)
    write_text(path, record_text(record))
    return path


def record_text(record: Record) -> str:
    """A record as JSON, without the last line break."""
    return json.dumps(to_dict(record), indent=1, ensure_ascii=False)


def read_record(path: Path) -> Record:
    """The record in a file.

    Raises:
        DataError: naming the file, when it cannot be read, is damaged, or is of another version.
    """
    return parse(Record, read_values(path, KIND), path, KIND, SCHEMA)


def load_records(folder: Path) -> list[Record]:
    """Every record in a folder, in order of their ids; none when there is no such folder.

    Raises:
        DataError: as `read_record`, for the first file that is at fault. No file is changed.
    """
    return [read_record(path) for path in sorted(folder.glob("*.json"))]
