"""Progress of a fit: a bar on a terminal, a plain line now and then elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from shotfit.adaptation import Observe
from shotfit.methods.base import Method
from shotfit.training.loop import TrainStep

# Without a terminal: a line at most this often, in seconds.
PLAIN_INTERVAL = 10.0


@contextmanager
def fit_progress(stages: list[str], *, quiet: bool = False) -> Iterator[Observe | None]:
    """An observer for `adapt` that shows loss, batch accuracy and time left on standard error."""
    if quiet:
        yield None
    elif Console(stderr=True).is_terminal:
        with _bars() as bars:
            yield _BarObserver(bars, stages)
    else:
        yield _PlainObserver(stages)


def _bars() -> Progress:
    return Progress(
        TextColumn("{task.description:<22}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:6.3f}  accuracy {task.fields[accuracy]:5.1f} %"),
        TimeRemainingColumn(compact=True),
        console=Console(stderr=True),
        refresh_per_second=5,
    )


class _BarObserver:
    """One bar a stage; loss and accuracy are smoothed so that they can be read."""

    def __init__(self, bars: Progress, stages: list[str]) -> None:
        self.bars = bars
        self.stages = stages
        self.tasks: dict[int, int] = {}
        self.loss = self.accuracy = 0.0

    def __call__(self, method: Method, stage: int, step: TrainStep) -> None:
        fresh = stage not in self.tasks or step.iteration == 1
        keep = 0.0 if fresh else 0.95
        self.loss = keep * self.loss + (1 - keep) * step.loss
        self.accuracy = keep * self.accuracy + (1 - keep) * step.accuracy
        if stage not in self.tasks:
            name = f"stage {stage + 1}: {self.stages[stage]}"
            self.tasks[stage] = self.bars.add_task(name, total=step.total, loss=0.0, accuracy=0.0)
        self.bars.update(
            self.tasks[stage],  # type: ignore[arg-type]
            completed=step.iteration,
            total=step.total,
            loss=self.loss,
            accuracy=self.accuracy,
        )


class _PlainObserver:
    """A line at the start and end of each stage, and every few seconds between."""

    def __init__(self, stages: list[str]) -> None:
        self.stages = stages
        self.last = 0.0
        self.started = time.monotonic()

    def __call__(self, method: Method, stage: int, step: TrainStep) -> None:
        now = time.monotonic()
        if step.iteration == 1:
            self.started = now
        if step.iteration not in (1, step.total) and now - self.last < PLAIN_INTERVAL:
            return
        self.last = now
        left = (now - self.started) / step.iteration * (step.total - step.iteration)
        print(
            f"stage {stage + 1} ({self.stages[stage]}) {step.iteration}/{step.total}: "
            f"loss {step.loss:.3f}, batch accuracy {step.accuracy:.1f} %, {left:.0f} s left",
            file=sys.stderr,
            flush=True,
        )
