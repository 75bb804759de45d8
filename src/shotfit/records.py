"""Records of runs: what one holds, and how it is kept as one JSON file per run.

Needs no torch, so that tables and figures are made wherever the files are.
"""

import dataclasses
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shotfit.config import from_dict, to_dict
from shotfit.errors import DataError, UsageError

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
    # Beside its target, since only within one file system is replacing atomic.
    draft = folder / f".{record.id}.{os.getpid()}.tmp"
    text = json.dumps(to_dict(record), indent=1, ensure_ascii=False) + "\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with draft.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise DataError(f"Cannot write the record {path}: {error}") from error
    return path


def read_record(path: Path) -> Record:
    """The record in a file.

    Raises:
        DataError: naming the file, when it cannot be read, is damaged, or is of another version.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(
            f"The record {path} cannot be read ({error}). Move it away, and its run is made again."
        ) from error
    if not isinstance(values, dict) or "schema" not in values:
        raise DataError(f"{path} is no record of a run. Keep other files out of the folder.")
    if values["schema"] != SCHEMA:
        raise DataError(
            f"The record {path} is of format {values['schema']}; this version of ShotFit reads "
            f"format {SCHEMA}. Use another folder, or the version that wrote it."
        )
    missing = [
        part.name
        for part in dataclasses.fields(Record)
        if part.default is dataclasses.MISSING
        and part.default_factory is dataclasses.MISSING
        and part.name not in values
    ]
    if missing:
        raise DataError(f"The record {path} lacks {', '.join(missing)}. Move it away.")
    try:
        return from_dict(Record, values)
    except UsageError as error:
        raise DataError(f"The record {path} is damaged: {error}") from error


def load_records(folder: Path) -> list[Record]:
    """Every record in a folder, in order of their ids; none when there is no such folder.

    Raises:
        DataError: as `read_record`, for the first file that is at fault. No file is changed.
    """
    return [read_record(path) for path in sorted(folder.glob("*.json"))]
