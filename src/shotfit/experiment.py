"""One run, from a frozen config to a record.

The only file that seeds, picks the device and measures cost.
"""

import dataclasses
import os
import platform
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from shotfit import __version__
from shotfit.adaptation import Observe, adapt
from shotfit.backbone import Backbone, Hints
from shotfit.backbone.catalogue import hub_id
from shotfit.backbone.fingerprint import fingerprint
from shotfit.config import digest, to_dict
from shotfit.data.benchmark.facts import benchmark_key, find_benchmark
from shotfit.data.checks import check_split
from shotfit.data.contents import task_content
from shotfit.data.dataset import Dataset, Split
from shotfit.data.difficulty import unbalanced, wrongly_labelled
from shotfit.data.fewshot_lists import read_fewshot
from shotfit.data.image_hashes import ImageHashes
from shotfit.data.prefetch import Loading
from shotfit.data.sources import load_dataset
from shotfit.data.support_set import SupportSet
from shotfit.data.task import Setting, Task, make_task
from shotfit.data.template import asks_only_for
from shotfit.data.transfer import transfer_targets
from shotfit.data.transforms import CROP_SCALE
from shotfit.errors import UsageError
from shotfit.evaluation.metrics import Measurement, evaluate_transfer, measure
from shotfit.methods import get_method
from shotfit.methods.base import Method
from shotfit.methods.published import TaskFacts
from shotfit.pace import Deadline
from shotfit.recipe import Recipe, two_stage
from shotfit.records import Record
from shotfit.run_log import RunLog, UpdateCount, trainable_parameters
from shotfit.system.memory import peak_memory_bytes, reset_peak_memory, reused_memory
from shotfit.training.checkpoint import Checkpoints
from shotfit.training.loop import TrainStep

Inspect = Callable[[Method, SupportSet, int], None]
"""Called once a fit has come to its end: with the adapted method, its shots, and the number of
updates of the last stage."""
ADDED_LATER = ("fewshot", "imbalance", "wrong_labels", "transfer")
"""Fields that records of the first version do not have."""

Announce = Callable[[str, int, int], None]
"""Called before training, with the name of a phase, how much of it is done, and of how much (0 is
not known)."""


@dataclass(frozen=True)
class Experiment:
    """Everything that decides a run's numbers. Its hash is the run's identity.

    `source` and `data` name the dataset: the source module and what its `load` takes. The root
    folder of datasets is not part of it, so that a record means the same on every machine.
    """

    source: str = "demo"
    data: dict[str, Any] = field(default_factory=lambda: {"name": "animals"})
    setting: Setting = "base_to_novel"
    shots: int | None = 4
    """None takes every training image."""
    seed: int = 1
    backbone: str = "iconclip"
    revision: str | None = None
    recipe: Recipe = field(default_factory=two_stage)
    fewshot: str | None = None
    """Folder of few-shot lists to take instead of drawing shots, relative to the root folder of
    datasets; "{dataset}" in it stands for the dataset's name, "{folder}" for its folder among the
    published ones (caltech101 lies in caltech-101)."""
    imbalance: float = 1.0
    """How many times the shots of the rarest class the most frequent one has; 1 as published."""
    wrong_labels: float = 0.0
    """Share of the training images with the label of another class; none as published."""
    transfer: tuple[str, ...] = ()
    """Names of other datasets (embedded tasks, benchmarks, variants of ImageNet) on whose test
    images, among their own names, the run is measured as well."""

    def __post_init__(self) -> None:
        # One model has one name, and one setting one spelling, or two runs of one experiment would
        # have two identities.
        object.__setattr__(self, "backbone", hub_id(self.backbone))
        object.__setattr__(self, "setting", self.setting.replace("-", "_"))

    @property
    def id(self) -> str:
        """Twelve hex digits: equal for equal experiments, on every machine."""
        return digest(self.plain())

    def plain(self) -> dict[str, Any]:
        """JSON-ready values. What was added after the first records is left out at its default, so
        that a run keeps its identity."""
        values = to_dict(self)
        for part in dataclasses.fields(self):
            if part.name in ADDED_LATER and getattr(self, part.name) == part.default:
                del values[part.name]
        return values


@reused_memory()
def run(
    experiment: Experiment,
    *,
    root: str | None = None,
    dataset: Dataset | None = None,
    backbone: Backbone | None = None,
    observe: Observe | None = None,
    announce: Announce | None = None,
    inspect: Inspect | None = None,
    interrupted: Callable[[], bool] | None = None,
    measured: bool = True,
    device: str | None = None,
    loading: Loading | None = None,
    deadline: Deadline | None = None,
    checkpoints: Checkpoints | None = None,
    hashes: ImageHashes | None = None,
) -> tuple[Record, Method]:
    """Carries out an experiment; the record and the adapted method.

    `dataset` and `backbone` may be given when already loaded; a backbone is used up by the run.
    `loading` says what reading images may cost; it changes no number. A `deadline` may end stages
    early and `checkpoints` are written, as in `adapt`; `hashes` are told of the images. Without
    `measured`, the test images are left to the caller, and the record has no metrics; a run that
    was `interrupted` gives what is there, which is not measured, and its record says so.

    Raises:
        UsageError, DataError: for a config or data that cannot be used.
    """
    reset_peak_memory(pick_device(device))
    dataset = dataset or load_dataset(experiment.source, root=root, **experiment.data)
    task = task_of(experiment, dataset, root)
    # Read before anything is trained: what is not there is said at once.
    targets = transfer_targets(experiment.transfer, root) if measured else {}
    # Before anything is learned of them: what is exchanged meanwhile is told by the next look.
    content = task_content(task, targets) if measured else ""
    log = RunLog()
    if checkpoints is not None:
        checkpoints.keep("log", log)

    def watch(method: Method, stage: int, step: TrainStep) -> None:
        log.add(method, stage, step)
        if observe is not None:
            observe(method, stage, step)

    method = fit_task(
        experiment,
        task,
        backbone=backbone,
        observe=watch,
        announce=announce,
        inspect=inspect,
        interrupted=interrupted,
        device=device,
        loading=loading,
        deadline=deadline,
        checkpoints=checkpoints,
        hashes=hashes,
    )
    cost, fitted = log.cost(), time.perf_counter()
    stopped = interrupted is not None and interrupted()
    measured = measured and not stopped
    measurable = measured and all(split.examples for split in task.tests.values())
    if measurable and announce is not None:
        images = sum(len(split.examples) for split in task.tests.values())
        announce(f"evaluating {images:,} test images", 0, 0)
    found = measure(method, task.tests) if measurable else Measurement({})
    metrics = found.metrics
    if measurable and targets:
        metrics |= evaluate_transfer(method, targets)
    record = Record(
        id=experiment.id,
        experiment=experiment.plain(),
        dataset=dataset.name,
        status="interrupted" if stopped else "done",
        metrics=metrics,
        classes=[list(of_class) for of_class in found.classes],
        curve=log.points,
        # Without a step, what `prepare` and `finish` have solved for.
        trainable_parameters=log.trainable or [trainable_parameters(method)],
        cost={
            **cost,
            "evaluation_seconds": time.perf_counter() - fitted,
            "peak_memory_bytes": float(peak_memory_bytes(method.backbone.device)),
        },
        split_hash=task.split_hash,
        content=content,
        environment={**environment(), **_hint_facts(method.backbone.hints)},
    )
    return record, method


def task_of(experiment: Experiment, dataset: Dataset, root: str | None = None) -> Task:
    """The few-shot task of an experiment: shots drawn by the rule, or taken from lists, then made
    as unbalanced and as wrongly labelled as it says.

    Raises:
        UsageError: for lists without a number of shots, a folder with an unknown placeholder, and
            as `unbalanced` and `wrongly_labelled`.
        DataError: as `make_task` and `read_fewshot`.
    """
    lists = None
    if experiment.fewshot is not None:
        if experiment.shots is None:
            raise UsageError("Few-shot lists are for a number of shots: give --shots.")
        folder = Path(root or "").expanduser() / _lists_of(dataset, experiment.fewshot)
        lists = read_fewshot(dataset, folder, experiment.shots, experiment.seed)
    task = make_task(dataset, experiment.setting, experiment.shots, experiment.seed, fewshot=lists)
    support = unbalanced(task.support, experiment.imbalance, experiment.seed)
    support = wrongly_labelled(support, experiment.wrong_labels, experiment.seed)
    return dataclasses.replace(task, support=support)


def _lists_of(dataset: Dataset, fewshot: str) -> str:
    key = benchmark_key(dataset.name)
    folder = find_benchmark(key).folder if key else dataset.name
    if not asks_only_for(fewshot, {"dataset", "folder"}):
        raise UsageError(
            f"The folder of few-shot lists may contain {{dataset}} and {{folder}}, got {fewshot!r}."
        )
    return fewshot.format(dataset=dataset.name, folder=folder)


@reused_memory()
def fit_task(
    experiment: Experiment,
    task: Task,
    *,
    backbone: Backbone | None = None,
    observe: Observe | None = None,
    announce: Announce | None = None,
    inspect: Inspect | None = None,
    interrupted: Callable[[], bool] | None = None,
    device: str | None = None,
    loading: Loading | None = None,
    deadline: Deadline | None = None,
    checkpoints: Checkpoints | None = None,
    hashes: ImageHashes | None = None,
) -> Method:
    """The method that an experiment's recipe makes of its backbone on a task's support set.

    Raises:
        DataError: when there is the checkpoint of another fit.
    """
    check_split(task.support)
    announce = announce or (lambda phase, done, total: None)
    announce(f"loading {experiment.backbone}", 0, 0)
    backbone = backbone or Backbone.from_pretrained(experiment.backbone, experiment.revision)
    backbone = backbone.to(pick_device(device))
    seed = experiment.seed
    crop = smallest_crop(experiment.recipe, backbone)
    if checkpoints is not None:
        hashes = hashes or ImageHashes()
        checkpoints.identify(**_fit_facts(experiment, backbone))
    with (
        support_set(task.support, backbone, seed, loading, crop, hashes) as support,
        support_set(task.validation, backbone, seed + 1, loading, crop, hashes) as validation,
    ):
        support.decode(lambda done: announce("decoding images", done, len(support)))
        updates = UpdateCount(observe)
        if checkpoints is not None and hashes is not None:
            checkpoints.keep("updates", updates)
            checkpoints.identify(images=_content(task, hashes))
            if checkpoints.found is not None:
                announce("going on from the checkpoint", 0, 0)
        method = adapt(
            backbone,
            support,
            experiment.recipe,
            task_facts(task),
            validation=validation,
            generator=torch.Generator().manual_seed(seed),
            observe=updates.add,
            interrupted=interrupted,
            deadline=deadline,
            checkpoints=checkpoints,
        )
        if inspect is not None and not (interrupted is not None and interrupted()):
            announce("holding shots out", 0, 0)
            inspect(method, support, updates.count)
        return method


def _fit_facts(experiment: Experiment, backbone: Backbone) -> dict[str, Any]:
    """What the numbers of a fit depend on besides its images, whose folder may have moved."""
    versions = environment()
    names = ("shotfit", "torch", "transformers", "pillow")
    options = experiment.plain()
    del options["source"]
    options["data"].pop("path", None)
    return {
        "version": {name: versions[name] for name in names},
        "device": backbone.device.type,
        "option": options,
        "backbone": fingerprint(dict(backbone.named_parameters()))[:12],
    }


def _content(task: Task, hashes: ImageHashes) -> str:
    """Twelve hex digits of the images, labels and names that a method sees, in order."""
    splits = [
        [split.classnames, split.labels, [one.hex() for one in hashes.of(split.examples)]]
        for split in (task.support, task.validation)
    ]
    template = task.support.template
    words = template if isinstance(template, str) else template.plain()
    return digest([words, task.support.reduced, splits])


def task_facts(task: Task) -> TaskFacts:
    """What hyper-parameters may depend on. Without a number of shots, the most images of a class
    count as shots, up to the 16 that the published budgets end at."""
    most = max(Counter(task.support.labels).values(), default=0)
    return TaskFacts(
        dataset=task.name,
        setting=task.setting,
        shots=task.shots or min(most, 16),
        classes=len(task.support.classnames),
        images=len(task.support.examples),
    )


def smallest_crop(recipe: Recipe, backbone: Backbone) -> float:
    """The smallest share of an image's area that any stage crops."""
    smallest = min(get_method(stage.method).crop_scale[0] for stage in recipe.stages)
    return max(smallest, backbone.hints.crop_scale_min)


def support_set(
    split: Split,
    backbone: Backbone,
    seed: int,
    loading: Loading | None = None,
    smallest_crop: float = CROP_SCALE[0],
    hashes: ImageHashes | None = None,
) -> SupportSet:
    """A split as a method sees it, its order and augmentation decided by `seed`."""
    # A string seed goes through SHA-512: no correlation with the stream that sampled the shots.
    stream = random.Random(f"augmentation {seed}")
    pinned = dataclasses.replace(loading or Loading(), pin_memory=backbone.device.type == "cuda")
    spec = backbone.image_spec
    return SupportSet(split, spec, stream, pinned, smallest_crop=smallest_crop, hashes=hashes)


def pick_device(device: str | None = None) -> torch.device:
    """The device asked for; by default the first accelerator, or else the CPU.

    Raises:
        UsageError: for a name that is not a device's, or an accelerator that this machine lacks.
    """
    if device is not None:
        try:
            chosen = torch.device(device)
            torch.empty(0, device=chosen)
        # PyTorch asserts where it was built without CUDA.
        except (RuntimeError, AssertionError, NotImplementedError) as error:
            there = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
            raise UsageError(
                f"There is no device {device!r} here; there is {', '.join(['cpu', *there])}."
            ) from error
        return chosen
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("cpu")


def environment() -> dict[str, str]:
    """Versions and hardware that numbers may depend on."""
    from importlib.metadata import version

    packages = ("torch", "transformers", "pillow", "numpy")
    facts = {"shotfit": __version__, **{package: version(package) for package in packages}}
    facts["python"] = platform.python_version()
    facts["platform"] = f"{platform.system()} {platform.machine()}"
    facts["processors"] = str(os.cpu_count())
    facts["threads"] = str(torch.get_num_threads())
    if torch.cuda.is_available():
        facts["accelerator"] = torch.cuda.get_device_name()
    return facts


def _hint_facts(hints: Hints) -> dict[str, str]:
    """A checkpoint's hints, where they change training."""
    changed = [f"{key}={value:g}" for key, value in to_dict(hints).items()]
    return {"hints": ", ".join(changed)} if hints != Hints() else {}
