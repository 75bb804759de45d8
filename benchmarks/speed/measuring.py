"""Turns between two jobs, and the numbers of one: medians, ratios of a round, a fitted line."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from speed.process import Here, Process


@dataclass(frozen=True)
class Settings:
    """How everything is measured."""

    rounds: int
    threads: int
    device: str
    precision: str
    quick: bool = False
    """Tiny shapes in this process: to see that it runs, not for numbers."""

    def open(self, side: str, job: str, **arguments: Any) -> Here | Process:
        """Starts a job; use it in a `with` block."""
        request = {
            "side": side,
            "job": job,
            "threads": self.threads,
            "device": self.device,
            "precision": self.precision,
            **arguments,
        }
        return Here(request) if self.quick else Process(request)

    def shape(self, name: str) -> str:
        """The shape to measure in the place of `name`."""
        return "tiny" if self.quick else name

    def count(self, number: int) -> int:
        """A number of classes or images, a twentieth of it to be quick."""
        return max(4, number // 20) if self.quick else number


@dataclass(frozen=True)
class Case:
    """One case; `run` measures it, given the records of cases of this machine by name.

    It raises LookupError, with the reason, where it cannot be measured here at all.
    """

    name: str
    what: str
    run: "Callable[[Settings, dict[str, dict[str, Any]]], Measured]"


@dataclass(frozen=True)
class Row:
    """One line of the table: what was measured, its goal, and whether it was met.

    `at_least` says in which direction the goal lies; without a goal it is only a number.
    """

    what: str
    value: float
    unit: str
    goal: float | None = None
    at_least: bool = True
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the goal was met; None without one."""
        if self.goal is None:
            return None
        return self.value >= self.goal if self.at_least else self.value <= self.goal


@dataclass(frozen=True)
class Measured:
    """What a case found: rows of the table, everything they come from, and lines to plot."""

    rows: list[Row]
    raw: dict[str, Any]
    curves: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Series:
    """The rounds of one job."""

    rounds: list[list[float]] = field(default_factory=list)
    peak_bytes: int = 0
    loaded_bytes: int = 0

    def add(self, answer: dict[str, Any]) -> None:
        """Takes a round's answer."""
        self.rounds.append(answer["seconds"])
        self.peak_bytes = max(self.peak_bytes, answer["peak_bytes"])
        self.loaded_bytes = answer["loaded_bytes"]

    @property
    def seconds(self) -> float:
        """The median of a unit's seconds."""
        return statistics.median(second for part in self.rounds for second in part)

    def plain(self) -> dict[str, Any]:
        """As plain values, for the record."""
        return {**vars(self), "median_seconds": self.seconds}


def alone(job: Here | Process, units: int, rounds: int) -> Series:
    """One job after two units to warm up: it takes two until freed memory is used again."""
    series = Series()
    with job:
        job.measure(2)
        for _ in range(rounds):
            series.add(job.measure(units))
    return series


def compared(
    ours: Here | Process, theirs: Here | Process, units: tuple[int, int], rounds: int
) -> tuple[Series, Series]:
    """Two jobs in turns, each after a unit to warm up; `units` of each a round."""
    first, second = Series(), Series()
    with ours, theirs:
        ours.measure(1)
        theirs.measure(1)
        for _ in range(rounds):
            first.add(ours.measure(units[0]))
            second.add(theirs.measure(units[1]))
    return first, second


def speedup(ours: Series, theirs: Series) -> float:
    """How many times faster a unit of `ours` is: the median over rounds of their ratio."""
    ratios = [
        statistics.median(slow) / statistics.median(fast)
        for fast, slow in zip(ours.rounds, theirs.rounds, strict=True)
    ]
    return statistics.median(ratios)


def line(points: Sequence[tuple[float, float]], at: float) -> tuple[float, float]:
    """The least-squares line through points, at a place, and its largest relative residual."""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    slope, offset = statistics.linear_regression(xs, ys)
    residual = max(abs(offset + slope * x - y) / y for x, y in points)
    return offset + slope * at, residual


def exponent(points: Sequence[tuple[float, float]]) -> float:
    """The slope of log y over log x: 1 is linear, less is better."""
    logs = [(math.log(x), math.log(y)) for x, y in points]
    return statistics.linear_regression([x for x, _ in logs], [y for _, y in logs]).slope
