"""Progress of work that is counted: a bar on a terminal, a plain line now and then elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress

PLAIN_INTERVAL = 10.0


@contextmanager
def counting(*, quiet: bool = False) -> Iterator[Callable[[str, int, int], None] | None]:
    """A function to tell what is being done, how much of it is, and how much there is."""
    console = Console(stderr=True)
    if quiet:
        yield None
    elif not console.is_terminal:
        last = time.monotonic()

        def line(what: str, done: int, total: int) -> None:
            nonlocal last
            if time.monotonic() - last >= PLAIN_INTERVAL:
                last = time.monotonic()
                print(f"{what}: {done:,}/{total:,}", file=sys.stderr, flush=True)

        yield line
    else:
        columns = (*Progress.get_default_columns(), MofNCompleteColumn())
        with Progress(*columns, console=console, transient=True) as bars:
            task = bars.add_task("")
            yield lambda what, done, total: bars.update(
                task, description=what, completed=done, total=total
            )
