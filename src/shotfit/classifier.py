"""`FewShotClassifier`: fit, predict, new classes by name, save and load."""

import contextlib
import dataclasses
import time
import warnings
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shotfit import saving
from shotfit.adaptation import Observe
from shotfit.backbone.int8 import quantize
from shotfit.config import from_dict
from shotfit.data.checks import check_names
from shotfit.data.dataset import Dataset, select_classes
from shotfit.data.images import ImageSource
from shotfit.data.inputs import Images, as_dataset, place_of, single_images
from shotfit.data.prefetch import Loading, memory_bytes
from shotfit.errors import UsageError
from shotfit.evaluation.inference import PredictedBatch, predict_batches
from shotfit.evaluation.metrics import evaluate
from shotfit.experiment import Experiment, pick_device
from shotfit.methods.base import ClassEmbeddings, Method
from shotfit.recipe import Recipe
from shotfit.records import Record
from shotfit.timed_plan import chosen_recipe, run_in


class FewShotClassifier:
    """An image classifier tuned from a few labelled images per class.

    It answers with the names of its classes: those it was trained on and those added by name. One
    image in, one answer out; a list, folder or glob pattern in, a list out.
    """

    def __init__(
        self,
        backbone: str = "iconclip",
        method: str | Recipe | None = None,
        *,
        preset: str | None = None,
        minutes: float | None = None,
        seed: int = 1,
        revision: str | None = None,
        device: str | None = None,
    ) -> None:
        """`method` is "2sfs" (the default), "2sfs:lora", a method's name, or a complete recipe; in
        its place a `preset`, or the `minutes` in which `fit` is to end. `revision` is a branch, tag
        or commit of a `backbone` from the hub.

        Raises:
            UsageError: for an unknown method or preset, and for more than one of the three.
        """
        self.device = pick_device(device)
        self.minutes = minutes
        recipe = chosen_recipe(method, preset, minutes, self.device)
        # Of what data and how many shots, `fit` will say.
        self.experiment = Experiment("", {}, "all_to_all", None, seed, backbone, revision, recipe)
        self.metrics: dict[str, float] = {}
        self.provenance: dict[str, bytes] = {}
        self._method: Method | None = None
        self._added: list[str] = []
        self._active: list[int] = []
        self._everything: ClassEmbeddings | None = None
        self._classes: ClassEmbeddings | None = None
        self._int8 = False

    # Learning

    def fit(
        self,
        data: str | Path | Dataset | Sequence[tuple[ImageSource, str]],
        shots: int | None = None,
        *,
        observe: Observe | None = None,
        image_memory: int | str = Loading.memory,
        image_disk: int | str = Loading.disk,
        full_size: bool = False,
    ) -> "FewShotClassifier":
        """Learns from a folder, a manifest, an embedded task, a dataset, or (image, name) pairs.

        `shots` images of each class are drawn; None takes all. `observe` is called after every
        update with the method, the stage and the step. Afterwards, `metrics` are those of the
        dataset's test images, if it has any. Every image is decoded once, at the nearest
        reduction that its training crops need (`full_size` for the published crops of the whole
        image), and kept: up to `image_memory` in memory, in bytes or as "500MB", then up to
        `image_disk` in a temporary file.

        Raises:
            DataError: for images or class names that cannot be used.
            UsageError: for a budget that is no amount of memory.
        """
        started = time.monotonic()
        loading = Loading(memory=memory_bytes(image_memory), disk=memory_bytes(image_disk))
        dataset = dataclasses.replace(as_dataset(data), reduced=not full_size)
        source, options = place_of(data, dataset)
        experiment = dataclasses.replace(
            self.experiment, source=source, data=options, setting="all_to_all", shots=shots
        )
        how: Any = {"observe": observe, "device": str(self.device), "loading": loading}
        record, method = run_in(self.minutes, experiment, dataset, started=started, **how)
        return self.take(method, record)

    def take(
        self, method: Method, record: Record | None = None, added: Sequence[str] = ()
    ) -> "FewShotClassifier":
        """Uses an adapted method whose classes are those it was trained on, and `added`; `record`
        is that of the run that made it, and is saved with it."""
        if record is not None:
            self.experiment = from_dict(Experiment, record.experiment)
        self.metrics = dict(record.metrics) if record is not None else {}
        self.provenance = saving.provenance_of(record) if record is not None else {}
        self._method = method.eval()
        self._added = list(added)
        self._active = list(range(len(method.trained_names) + len(added)))
        self._everything = self._classes = None
        self._int8 = False
        return self

    def quantize(self) -> "FewShotClassifier":
        """Rounds the linear layers of the image tower to 8 bits: faster on a CPU, for good.

        Class names stay as exact as they are: each is embedded once, however many images follow.

        Raises:
            UsageError: when the model is not on the CPU.
        """
        quantize(self.method.backbone.vision)
        self._int8 = True
        return self

    # Classes

    @property
    def classes(self) -> tuple[str, ...]:
        """The names that `predict` answers with; their order is that of `predict_proba`."""
        names = (*self.method.trained_names, *self._added)
        return tuple(names[index] for index in self._active)

    @property
    def method(self) -> Method:
        """The adapted method.

        Raises:
            UsageError: before `fit`.
        """
        if self._method is None:
            raise UsageError("This classifier has not been fitted: call fit first.")
        return self._method

    def add_classes(self, names: Sequence[str]) -> None:
        """Adds classes that have no images, by name.

        Raises:
            UsageError: when the method is bound to the classes it was trained on.
            DataError: for an empty name or one that is too long.
        """
        check_names(names)
        if not self.method.open_vocabulary:
            raise UsageError(
                f"{type(self.method).__name__} learns a row for each class; it cannot take a new "
                "class by name. Fit with the method 2sfs."
            )
        known = self.classes
        again = [name for name in names if name in known]
        if again:
            warnings.warn(
                f"Classes named {', '.join(map(repr, again))} exist already; they are kept apart "
                "by their position.",
                stacklevel=2,
            )
        with torch.no_grad():
            self.method.encode_classes(names)  # refuses what cannot be embedded before it counts
        before = len(self.method.trained_names) + len(self._added)
        self._added += names
        self._active += range(before, before + len(names))
        self._everything = self._classes = None

    def remove_classes(self, names: Sequence[str]) -> None:
        """Stops answering with these classes (all classes of a name).

        Raises:
            UsageError: for a name that is not among the classes, or when none would be left.
        """
        known = self.classes
        missing = [name for name in names if name not in known]
        if missing:
            raise UsageError(f"There is no class {', '.join(map(repr, missing))} to remove.")
        kept = [i for i, name in zip(self._active, known, strict=True) if name not in names]
        if not kept:
            raise UsageError("A classifier needs at least one class.")
        self._active = kept
        self._classes = None

    # Predicting

    def predict(self, images: Images, classnames: Sequence[str] | None = None) -> Any:
        """The most likely class name of each image; with `classnames`, among those instead.

        Raises:
            DataError: for an image that cannot be read.
        """
        names = self.classes if classnames is None else tuple(classnames)
        paths, single = single_images(images)
        answers = [
            names[index]
            for logits in self.iter_logits(paths, classnames)
            for index in logits.argmax(dim=-1).tolist()
        ]
        return answers[0] if single else answers

    def predict_proba(self, images: Images, classnames: Sequence[str] | None = None) -> np.ndarray:
        """Softmax probabilities, float32 (images, classes), or (classes,) for a single image."""
        paths, single = single_images(images)
        classes = len(self.classes if classnames is None else classnames)
        batches = [logits.softmax(dim=-1) for logits in self.iter_logits(paths, classnames)]
        probabilities = torch.cat([torch.empty(0, classes), *batches]).numpy()
        return probabilities[0] if single else probabilities

    def iter_logits(
        self,
        images: Iterable[ImageSource],
        classnames: Sequence[str] | None = None,
        batch_size: int = 64,
    ) -> Iterator[Tensor]:
        """Logits batch by batch, so that any number of images takes constant memory.

        Raises:
            DataError: for an image that cannot be read.
        """
        with contextlib.closing(
            self.predict_batches(images, classnames, batch_size=batch_size)
        ) as batches:
            for batch in batches:
                for error in batch.broken.values():
                    raise error
                yield batch.logits

    def predict_batches(
        self,
        images: Iterable[ImageSource],
        classnames: Sequence[str] | None = None,
        *,
        batch_size: int = 64,
        reduced: bool = False,
        loading: Loading | None = None,
    ) -> Generator[PredictedBatch, None, None]:
        """Batches of images as they come, each with its logits and its unreadable images.

        `reduced` images are read at a fraction of their size where the model needs no more.
        """
        classes = self.encode_classes(classnames)
        return predict_batches(
            self.method, classes, images, batch_size=batch_size, reduced=reduced, loading=loading
        )

    @torch.no_grad()
    def encode_classes(self, classnames: Sequence[str] | None = None) -> ClassEmbeddings:
        """The classes that images are compared with: `classnames`, or else `classes`, which are
        embedded once until they change.

        Raises:
            DataError: for an empty name or one that is too long.
            UsageError: for no names at all.
        """
        if classnames is not None:
            check_names(classnames)
            if not len(classnames):
                raise UsageError("There are no class names to choose among.")
            return self.method.encode_classes(classnames)
        if self._classes is None:
            everything = self.embedded_names()
            active = torch.tensor(self._active, device=everything.weight.device)
            each = everything.per_prompt
            self._classes = ClassEmbeddings(
                names=self.classes,
                weight=everything.weight[active],
                rows=tuple(everything.rows[index] for index in self._active),
                per_prompt=None if each is None else each[:, active],
            )
        return self._classes

    def evaluate(self, data: str | Path | Dataset) -> dict[str, float]:
        """Accuracy in percent on a dataset's test images (its training images without any).

        When the dataset has classes that this classifier was not trained on, they are novel: the
        metrics are then those of `shotfit.evaluation.metrics.evaluate` for base and novel.

        Raises:
            UsageError: when no class of the dataset is known and none can be added by name.
        """
        dataset = as_dataset(data)
        examples = dataset.test or dataset.train
        rows = self.method.trained_rows(dataset.classnames)
        known = [label for label, row in enumerate(rows) if row >= 0]
        unknown = [label for label, row in enumerate(rows) if row < 0]
        if not unknown:
            return evaluate(self.method, {"all": select_classes(examples, dataset, known)})
        if not known:
            return evaluate(self.method, {"all": select_classes(examples, dataset, unknown)})
        tests = {
            "base": select_classes(examples, dataset, known),
            "novel": select_classes(examples, dataset, unknown),
        }
        return evaluate(self.method, tests)

    # Saving

    def save_pretrained(self, folder: str | Path) -> Path:
        """Writes the folder that `from_pretrained` reads: what changed, as safetensors and JSON.

        The folder appears whole or not at all.

        Raises:
            DataError: when the folder exists and is not a saved classifier.
            UsageError: after `quantize`, which leaves nothing exact to save.
        """
        return saving.save(self._fitted(), Path(folder))

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path,
        *,
        device: str | None = None,
        revision: str | None = None,
        int8: bool = False,
        backbone: str | None = None,
    ) -> "FewShotClassifier":
        """A classifier from a saved folder or a hub repository; needs no training data.

        `int8` is `quantize`, and means the CPU where no device is named. `backbone` is the
        pretrained model, where the folder that someone else saved refers to one outside of it.

        Raises:
            OutsideModelError: when such a model is not given; a DataError as well.
            DataError: for a missing, altered or foreign file.
            UsageError: for `int8` on another device than the CPU.
        """
        device = device or ("cpu" if int8 else None)
        fitted = saving.load(str(name), device=device, revision=revision, backbone_name=backbone)
        classifier = cls(device=device)
        classifier.experiment = fitted.experiment
        classifier._restore(fitted)
        return classifier.quantize() if int8 else classifier

    def push_to_hub(self, repository: str, *, private: bool = False) -> str:
        """Uploads the saved folder to a Hugging Face model repository and returns its address.

        Raises:
            UsageError: after `quantize`, which leaves nothing exact to save.
        """
        return saving.push(self._fitted(), repository, private=private)

    @torch.no_grad()
    def embedded_names(self) -> ClassEmbeddings:
        """Every name that was trained or added, embedded; also those that were removed since."""
        if self._everything is None:
            names = (*self.method.trained_names, *self._added)
            self._everything = self.method.encode_classes(names)
        return self._everything

    def _fitted(self) -> saving.Fitted:
        """What is saved or uploaded; of rounded layers nothing could be loaded again."""
        if self._int8:
            raise UsageError(
                "This classifier has been rounded to 8 bits: save it before, and quantize what "
                "from_pretrained reads."
            )
        method, embeds = self.method, self.embedded_names()
        tensors = {"weight": embeds.weight, "per_prompt": embeds.per_prompt}
        return saving.Fitted(
            experiment=self.experiment,
            method=method,
            added=self._added,
            active=self._active,
            metrics=self.metrics,
            provenance=self.provenance,
            embeds={name: tensor for name, tensor in tensors.items() if tensor is not None},
        )

    def _restore(self, fitted: saving.Fitted) -> None:
        method = fitted.method
        self.take(method, added=fitted.added)
        self._active = list(fitted.active)
        self.metrics, self.provenance = dict(fitted.metrics), dict(fitted.provenance)
        if fitted.embeds is not None:
            device, each = method.backbone.device, fitted.embeds.get("per_prompt")
            self._everything = method.class_embeddings(
                fitted.names,
                fitted.embeds["weight"].to(device),
                None if each is None else each.to(device),
            )
