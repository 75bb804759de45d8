"""Kills at random moments, crashes and full disks at every file operation, two at once."""

import errno
import os
import random
import resource
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
REFUSED = (2, 3)
"""Exit codes of what is there already, or gone already."""
WRITES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.truncate", "os.chmod"}


def interruptions(name: str, kills: int, points: int, number: int) -> dict[str, Any]:
    """A command interrupted in every way: `kills` times at a random moment, and with so little
    room for files; at `points` of its file operations, or all where it has fewer."""
    stream = random.Random(f"{number} {name}")
    with tempfile.TemporaryDirectory() as scratch:
        place = _Place(Path(scratch), commands()[name])
        return {
            "kills": _killed(place, kills, stream),
            "crashes": _at_points(place, points, stream, _crash),
            "full disk": _at_points(place, points, stream, _full),
            "short files": _limited(place, kills, stream),
            "two at once": _twice(place, max(1, kills // 5)),
        }


class _Place:
    """Fresh folders to run a command in, and what it comes to when nothing goes wrong."""

    def __init__(self, scratch: Path, command: Command) -> None:
        self.scratch, self.command = scratch, command
        self.count = scratch / "operations"
        started = time.monotonic()
        folder = self.fresh()
        self.code = finish(start(command.words, folder, lambda: _watch(folder, self._note)))
        assert self.code == 0 or command.refused, (command.words, self.code)
        self.seconds = time.monotonic() - started
        self.expected = command.outcome(folder)
        self.operations = int(self.count.read_text()) if self.count.exists() else 0
        files = [path for path in folder.rglob("*") if path.is_file()]
        self.largest = max(path.stat().st_size for path in files)

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
        ways = list(self.command.again)
        code = finish(start(ways.pop(0), folder))
        # The first way in which somebody goes on is refused where there is nothing to go on from.
        while code == 3 and ways:
            code = finish(start(ways.pop(0), folder))
        # That all is done already may be an error, too.
        found = self.command.outcome(folder)
        if code not in (self.code, *REFUSED) or found != self.expected:
            return f"lost (exit code {code}{differing(found, self.expected)})"
        resumed = ", resumed" if ways else ""
        return f"same{resumed}{', with files left over' if litter(folder) else ''}"


def differing(found: object, expected: object) -> str:
    """The names under which two outcomes differ, where they have names."""
    if not isinstance(found, dict) or not isinstance(expected, dict):
        return ""
    names = sorted(name for name in {*found, *expected} if found.get(name) != expected.get(name))
    return f": {', '.join(names[:3])}"


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


def _limited(place: _Place, count: int, stream: random.Random) -> dict[str, int]:
    """No file may become longer than so many bytes, which the system itself sees to: it holds for
    what is written in other languages too."""
    verdicts: Counter[str] = Counter()
    for _ in range(count):
        folder = place.fresh()
        most = round(place.largest ** stream.uniform(0, 1))
        code = finish(start(place.command.words, folder, partial(_limit, most)))
        if code not in (0, 3, place.code):
            verdicts[f"exit code {code}"] += 1
        verdicts[place.verdict(folder)] += 1
    return dict(verdicts)


def _limit(most: int) -> None:
    for output in (1, 2):  # else what is said would be too long before anything else is
        os.dup2(os.open(os.devnull, os.O_WRONLY), output)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


def _twice(place: _Place, count: int) -> dict[str, int]:
    verdicts: Counter[str] = Counter()
    for _ in range(count):
        folder = place.fresh()
        codes = [finish(pid) for pid in [start(place.command.words, folder) for _ in range(2)]]
        if not {place.code} <= set(codes) <= {place.code, 0, *REFUSED}:
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

    _watch(folder, at)


def _watch(folder: Path, act: Callable[[int], None]) -> None:
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
