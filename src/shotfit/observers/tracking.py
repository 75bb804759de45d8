"""What a run shows an experiment tracker: its curves, its config, and what it was worth.

Nothing is tracked unless it is asked for, and nothing leaves the machine unless the tracker's own
settings say so: Weights & Biases runs offline without WANDB_MODE, and MLflow and Trackio write into
the folder without MLFLOW_TRACKING_URI and TRACKIO_SERVER_URL or TRACKIO_SPACE_ID.
"""

import importlib
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shotfit.errors import UsageError
from shotfit.methods.base import Method
from shotfit.observers.trackers import WRITERS, TrackerName, Writer
from shotfit.training.loop import TrainStep

POINTS = 200
"""A stage has at most about so many points, as in a record."""


SETTINGS = {"WANDB_ERROR_REPORTING": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
"""What keeps their packages from reporting home, read when they are imported."""


class Tracker:
    """An observer for `fit`, `run` and `adapt` that hands on what it sees.

    The tracker's run begins with the first of it. What cannot be written after that is told once,
    as a warning, and costs the run nothing but what is tracked of it.
    """

    def __init__(self, name: TrackerName, begin: Callable[[], Writer]) -> None:
        self.name = name
        self._begin: Callable[[], Writer] | None = begin
        self._writer: Writer | None = None

    def __call__(self, method: Method, stage: int, step: TrainStep) -> None:
        """Loss, batch accuracy (percent) and learning rate of an update, under its stage."""
        every = max(1, step.total // POINTS)
        if step.iteration == 1 or step.iteration % every == 0 or step.iteration == step.total:
            place = f"{stage + 1}-{type(method).__name__}"
            values = {"loss": step.loss, "accuracy": step.accuracy, "lr": step.lr}
            self._scalars(
                {f"{place}/{key}": value for key, value in values.items()}, step.iteration
            )

    def config(self, values: Mapping[str, Any]) -> None:
        """What decides a run, as nested plain values, such as those of a record's experiment.

        Raises:
            UsageError: when the tracker cannot begin a run.
        """
        with self._writing() as writer:
            if writer is not None:
                writer.config(dict(_flat(values)))

    def metrics(self, values: Mapping[str, float]) -> None:
        """Numbers of the whole run, such as a classifier's `metrics`."""
        self._scalars({f"metrics/{key}": value for key, value in values.items()}, 0)

    def close(self, *, failed: bool = False) -> None:
        """Ends the run, if it has begun; what comes after is not tracked."""
        self._begin = None
        with self._writing() as writer:
            if writer is not None:
                writer.close(failed=failed)
        self._writer = None

    def _scalars(self, values: Mapping[str, float], step: int) -> None:
        with self._writing() as writer:
            if writer is not None:
                writer.scalars(values, step)

    @contextmanager
    def _writing(self) -> Iterator[Writer | None]:
        begin, self._begin = self._begin, None
        if begin is not None:
            try:
                self._writer = begin()
            except Exception as error:
                raise UsageError(f"{self.name} cannot begin a run: {error}") from error
        try:
            yield self._writer
        except Exception as error:
            self._writer = None
            warnings.warn(f"{self.name} gets nothing more of this run: {error}", stacklevel=4)


@contextmanager
def observe(
    tracker: TrackerName, *, folder: str | Path = "runs", name: str | None = None
) -> Iterator[Tracker]:
    """A run of a tracker, which ends with the block: give it to `fit` as `observe`.

    `folder` is where it is written; `name` is what the run is called, its time by default.

    Raises:
        UsageError: for an unknown tracker, and for one whose package is not installed.
    """
    if tracker not in WRITERS:
        raise UsageError(f"There is no tracker {tracker!r}; there are {', '.join(WRITERS)}.")
    place, title = Path(folder).expanduser(), name or time.strftime("%Y-%m-%d-%H%M%S")
    for variable, value in SETTINGS.items():
        os.environ.setdefault(variable, value)
    os.environ.setdefault("TRACKIO_DIR", str((place / "trackio").resolve()))
    try:
        importlib.import_module(tracker)
    except ImportError as error:
        raise UsageError(
            f"{tracker} needs its package: pip install 'shotfit[{tracker}]' ({error})."
        ) from error
    run = Tracker(tracker, lambda: WRITERS[tracker](place, title))
    try:
        yield run
    except BaseException:
        run.close(failed=True)
        raise
    run.close()


def _flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Nested plain values by dotted names; lists by their places, counted from 1."""
    for key, value in values.items():
        name = f"{above}{key}"
        if isinstance(value, Mapping):
            yield from _flat(value, f"{name}.")
        elif isinstance(value, list | tuple):
            yield from _flat({str(n): item for n, item in enumerate(value, start=1)}, f"{name}.")
        else:
            yield name, value if isinstance(value, str | int | float | bool) else str(value)
