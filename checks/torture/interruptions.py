"""Kills at random moments, crashes and full disks at every file operation, two at once."""

import errno
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from torture.commands import Command, commands, finish, litter, prepare, start
from torture.inputs import FORMATS_SO_FAR

CRASHED = 99
WRITES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.truncate", "os.chmod"}


def interruptions(kills: int, points: int, number: int, only: str | None) -> dict[str, Any]:
    """Every command interrupted in every way; `points` of each command's file operations, or all
    of them where it has fewer."""
    found = {}
    for name, command in commands().items():
        if only is not None and only != name:
            continue
        stream = random.Random(f"{number} {name}")
        with tempfile.TemporaryDirectory() as scratch:
            place = _Place(Path(scratch), command)
            found[name] = {
                "kills": _killed(place, kills, stream),
                "crashes": _at_points(place, points, stream, _crash),
                "full disk": _at_points(place, points, stream, _full),
                "two at once": _twice(place, max(1, kills // 10)),
            }
    return found


class _Place:
    """Fresh folders to run a command in, and what it comes to when nothing goes wrong."""

    def __init__(self, scratch: Path, command: Command) -> None:
        self.scratch, self.command = scratch, command
        self.count = scratch / "operations"
        started = time.monotonic()
        folder = self.fresh()
        self.code = finish(start(command.words, folder, lambda: _watch(folder, self._note, -1)))
        assert self.code == 0 or command.refused, (command.words, self.code)
        self.seconds = time.monotonic() - started
        self.expected = command.outcome(folder)
        self.operations = int(self.count.read_text()) if self.count.exists() else 0

    def _note(self, number: int) -> None:
        # By the system's own calls: `open` would be watched.
        file = os.open(self.count, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.write(file, str(number).encode())
        os.close(file)

    def fresh(self) -> Path:
        """A folder with all that the command needs."""
        folder = self.scratch / "work"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        prepare(folder, FORMATS_SO_FAR)
        return folder

    def verdict(self, folder: Path) -> str:
        """What is there after it was run again to its end."""
        code = finish(start(self.command.again, folder))
        if code == self.code:
            same = self.command.outcome(folder) == self.expected
        else:
            # What is done already may be said to be there.
            same = code == 3 and self.command.outcome(folder) == self.expected
        if not same:
            return f"lost (exit code {code})"
        return "same" if not litter(folder) else "same, with files left over"


def _killed(place: _Place, count: int, stream: random.Random) -> dict[str, int]:
    verdicts: Counter[str] = Counter()
    for _ in range(count):
        folder = place.fresh()
        pid = start(place.command.words, folder)
        time.sleep(stream.uniform(0, 1.1 * place.seconds))
        os.kill(pid, signal.SIGKILL)
        finish(pid)
        verdicts[place.verdict(folder)] += 1
    return dict(verdicts)


def _at_points(
    place: _Place, count: int, stream: random.Random, fault: Callable[[], None]
) -> dict[str, Any]:
    verdicts: Counter[str] = Counter()
    total = place.operations
    points = range(1, total + 1)
    for point in points if total <= count else sorted(stream.sample(points, count)):
        folder = place.fresh()
        code = finish(start(place.command.words, folder, partial(_fail, folder, point, fault)))
        if fault is _full and code not in (0, 3, place.code):
            verdicts[f"exit code {code}"] += 1
        verdicts[place.verdict(folder)] += 1
    return {"operations": total, **verdicts}


def _twice(place: _Place, count: int) -> dict[str, int]:
    verdicts: Counter[str] = Counter()
    for _ in range(count):
        folder = place.fresh()
        codes = [finish(pid) for pid in [start(place.command.words, folder) for _ in range(2)]]
        if not {place.code} <= set(codes) <= {place.code, 0, 3}:
            verdicts[f"exit codes {codes}"] += 1
        verdicts[place.verdict(folder)] += 1
    return dict(verdicts)


def _crash() -> None:
    os._exit(CRASHED)


def _full() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _fail(folder: Path, point: int, fault: Callable[[], None]) -> None:
    def at(number: int) -> None:
        if number == point:
            fault()

    _watch(folder, at, point)


def _watch(folder: Path, act: Callable[[int], None], point: int) -> None:
    """Calls `act` with its number before every operation that changes files in `folder`. What
    libraries in other languages do is not seen."""
    inside = str(folder)
    done = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal done
        if event == "open":
            path, _, flags = arguments
            changes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        else:
            path, changes = (arguments or ("",))[0], event in WRITES
        if changes and isinstance(path, str | bytes | os.PathLike):
            place = os.path.join(os.getcwd(), os.fsdecode(path))
            if place.startswith(inside):
                done += 1
                act(done)

    sys.addaudithook(hook)
