"""Carrying out what is missing of a grid, one run after another or on Ray.

The identity of a run is the hash of its config, and its record is written as soon as it ends. A
grid that was killed continues where it was, in the middle of a run, and a grid that grew runs what
it lacks.
"""

import signal
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Literal

from shotfit.bench.contents import changed_runs, refuse_changed
from shotfit.bench.on_ray import run_on_ray
from shotfit.experiment import Experiment, environment, run
from shotfit.records import Record, read_record, record_files, write_record
from shotfit.system.interrupts import Terminated, noticed_interrupt
from shotfit.system.ray_cluster import RayOptions
from shotfit.training.checkpoint import Checkpoints

UNFINISHED = ".unfinished"
"""The folder of checkpoints among the records."""


@dataclass(frozen=True)
class GridStep:
    """Where a grid is; `record` is the run that has just ended, None when one has started."""

    total: int
    skipped: int
    """Runs that had a record already: done ones and, unless retried, failed ones."""
    done: int
    failed: int
    """Runs that failed, now or before."""
    running: int
    seconds: float
    """Since the grid was started."""
    seconds_left: float | None
    record: Record | None = None


def run_all(
    experiments: Sequence[Experiment],
    folder: Path,
    *,
    executor: Literal["local", "ray"] = "local",
    root: str | None = None,
    device: str | None = None,
    retry_failed: bool = False,
    isolate: bool = False,
    ray: RayOptions | None = None,
    weights: Mapping[str, float] | None = None,
    overwrite: bool = False,
) -> Iterator[GridStep]:
    """Runs what has no record in `folder` yet, yielding at every start and end.

    A generator: it advances as it is iterated. Every record is written by this process before it
    is yielded, so that leaving the loop, or being killed, loses at most the runs under way.
    Locally one run follows another, in this process, or each in its own with `isolate`: slower by
    the start of a process, but then a crash in native code or for lack of memory costs one run
    only. `weights` are the relative costs of the runs by id, for the time left. With
    `overwrite`, records of other images than there are now are replaced.

    Raises:
        DataError: when a record is damaged, of another version, or, unless `overwrite`, of other
            images than there are now; or Ray cannot be reached.
    """
    known = _known(experiments, folder, root, overwrite)
    pending = [
        experiment
        for experiment in experiments
        if (record := known.get(experiment.id)) is None
        or (retry_failed and record.status != "done")
    ]
    skipped = len(experiments) - len(pending)
    waiting = {experiment.id for experiment in pending}
    statuses = {key: record.status for key, record in known.items() if key not in waiting}
    left = {key: (weights or {}).get(key, 1.0) for key in waiting}
    whole = sum(left.values())
    work = partial(execute, root=root, device=device, unfinished=folder.absolute() / UNFINISHED)
    if executor == "ray" and pending:
        ray = ray or RayOptions()
        # Nodes of a cluster have no common folder.
        here = work.keywords["unfinished"] if ray.address is None else None
        work = partial(execute, root=root, device=ray.device(device), unfinished=here)
        events = run_on_ray(pending, work, failed_record, ray)
    else:
        events = _one_by_one(pending, partial(_isolated, work) if isolate else work)
    started = time.monotonic()
    for running, record in events:
        if record is not None:
            write_record(folder, record)
            Checkpoints(folder / UNFINISHED / record.id).remove()
            statuses[record.id] = record.status
            left.pop(record.id, None)
        seconds = time.monotonic() - started
        finished = whole - sum(left.values())
        yield GridStep(
            total=len(experiments),
            skipped=skipped,
            done=sum(status == "done" for status in statuses.values()),
            failed=sum(status != "done" for status in statuses.values()),
            running=running,
            seconds=seconds,
            seconds_left=seconds / finished * sum(left.values()) if finished else None,
            record=record,
        )


def _known(
    experiments: Sequence[Experiment], folder: Path, root: str | None, overwrite: bool
) -> dict[str, Record]:
    """The records that there are, of the images that there are."""
    files = record_files(folder)
    wanted = [experiment.id for experiment in experiments if experiment.id in files]
    known = {key: read_record(files[key]) for key in wanted}
    changed = changed_runs(experiments, known, root)
    refuse_changed([] if overwrite else [files[key] for key in changed])
    return {key: record for key, record in known.items() if key not in changed}


def execute(
    experiment: Experiment,
    *,
    root: str | None,
    device: str | None,
    unfinished: Path | None = None,
) -> Record:
    """Carries out an experiment; a failure is a record too, with its traceback. With a folder for
    what is `unfinished`, a run that was broken off goes on."""
    try:
        with noticed_interrupt(signal.SIGTERM) as interrupt:
            checkpoints = None
            if unfinished is not None:
                checkpoints = Checkpoints(
                    unfinished / experiment.id,
                    resume=True,
                    lenient=True,
                    terminated=lambda: interrupt.terminated,
                )
                interrupt.armed = True
            record = run(experiment, root=root, device=device, checkpoints=checkpoints)[0]
            if interrupt.terminated:
                raise Terminated
            return record
    except Exception:
        return failed_record(experiment, traceback.format_exc())


def failed_record(experiment: Experiment, error: str) -> Record:
    """The record of a run that failed."""
    return Record(
        id=experiment.id,
        experiment=experiment.plain(),
        dataset=str(experiment.data.get("name", experiment.data.get("path", ""))),
        status="failed",
        environment=environment(),
        error=error,
    )


Work = Callable[[Experiment], Record]


def _one_by_one(
    experiments: Sequence[Experiment], work: Work
) -> Iterator[tuple[int, Record | None]]:
    for experiment in experiments:
        yield 1, None
        yield 0, work(experiment)


def _isolated(work: Work, experiment: Experiment) -> Record:
    """`work` in a process of its own, started afresh: a fork would inherit torch's threads."""
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
        try:
            return pool.submit(work, experiment).result()
        except BrokenProcessPool:
            return failed_record(
                experiment, "The process of this run died (out of memory, or a crash)."
            )
