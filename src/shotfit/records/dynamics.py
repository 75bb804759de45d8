"""The record of a curve: base and novel accuracy along training."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shotfit.errors import DataError
from shotfit.records.files import parse, read_values, spelled, write_text

KIND = "learning dynamics"
SCHEMA = 1


@dataclass(frozen=True)
class DynamicsPoint:
    """Held-out accuracies in percent after so many iterations, each among its own classes.

    `loss` is the mean training loss since the last point, None at iteration 0, which is zero-shot
    CLIP.
    """

    iteration: int
    base: float
    novel: float
    loss: float | None = None


@dataclass(frozen=True)
class LearningDynamics:
    """The record of one curve: its experiment, its points, what it cost and where it ran."""

    id: str
    experiment: dict[str, Any]
    dataset: str
    method: str
    seed: int
    every: int
    points: tuple[DynamicsPoint, ...]
    split_hash: str = ""
    content: str = ""
    """Of what its images held, as in `Record`."""
    cost: dict[str, float] = field(default_factory=dict)
    """`seconds` in all, `evaluation_seconds` of them for looking."""
    environment: dict[str, str] = field(default_factory=dict)
    schema: int = SCHEMA


def write_dynamics(path: Path, record: LearningDynamics) -> None:
    """Keeps a curve, one line a point.

    Raises:
        DataError: when it cannot be written.
    """
    points = [dataclasses.astuple(point) for point in record.points]
    write_text(path, spelled({**dataclasses.asdict(record), "points": points}, "points"))


def read_dynamics(path: Path) -> LearningDynamics:
    """The curve that a file holds.

    Raises:
        DataError: when it cannot be read, is damaged, or was written by another version.
    """
    values = read_values(path, KIND)
    try:
        names = [part.name for part in dataclasses.fields(DynamicsPoint)]
        points = [dict(zip(names, point, strict=False)) for point in values.get("points", ())]
    except TypeError as error:
        raise DataError(f"The {KIND} in {path} are damaged: {error}") from error
    return parse(LearningDynamics, {**values, "points": points}, path, KIND, SCHEMA)
