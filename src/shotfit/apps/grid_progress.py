"""The view of a running grid: one live line on a terminal, a plain line per run elsewhere."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from shotfit.bench.runner import GridStep
from shotfit.records import Record

Show = Callable[[GridStep, Mapping[str, str]], None]
"""Takes a step and the names of the runs by id."""


@contextmanager
def progress_view(*, quiet: bool = False) -> Iterator[Show]:
    """Shows a grid on standard error; rich leaves colours out when NO_COLOR is set."""
    console = Console(stderr=True)
    if quiet:
        yield lambda step, names: None
    elif console.is_terminal:
        with _bar(console) as bar:
            yield _ProgressLine(bar)
    else:
        yield _plain


def _bar(console: Console) -> Progress:
    return Progress(
        MofNCompleteColumn(),
        BarColumn(bar_width=24),
        TextColumn(
            "[green]{task.fields[done]} done[/] [red]{task.fields[failed]} failed[/] "
            "{task.fields[running]} running  {task.fields[left]}"
        ),
        console=console,
    )


class _ProgressLine:
    """The bar; a line above it for every run that ends."""

    def __init__(self, bar: Progress) -> None:
        self.bar = bar
        self.task = bar.add_task("", total=None, done=0, failed=0, running=0, left="")

    def __call__(self, step: GridStep, names: Mapping[str, str]) -> None:
        if step.record is not None:
            self.bar.console.print(_line(step.record, names), highlight=False, markup=False)
        self.bar.update(
            self.task,
            completed=step.done + step.failed,
            total=step.total,
            done=step.done,
            failed=step.failed,
            running=step.running,
            left=_left(step),
        )


def _plain(step: GridStep, names: Mapping[str, str]) -> None:
    if step.record is None:
        return
    text = (
        f"{step.done + step.failed}/{step.total} ({step.done} done, {step.failed} failed, "
        f"{step.running} running{', ' if step.seconds_left else ''}{_left(step)}): "
        f"{_line(step.record, names)}"
    )
    print(text, file=sys.stderr, flush=True)


def _line(record: Record, names: Mapping[str, str]) -> str:
    name = names.get(record.id, record.id)
    if record.status != "done":
        return f"failed: {name}: {(record.error.strip().splitlines() or [''])[-1]}"
    shown = ("all", "base", "novel", "harmonic_mean")
    metrics = [f"{key} {record.metrics[key]:.2f}" for key in shown if key in record.metrics]
    return f"{name}: {', '.join(metrics)} ({record.cost.get('seconds', 0.0):.1f} s)"


def _left(step: GridStep) -> str:
    if not step.seconds_left:
        return ""
    minutes, seconds = divmod(round(step.seconds_left), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02} left"
