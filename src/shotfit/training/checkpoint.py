"""Checkpoints of a fit: one file, from which it goes on to the same bits.

Safetensors with JSON among its metadata: nothing in it is run. It is written beside the one before
and takes its place whole, so that whatever ends a fit leaves a checkpoint that can be used.
"""

import contextlib
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import safetensors.torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from shotfit.errors import DataError
from shotfit.methods.base import Method
from shotfit.methods.linear import LinearClassifier
from shotfit.system.files import remove_unfinished, write_bytes_atomically
from shotfit.system.parsing import parse_json
from shotfit.training.state import METHOD, TrainState, part

FILE = "checkpoint.safetensors"
FORMAT = 1
EVERY = 60.0
"""Seconds between two checkpoints, unless another time is asked for."""
FEATURES = "features"


class Notes(Protocol):
    """What goes along with a fit and is to be found again by one that goes on: its record."""

    def plain(self) -> Any:
        """JSON-ready values."""
        ...

    def load(self, values: Any) -> None:
        """Takes up what `plain` gave."""
        ...


@dataclass(frozen=True)
class Place:
    """The round of training that a fit is in, and how it came there."""

    stage: int
    round: int
    stream: tuple[Any, ...]
    """The support set's random stream when the round began: order and crops are drawn anew."""
    fraction: float
    """The share of the first stage that "auto" has decided; 0 where it had not to."""


@dataclass(frozen=True)
class Checkpoint:
    """A fit between two of its updates."""

    identity: dict[str, Any]
    """What it is a fit of; values that are compared, by names that people know."""
    place: Place
    state: TrainState
    features: Tensor | None
    """Cached views of the second stage."""
    notes: dict[str, Any]

    @property
    def first_stage(self) -> dict[str, Tensor]:
        """The learned tensors of a first stage that has ended."""
        return part(self.state.tensors, f"{METHOD}inner.")


class Checkpoints:
    """Where a fit keeps its checkpoint, when it writes one, and what it found there."""

    def __init__(
        self,
        folder: Path,
        *,
        resume: bool = False,
        lenient: bool = False,
        every: float = EVERY,
        terminated: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """With `resume`, the fit goes on from the checkpoint in `folder`; `lenient` takes none, or
        that of another fit, for a fit from the start. `terminated` is asked after every update
        whether this process must end.

        Raises:
            DataError: when there is none to resume, or it cannot be read.
        """
        self.path = folder / FILE
        self.found: Checkpoint | None = None
        self.kept: int | None = None
        """The updates of its round that the last checkpoint written has behind it."""
        self.terminated = terminated
        self.identity: dict[str, Any] = {}
        self._lenient = lenient
        self._every, self._clock = every, clock
        self._last = clock()
        self._notes: dict[str, Notes] = {}
        if resume:
            with contextlib.suppress(DataError) if lenient else contextlib.nullcontext():
                self.found = read_checkpoint(self.path)

    def identify(self, **facts: Any) -> None:
        """Says what this is a fit of; the checkpoint that was found must be of the same.

        Raises:
            DataError: saying what differs.
        """
        plain = json.loads(json.dumps(facts))
        self.identity.update(plain)
        if self.found is None:
            return
        there = {name: self.found.identity.get(name) for name in plain}
        differences = _differences("", there, plain)
        if differences and self._lenient:
            self.found = None
        elif differences:
            raise DataError(
                f"{self.path} is the checkpoint of another fit and cannot be resumed here: "
                f"{', '.join(differences)}. Give what it was made with, or fit without resuming."
            )

    def begin(self) -> Checkpoint | None:
        """The checkpoint to go on from; the notes get what was found under their names."""
        for name, notes in self._notes.items():
            if self.found is not None and name in self.found.notes:
                notes.load(self.found.notes[name])
        self._last = self._clock()
        self.kept = None if self.found is None else self.found.state.iteration
        return self.found

    def keep(self, name: str, notes: Notes) -> None:
        """Writes these notes along with every checkpoint."""
        self._notes[name] = notes

    def due(self) -> bool:
        """Whether it is time for a checkpoint."""
        return self.terminated() or self._clock() - self._last >= self._every

    def write(self, method: Method, place: Place, state: TrainState) -> None:
        """Writes a checkpoint in the place of the one before. A disk that is full costs it and not
        the fit."""
        features = method.features if isinstance(method, LinearClassifier) else None
        tensors = dict(state.tensors)
        if features is not None:
            tensors[FEATURES] = features.detach().cpu().contiguous()
        values = {
            "format": FORMAT,
            "identity": self.identity,
            "place": asdict(place),
            "iteration": state.iteration,
            "taken": state.taken,
            "scaler": state.scaler,
            "notes": {name: notes.plain() for name, notes in self._notes.items()},
        }
        content = safetensors.torch.save(tensors, {"shotfit": json.dumps(values)})
        try:
            write_bytes_atomically(self.path, content)
            self.kept = state.iteration
        except OSError as error:
            warnings.warn(f"No checkpoint could be written to {self.path}: {error}.", stacklevel=2)
        self._last = self._clock()

    def remove(self) -> None:
        """Removes the checkpoint of a fit that has ended, and its folder if it is empty then."""
        remove_unfinished(self.path)
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)
            self.path.parent.rmdir()


def checkpoint_folder(out: Path) -> Path:
    """Where the checkpoint of a fit lies that is saved in `out`: beside it."""
    return out.with_name(f"{out.name}.checkpoint")


def read_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint in a file.

    Raises:
        DataError: when there is none, or it cannot be read.
    """
    if not path.is_file():
        raise DataError(
            f"There is no checkpoint {path}: the fit has ended, or ended before its first one."
        )
    try:
        with safe_open(path, "pt") as file:
            values = parse_json((file.metadata() or {}).get("shotfit", ""))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if values["format"] != FORMAT:
            raise ValueError(f"it has format {values['format']}, this version reads {FORMAT}")
        place = values["place"]
        version, numbers, gauss = place.pop("stream")
        features = tensors.pop(FEATURES, None)
        state = TrainState(values["iteration"], values["taken"], values["scaler"], tensors)
        return Checkpoint(
            values["identity"],
            Place(stream=(version, tuple(numbers), gauss), **place),
            state,
            features,
            values["notes"],
        )
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"The checkpoint {path} cannot be read: {error}.") from error


def _differences(name: str, then: Any, now: Any) -> list[str]:
    """What differs between two values, by name, the values inside of mappings and lists apart."""
    if then == now:
        return []
    if isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        then, now = dict(enumerate(then, 1)), dict(enumerate(now, 1))
    if isinstance(then, dict) and isinstance(now, dict):
        keys = [key for key in dict.fromkeys((*then, *now)) if then.get(key) != now.get(key)]
        found = [_differences(f"{name} {key}", then.get(key), now.get(key)) for key in keys]
        return [each for some in found for each in some]
    return [f"{name.strip()} was {then} and is {now}"]
