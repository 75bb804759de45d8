"""Progress of a fit: bars on a terminal and in a notebook, a plain line now and then elsewhere."""

import importlib.util
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from shotfit.methods.base import Method
from shotfit.training.loop import TrainStep

# Without a terminal: a line at most this often, in seconds.
PLAIN_INTERVAL = 10.0


class FitProgress(Protocol):
    """What shows a fit: its phases before training, and its updates."""

    def announce(self, phase: str, done: int, total: int) -> None:
        """Shows a phase, and how much of it is done; a total of 0 is not known."""
        ...

    def observe(self, method: Method, stage: int, step: TrainStep) -> None:
        """Shows an update."""
        ...


@contextmanager
def fit_progress(stages: list[str], *, quiet: bool = False) -> Iterator[FitProgress]:
    """Shows phases, and loss, batch accuracy and time left of the stages, on standard error."""
    console = Console(stderr=True)
    if quiet:
        yield _Silence()
    elif console.is_terminal or _has_widgets(console):
        with _bars(console) as bars:
            yield _Bars(bars, stages)
    else:
        yield _Lines(stages)


def show_plan(plan: object) -> None:
    """Shows what a fit will do and how long that should take, before it starts."""
    print(f"Plan: {plan}", file=sys.stderr, flush=True)


def show_note(note: str | None) -> None:
    """Shows what a person should know before a fit, if there is anything."""
    if note is not None:
        print(f"Note: {note}", file=sys.stderr, flush=True)


def _has_widgets(console: Console) -> bool:
    """Whether this is a notebook that can show a bar that moves."""
    return console.is_jupyter and importlib.util.find_spec("ipywidgets") is not None


def _bars(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description:<22}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TextColumn("{task.fields[words]}"),
        TimeRemainingColumn(compact=True),
        console=console,
        refresh_per_second=5,
    )


class _Silence:
    def announce(self, phase: str, done: int, total: int) -> None:
        pass

    def observe(self, method: Method, stage: int, step: TrainStep) -> None:
        pass


class _Bars:
    """One bar a phase or stage; loss and accuracy are smoothed so that they can be read."""

    def __init__(self, bars: Progress, stages: list[str]) -> None:
        self.bars = bars
        self.stages = stages
        self.phase: str | None = None
        self.task = bars.add_task("starting", total=None, words="")
        self.loss = self.accuracy = 0.0

    def announce(self, phase: str, done: int, total: int) -> None:
        self._turn_to(phase, total or None)
        self.bars.update(self.task, completed=done)

    def observe(self, method: Method, stage: int, step: TrainStep) -> None:
        fresh = self._turn_to(f"stage {stage + 1}: {self.stages[stage]}", step.total)
        keep = 0.0 if fresh or step.iteration == 1 else 0.95
        self.loss = keep * self.loss + (1 - keep) * step.loss
        self.accuracy = keep * self.accuracy + (1 - keep) * step.accuracy
        words = f"loss {self.loss:6.3f}  accuracy {self.accuracy:5.1f} %"
        self.bars.update(self.task, completed=step.iteration, total=step.total, words=words)

    def _turn_to(self, phase: str, total: int | None) -> bool:
        """Whether it is a new one; a phase that cannot be counted makes place for the next."""
        if phase == self.phase:
            return False
        if self.bars.tasks[-1].total is None:
            self.bars.remove_task(self.task)
        self.phase = phase
        self.task = self.bars.add_task(phase, total=total, words="")
        return True


class _Lines:
    """A line at the start of each phase and at both ends of each stage, and now and then."""

    def __init__(self, stages: list[str]) -> None:
        self.stages = stages
        self.phase: str | None = None
        self.last = self.started = 0.0
        self.stage, self.first = -1, 1

    def announce(self, phase: str, done: int, total: int) -> None:
        now = time.monotonic()
        if phase != self.phase:
            self._say(f"{phase} …" if not total else f"{phase}: {total:,} …")
            self.phase, self.last = phase, now
        elif now - self.last >= PLAIN_INTERVAL:
            self._say(f"{phase}: {done:,}/{total:,}")
            self.last = now

    def observe(self, method: Method, stage: int, step: TrainStep) -> None:
        now = time.monotonic()
        if stage != self.stage or step.iteration == 1:
            # Not always its first update: a fit that was broken off goes on later.
            self.stage, self.first, self.started = stage, step.iteration, now
        if step.iteration not in (self.first, step.total) and now - self.last < PLAIN_INTERVAL:
            return
        self.phase, self.last = None, now
        # The first update tells nothing of how long the others take.
        done = step.iteration - self.first
        left = (now - self.started) / max(1, done) * (step.total - step.iteration)
        self._say(
            f"stage {stage + 1} ({self.stages[stage]}) {step.iteration}/{step.total}: "
            f"loss {step.loss:.3f}, batch accuracy {step.accuracy:.1f} %"
            + (f", {left:.0f} s left" if done and step.iteration < step.total else "")
        )

    def _say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)
