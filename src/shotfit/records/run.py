"""The record of a run: what it holds, and where it lies."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shotfit.config import to_dict
from shotfit.records.files import parse, read_values, spelled, write_text

KIND = "record of a run"
SCHEMA = 1
"""Version of the record's format; a record of another version is refused, not guessed at."""

_SETTINGS = ("base-to-novel", "all-to-all")
_PLAIN = re.compile(r"[^\w.]+")


@dataclass(frozen=True)
class Record:
    """What a run left: config, metrics in percent, loss curve, cost, environment."""

    id: str
    experiment: dict[str, Any]
    dataset: str
    status: str
    """"done", "interrupted" with what was there then, or "failed" with the traceback in `error`."""
    metrics: dict[str, float] = field(default_factory=dict)
    classes: list[list[str | int]] = field(default_factory=list)
    """[metric, class, images answered right, images] of the metrics among a split's own names;
    none in records from before this was noted."""
    curve: list[list[float]] = field(default_factory=list)
    """[stage, iteration, loss, learning rate], thinned to at most 200 points a stage."""
    trainable_parameters: list[int] = field(default_factory=list)
    """Per stage."""
    cost: dict[str, float] = field(default_factory=dict)
    """`seconds` of training, `processor_seconds` of it (summed over the processors: other work on
    the machine hardly adds to it), `evaluation_seconds`, `iterations`, `peak_memory_bytes`."""
    split_hash: str = ""
    """Of the names of its images, their labels and classes."""
    content: str = ""
    """Of what its images held; empty in records from before this was noted, and of a fit."""
    environment: dict[str, str] = field(default_factory=dict)
    error: str = ""
    schema: int = SCHEMA


def record_path(folder: Path, record: Record) -> Path:
    """Where a record lies: `base-to-novel/animals--2sfs-layernorm--4shots--seed1--<id>.json`.

    What people look for comes first, the identity last.
    """
    experiment = record.experiment
    stages = [stage["method"] for stage in experiment.get("recipe", {}).get("stages", ())]
    method = f"2sfs-{stages[0]}" if len(stages) == 2 else "-".join(stages)
    data = experiment.get("data", {})
    dataset = data.get("name") or Path(data.get("path", "")).stem or record.dataset
    shots = experiment.get("shots")
    words = (
        dataset,
        method,
        "all-images" if shots is None else f"{shots}shots",
        f"seed{experiment.get('seed')}",
        record.id,
    )
    name = "--".join(_PLAIN.sub("-", str(word)) for word in words if word)
    return folder / str(experiment.get("setting", "")).replace("_", "-") / f"{name}.json"


def record_files(folder: Path) -> dict[str, Path]:
    """The files of records in a folder by their ids: in the folders of the settings, and where
    earlier versions wrote `<id>.json`, in the folder itself."""
    found = [path for place in ("", *_SETTINGS) for path in (folder / place).glob("*.json")]
    return {path.stem.rpartition("--")[2]: path for path in sorted(found)}


def write_record(folder: Path, record: Record) -> Path:
    """Keeps a record in the place of one with its id; the file is there whole or not at all.

    Raises:
        DataError: when the folder cannot be written to.
    """
    path = record_files(folder).get(record.id) or record_path(folder, record)
    write_text(path, record_text(record))
    return path


def record_text(record: Record) -> str:
    """A record as JSON, a line for each point of its curve, without the last line break."""
    return spelled(to_dict(record), "curve", "classes")


def read_record(path: Path) -> Record:
    """The record in a file.

    Raises:
        DataError: naming the file, when it cannot be read, is damaged, or is of another version.
    """
    return parse(Record, read_values(path, KIND), path, KIND, SCHEMA)


def load_records(folder: Path) -> list[Record]:
    """Every record in a folder, in order of their ids; none when there is no such folder.

    Folders of other names beside those of the settings may hold anything.

    Raises:
        DataError: as `read_record`, for the first file that is at fault. No file is changed.
    """
    return [read_record(path) for _, path in sorted(record_files(folder).items())]
