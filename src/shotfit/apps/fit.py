"""What `shotfit fit` does: an experiment is run, and the classifier saved with its record."""

import json
import math
import shlex
import signal
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from shotfit.adaptation import Observe
from shotfit.apps.evaluation import show_evaluation, write_predictions
from shotfit.apps.expectation import expectation_lines
from shotfit.apps.rescue import save_somewhere
from shotfit.apps.words import words_notes
from shotfit.classifier import FewShotClassifier
from shotfit.config import to_dict
from shotfit.data.broken import without_broken
from shotfit.data.checks import check_openable
from shotfit.data.dataset import Dataset
from shotfit.data.holdout import hold_out
from shotfit.data.image_hashes import ImageHashes
from shotfit.data.prefetch import Loading
from shotfit.data.sources import load_dataset
from shotfit.evaluation.evaluation import Evaluation
from shotfit.evaluation.expected import Expected
from shotfit.experiment import Experiment, run, task_facts, task_of
from shotfit.measure import NothingToMeasure, Options, evaluate
from shotfit.methods.base import Method
from shotfit.observers.counting import counting
from shotfit.observers.profiling import Profile
from shotfit.observers.progress import fit_progress, show_note, show_plan
from shotfit.observers.trackers import TrackerName
from shotfit.observers.tracking import Tracker, observe
from shotfit.records import Record
from shotfit.saving import EVALUATION, PREDICTIONS, check_target
from shotfit.shots_assessment import Inspection
from shotfit.system.files import write_atomically
from shotfit.system.interrupts import Interrupt, Terminated, noticed_interrupt
from shotfit.system.terminal import printable
from shotfit.timed_plan import timed_plan, unsuited
from shotfit.training.checkpoint import EVERY, FILE, Checkpoints, checkpoint_folder
from shotfit.training.execution import determinism
from shotfit.training.loop import TrainStep

SHOWN = 5
"""Images that are named of those left out."""
AT_A_TIME = 256
"""Test images that are read between two words about how far that is."""


@dataclass
class Timing:
    """What was asked of a plan; `preset` and `expected` seconds are told once it has been timed."""

    preset: str | None
    minutes: float | None
    started: float
    expected: float = math.nan


@dataclass(frozen=True)
class Keeping:
    """How a fit keeps what it needs to go on, and whether it goes on from there."""

    options: Callable[[], dict[str, Any]]
    """What was asked for, so that resuming need not be told again."""
    every: float = EVERY
    resume: bool = False

    def plain(self) -> dict[str, Any]:
        """The options, for the checkpoint."""
        return self.options()

    def load(self, values: dict[str, Any]) -> None:
        """They were read before the fit began."""

    def checkpoints(self, out: Path, interrupt: Interrupt) -> Checkpoints:
        """The checkpoints of a fit that is saved in `out`.

        Raises:
            DataError: when there is none to resume.
        """
        if not self.resume and (checkpoint_folder(out) / FILE).is_file():
            print(
                f"A fit that was broken off is replaced; `{resume_command(out)}` would finish it.",
                file=sys.stderr,
            )
        made = Checkpoints(
            checkpoint_folder(out),
            resume=self.resume,
            every=self.every,
            terminated=lambda: interrupt.terminated,
        )
        made.keep("options", self)
        return made


@dataclass(frozen=True)
class Fit:
    """What came of a fit: its record as plain values, the folder, what it was measured to be
    worth, None without images for it, and the profile where one was asked for."""

    record: dict[str, Any]
    folder: Path
    evaluation: Evaluation | None
    profile: Profile | None
    expected: Expected | None = None
    """How good held-out shots say it is; None where none could be held out."""
    skipped: tuple[str, ...] = ()
    """Why the images that were left out cannot be read."""
    unmeasured: str = ""
    """Why there is no evaluation although there are test images."""


def fit_and_save(
    experiment: Experiment,
    out: Path,
    *,
    timing: Timing | None = None,
    keeping: Keeping | None = None,
    loading: Loading | None = None,
    deterministic: bool = False,
    skip_broken: bool = False,
    device: str | None,
    root: str | None,
    quiet: bool,
    profile: bool = False,
    tracker: Tracker | None = None,
    keep_predictions: bool = False,
    on_interrupt: Literal["keep", "discard"] | None = None,
    published_scores: bool = False,
    overwrite: bool = True,
) -> Fit:
    """Fits, saves, and measures where there are images to spare for it, as `predict` answers. With
    `timing` the plan is timed and printed before it starts.

    Ctrl-C, pressed once, ends the update; what is there is saved as unfinished, or not, as
    `on_interrupt` says. On a terminal None asks, elsewhere it keeps. With `keeping` there are
    checkpoints beside `out`.

    Raises:
        KeyboardInterrupt: when it was interrupted and nothing is kept.
        Terminated: after SIGTERM, with a checkpoint.
    """
    check_target(out, overwrite=overwrite)
    dataset = load_dataset(experiment.source, root=root, **experiment.data)
    skipped: tuple[str, ...] = ()
    if skip_broken:
        dataset, skipped = without_broken(dataset)
    if not quiet:
        show_note(unsuited(experiment.backbone, dataset))
        for note in words_notes(dataset.template, dataset.classnames):
            show_note(note)
    if experiment.fewshot is None:
        dataset = hold_out(dataset, experiment.shots, experiment.seed)
    hashes, started = ImageHashes(), time.monotonic()
    _read_test_images(dataset, hashes, quiet=quiet)
    backbone = deadline = None
    if timing is not None:
        # What measuring takes is no part of the time that was given for the fit.
        timing.started += time.monotonic() - started
        planned = timed_plan(
            experiment,
            task_of(experiment, dataset, root),
            preset=timing.preset,
            minutes=timing.minutes,
            started=timing.started,
            device=device,
            loading=loading,
            assessed=not published_scores,
        )
        timing.preset, timing.expected = planned.preset, sum(planned.expected)
        experiment, backbone, deadline = planned.experiment, planned.backbone, planned.deadline
        if not quiet:
            show_plan(planned)
    stages = [stage.method for stage in experiment.recipe.stages]
    task = task_of(experiment, dataset, root)
    inspection = Inspection(experiment.recipe, task_facts(task), experiment.seed)
    recording = Profile(stages) if profile else None
    if tracker is not None:
        tracker.config(to_dict(experiment))
    with (
        determinism(deterministic),
        noticed_interrupt(signal.SIGINT, signal.SIGTERM) as interrupt,
        fit_progress(stages, quiet=quiet) as progress,
    ):
        checkpoints = None if keeping is None else keeping.checkpoints(out, interrupt)
        record, method = run(
            experiment,
            dataset=dataset,
            root=root,
            backbone=backbone,
            observe=_all(interrupt, progress.observe, recording, tracker),
            announce=progress.announce,
            inspect=None if published_scores else inspection,
            interrupted=lambda: interrupt.pressed,
            device=device,
            loading=loading,
            deadline=deadline,
            checkpoints=checkpoints,
            hashes=hashes,
            measured=False,
        )
    if recording is not None:
        recording.finish()
    stopped = record.status == "interrupted"
    if stopped and not _keeps(on_interrupt, record):
        if checkpoints is not None:
            checkpoints.remove()
        raise KeyboardInterrupt
    classifier = FewShotClassifier(device=device, published_scores=published_scores)
    classifier.take(method, record, task=task, assessment=inspection.assessment, hashes=hashes)
    # Before it is measured, so that nothing is lost whatever becomes of that.
    folder = save_somewhere(classifier, out)
    if checkpoints is not None and not stopped:
        checkpoints.remove()
    if interrupt.terminated:
        raise Terminated
    evaluation, unmeasured = None, ""
    if dataset.test and not stopped:
        evaluation, unmeasured = _measured(classifier, dataset, hashes, quiet=quiet)
    if evaluation is not None:
        record = classifier.note(record, evaluation)
        if tracker is not None:
            tracker.metrics(record.metrics)
        classifier.save_pretrained(out)
        text = json.dumps(evaluation.plain(), indent=1, ensure_ascii=False) + "\n"
        write_atomically(folder / EVALUATION, text)
        if keep_predictions:
            write_predictions(evaluation, folder / PREDICTIONS)
    expected = classifier.expected
    return Fit(to_dict(record), folder, evaluation, recording, expected, skipped, unmeasured)


def observing(
    tracker: TrackerName | None, folder: Path, out: Path
) -> AbstractContextManager[Tracker | None]:
    """A run of a tracker, called after the folder and the time, or nothing.

    Raises:
        UsageError: when the tracker's package is not installed.
    """
    if tracker is None:
        return nullcontext()
    name = f"{out.resolve().name}-{time.strftime('%Y-%m-%d-%H%M%S')}"
    return observe(tracker, folder=folder, name=name)


def show_fit(found: Fit, timing: Timing | None) -> None:
    """Prints what came of a fit."""
    record = found.record
    if found.unmeasured:
        print(printable(f"Not evaluated. {found.unmeasured}"))
    elif found.evaluation is None:
        print(
            "No test images, and none to spare: not evaluated. `shotfit evaluate` on the same "
            "data cross-validates."
        )
    else:
        show_evaluation(found.evaluation)
        if record["experiment"]["setting"] == "base_to_novel" and found.evaluation.unknown:
            print("Novel classes are not scored: the method is bound to those it was trained on.")
    if found.expected is not None:
        for line in expectation_lines(found.expected):
            print(line)
    counts = " then ".join(f"{count:,}" for count in record["trainable_parameters"]) or "0"
    seconds = record["cost"]["seconds"]
    foreseen = "" if timing is None else f", foreseen {timing.expected:.1f} s"
    what = "Unfinished, interrupted after" if record["status"] == "interrupted" else "Fitted in"
    made = f"({counts} trained parameters), saved in {found.folder}"
    print(f"{what} {seconds:.1f} s{foreseen} {made}")
    if found.skipped:
        more = "" if len(found.skipped) <= SHOWN else f" … ({len(found.skipped) - SHOWN} more)"
        print(f"Left out {len(found.skipped):,} images: {' '.join(found.skipped[:SHOWN])}{more}")
    if record["status"] == "interrupted":
        print(f"To finish it: {resume_command(found.folder)}")
    if found.profile is not None:
        print(f"\n{found.profile.table()}")


def resume_command(out: Path) -> str:
    """What goes on with a fit that is saved in `out`."""
    return f"shotfit fit --resume --out {shlex.quote(str(out))}"


def _read_test_images(dataset: Dataset, hashes: ImageHashes, *, quiet: bool) -> None:
    """Opens the test images, which are needed when all is trained: by then it would be late to say
    that one cannot be read. Their hashes are needed then, too.

    Raises:
        DataError: for an image that cannot be read.
    """
    check_openable(dataset.test)
    with counting(quiet=quiet) as watch:
        for start in range(0, len(dataset.test), AT_A_TIME):
            hashes.of(dataset.test[start : start + AT_A_TIME])
            if watch is not None:
                watch("reading test images", start, len(dataset.test))


def _measured(
    classifier: FewShotClassifier, dataset: Dataset, hashes: ImageHashes, *, quiet: bool
) -> tuple[Evaluation | None, str]:
    """The evaluation, or why there is none."""
    novel = classifier.experiment.setting == "base_to_novel" and classifier.method.open_vocabulary
    try:
        with counting(quiet=quiet) as watch:
            return evaluate(classifier, dataset, Options(as_novel=novel), watch, hashes), ""
    except NothingToMeasure as reason:
        return None, str(reason)


def _keeps(on_interrupt: Literal["keep", "discard"] | None, record: Record) -> bool:
    """Whether what an interrupted fit has learned is saved: as was said, or asked on a terminal."""
    if on_interrupt is not None or not sys.stdin.isatty():
        return on_interrupt != "discard"
    updates = int(record.cost["iterations"])
    print(
        f"\nInterrupted after {updates:,} updates. Save what is there? [Y/n] ", end="", flush=True
    )
    return not sys.stdin.readline().strip().lower().startswith("n")


def _all(interrupt: Interrupt, *observers: Observe | None) -> Observe:
    watching = [observer for observer in observers if observer is not None]

    def each(method: Method, stage: int, step: TrainStep) -> None:
        interrupt.armed = True
        for observer in watching:
            observer(method, stage, step)

    return each
