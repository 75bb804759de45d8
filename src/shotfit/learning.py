"""Learning as Python asks for it: `fit`, with progress and what is told afterwards, and `score`."""

import dataclasses
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from shotfit.adaptation import Observe
from shotfit.config import from_dict
from shotfit.data.dataset import Dataset
from shotfit.data.image_hashes import ImageHashes
from shotfit.data.inputs import as_dataset, place_of
from shotfit.data.prefetch import Loading, memory_bytes
from shotfit.data.python_data import Naming
from shotfit.data.task import Task
from shotfit.data.template import Words, given_words
from shotfit.errors import UsageError, unknown_name
from shotfit.evaluation.assessment import Assessment
from shotfit.evaluation.evaluation import Evaluation
from shotfit.experiment import Announce, Experiment, pick_device, run, task_facts, task_of
from shotfit.methods.base import Method
from shotfit.observers.progress import fit_progress, show_note, show_plan
from shotfit.plan import PlannedStage, plan
from shotfit.recipe import Recipe
from shotfit.records import Record
from shotfit.shots_assessment import Inspection
from shotfit.system.interrupts import Interrupt, Terminated, noticed_interrupt
from shotfit.timed_plan import chosen_recipe, timed_plan, unsuited
from shotfit.training.checkpoint import EVERY, Checkpoints
from shotfit.training.loop import TrainStep

SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""What ends a fit that keeps what is there; the second only where there is a place for it."""


class Learner(ABC):
    """What learns from labelled images by an experiment's recipe, with scikit-learn's habits."""

    def __init__(
        self,
        backbone: str,
        method: str | Recipe | None,
        *,
        preset: str | None,
        minutes: float | None,
        seed: int,
        revision: str | None,
        device: str | None,
        published_scores: bool,
    ) -> None:
        self._params: dict[str, Any] = {
            "backbone": backbone,
            "method": method,
            "preset": preset,
            "minutes": minutes,
            "seed": seed,
            "revision": revision,
            "device": device,
            "published_scores": published_scores,
        }
        self.published_scores = published_scores
        """Whether classes are scored as the paper does, whatever the shots say."""
        self.device = pick_device(device)
        self.minutes = minutes
        recipe = chosen_recipe(method, preset, minutes, self.device)
        # Of what data and how many shots, `fit` will say.
        self.experiment = Experiment("", {}, "all_to_all", None, seed, backbone, revision, recipe)
        self.plan: tuple[PlannedStage, ...] = ()
        """What the last `fit` was to train."""
        self.history: list[dict[str, float]] = []
        """Every update of the last `fit`: stage, iteration, loss, accuracy (of the batch, percent)
        and lr."""
        self.metrics: dict[str, float] = {}
        """Of the test images, in percent, if there were any."""

    @abstractmethod
    def take(
        self,
        method: Method,
        record: Record,
        *,
        task: Task,
        assessment: Assessment | None,
        hashes: ImageHashes,
    ) -> Self:
        """Uses an adapted method, with the record and the task of the run that made it, what the
        shots say about it, and the hashes of its images as far as they are known."""

    @abstractmethod
    def note(self, record: Record, evaluation: Evaluation) -> Record:
        """Keeps the record with what an evaluation found."""

    @abstractmethod
    def evaluate(self, data: Dataset, *, zero_shot: bool) -> Evaluation:
        """Scores the test images."""

    @abstractmethod
    def predict(self, images: Any) -> Any:
        """The class name of each image."""

    def fit(
        self,
        data: Any,
        labels: Any = None,
        *,
        shots: int | None = None,
        classnames: Sequence[str] | Mapping[Any, str] | None = None,
        image_column: str | None = None,
        label_column: str | None = None,
        templates: Sequence[str] | None = None,
        descriptions: Mapping[str, Sequence[str]] | None = None,
        observe: Observe | None = None,
        image_memory: int | str = Loading.memory,
        image_disk: int | str = Loading.disk,
        full_size: bool = False,
        checkpoint: str | Path | None = None,
        checkpoint_every: float = EVERY,
        resume: bool = False,
        verbose: bool = True,
    ) -> Self:
        """Learns from labelled images, and forgets what an earlier `fit` has learned.

        `data` is a folder, a manifest, or the name of a task; images with their `labels`, as
        `fit(X, y)`; pairs of (image, label); a pandas or polars DataFrame, a Hugging Face Dataset
        or DatasetDict, or a torch Dataset. Labels are class names, or whole numbers with
        `classnames`, a list in their order or a mapping. Columns with usual names are found.

        With several `templates`, or `descriptions` (sentences by the names of classes), a class is
        embedded as the mean of its texts, in every stage and for names that are added later.

        `shots` images of each class are drawn; None takes all. `observe` is called after every
        update with the method, the stage and the step; `verbose` shows progress on standard error.
        Every image is decoded once, at the nearest reduction that its training crops need
        (`full_size` for the published crops of the whole image), and kept: up to `image_memory` in
        memory, in bytes or as "500MB", then up to `image_disk` in a temporary file.

        Ctrl-C lets the update end and keeps what was learned so far (`unfinished`); the second one
        ends everything at once. In the folder `checkpoint` it keeps, every so many seconds, at
        Ctrl-C and on SIGTERM, what it needs to go on: the same call with `resume=True` ends with
        the same bits as if nothing had happened. (Of `minutes` it carries out the plan that was
        chosen before; no deadline cuts that any more.)

        Raises:
            KeyboardInterrupt: after Ctrl-C; the classifier can be used if there was an update.
            DataError: for images or class names that cannot be used, and for a checkpoint that is
                not there, or is that of other images or options.
            UsageError: for data of an unknown kind, or a budget that is no amount of memory.
        """
        started = time.monotonic()
        loading = Loading(memory=memory_bytes(image_memory), disk=memory_bytes(image_disk))
        dataset = as_dataset(data, labels, naming=Naming(classnames, image_column, label_column))
        dataset = dataclasses.replace(dataset, reduced=not full_size)
        words = given_words(templates or (), descriptions or {})
        if words is not None:
            dataset = dataclasses.replace(dataset, template=Words.of(words))
        source, options = place_of(data, dataset)
        experiment = dataclasses.replace(
            self.experiment, source=source, data=options, setting="all_to_all", shots=shots
        )
        task, device, hashes = task_of(experiment, dataset), str(self.device), ImageHashes()
        self.history = []
        with noticed_interrupt(*SIGNALS[: 1 if checkpoint is None else 2]) as interrupt:
            kept = None
            if checkpoint is not None:
                kept = Checkpoints(
                    Path(checkpoint).expanduser(),
                    resume=resume,
                    every=checkpoint_every,
                    terminated=lambda: interrupt.terminated,
                )
                kept.keep("history", _Kept(self.history))
            elif resume:
                raise UsageError("To resume, name the folder of the checkpoint: checkpoint=...")
            if verbose:
                show_note(unsuited(experiment.backbone, dataset))
            timed = None
            if kept is not None and kept.found is not None and self.minutes is not None:
                chosen = from_dict(Recipe, kept.found.identity["option"]["recipe"])
                experiment = dataclasses.replace(experiment, recipe=chosen)
            elif self.minutes is not None or (verbose and self._params["preset"] is not None):
                timed = timed_plan(
                    experiment,
                    task,
                    preset=self._params["preset"],
                    minutes=self.minutes,
                    started=started,
                    device=device,
                    loading=loading,
                    assessed=not self.published_scores,
                )
                experiment = timed.experiment
            if timed is not None and verbose:
                show_plan(timed)
            self.plan = plan(experiment.recipe, task_facts(task))
            inspection = Inspection(experiment.recipe, task_facts(task), experiment.seed)
            with self._progress(experiment.recipe, observe, interrupt, verbose) as told:
                watch, announce = told
                record, method = run(
                    experiment,
                    dataset=dataset,
                    backbone=None if timed is None else timed.backbone,
                    observe=watch,
                    announce=announce,
                    inspect=None if self.published_scores else inspection,
                    interrupted=lambda: interrupt.pressed,
                    device=device,
                    loading=loading,
                    deadline=None if timed is None else timed.deadline,
                    checkpoints=kept,
                    hashes=hashes,
                    measured=False,
                )
                assessment = inspection.assessment
                self.take(method, record, task=task, assessment=assessment, hashes=hashes)
                if record.status == "interrupted":
                    raise KeyboardInterrupt(f"after {len(self.history):,} updates, which are kept")
                if kept is not None:
                    kept.remove()
                if interrupt.terminated:
                    raise Terminated
                if dataset.test:
                    announce(f"evaluating {len(dataset.test):,} test images", 0, 0)
                    self.note(record, self.evaluate(dataset, zero_shot=False))
        return self

    @contextmanager
    def _progress(
        self, recipe: Recipe, observe: Observe | None, interrupt: Interrupt, verbose: bool
    ) -> Iterator[tuple[Observe, Announce]]:
        """What an experiment tells of its updates and its phases."""
        stages = [stage.method for stage in recipe.stages]
        with fit_progress(stages, quiet=not verbose) as progress:

            def watch(method: Method, stage: int, step: TrainStep) -> None:
                interrupt.armed = True
                self.history.append(_plain(stage, step))
                progress.observe(method, stage, step)
                if observe is not None:
                    observe(method, stage, step)

            yield watch, progress.announce

    def score(
        self,
        data: Any,
        labels: Any = None,
        *,
        classnames: Sequence[str] | Mapping[Any, str] | None = None,
        image_column: str | None = None,
        label_column: str | None = None,
    ) -> float:
        """The share of right answers, 0 to 1, on the images of what `fit` takes (of a dataset with
        test images, those); an answer is right when it is the name of the image's class.

        Raises:
            DataError: for images that cannot be used.
            UsageError: for data of an unknown kind.
        """
        dataset = as_dataset(data, labels, naming=Naming(classnames, image_column, label_column))
        examples = dataset.test or dataset.train
        answers = self.predict([example.image for example in examples])
        right = [
            dataset.classnames[example.label] == answer
            for example, answer in zip(examples, answers, strict=True)
        ]
        return sum(right) / len(right)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """What the constructor was given, as scikit-learn's `clone` asks for it."""
        return dict(self._params)

    def set_params(self, **params: Any) -> Self:
        """Starts anew with some of the constructor's parameters replaced: what was learned goes.

        Raises:
            UsageError: for an unknown parameter.
        """
        for name in params:
            if name not in self._params:
                raise unknown_name("parameter", name, self._params)
        type(self).__init__(self, **{**self._params, **params})
        return self


class _Kept:
    """A list that goes along with a checkpoint."""

    def __init__(self, values: list[Any]) -> None:
        self.values = values

    def plain(self) -> Any:
        return self.values

    def load(self, values: Any) -> None:
        self.values.extend(values)


def _plain(stage: int, step: TrainStep) -> dict[str, float]:
    return {
        "stage": stage + 1,
        "iteration": step.iteration,
        "loss": step.loss,
        "accuracy": step.accuracy,
        "lr": step.lr,
    }
