"""`FewShotClassifier`: fit, predict, new classes by name, save and load."""

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from shotfit import measure, saving
from shotfit.backbone.int8 import quantize
from shotfit.card import LIKELIEST
from shotfit.classes import ClassList
from shotfit.config import from_dict
from shotfit.data.dataset import Dataset
from shotfit.data.image_hashes import ImageHashes, hashes_as_tensors, hashes_of_tensors
from shotfit.data.images import ImageSource, open_image
from shotfit.data.inputs import as_dataset
from shotfit.data.names import check_names
from shotfit.data.python_data import images_of
from shotfit.data.task import Task
from shotfit.errors import DataError, UsageError
from shotfit.evaluation.assessment import Assessment
from shotfit.evaluation.evaluation import Evaluation
from shotfit.evaluation.inference import mean_embedding
from shotfit.experiment import Experiment
from shotfit.known_classes import KnownClasses, given_means
from shotfit.learning import Learner
from shotfit.methods.base import Method
from shotfit.predicting import Predicting
from shotfit.recipe import Recipe
from shotfit.records import Record
from shotfit.saved_assessment import assessment_numbers, assessment_tensors, read_assessment
from shotfit.system.model_hub import Pull, Push


class FewShotClassifier(Predicting, Learner):
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
        published_scores: bool = False,
    ) -> None:
        """`method` is "2sfs" (the default), "2sfs:lora", a method's name, or a complete recipe; in
        its place a `preset`, or the `minutes` in which `fit` is to end. `revision` is a branch, tag
        or commit of a `backbone` from the hub. A second stage's rows and names are made comparable
        by what held-out shots say, unless `published_scores` asks for them as they are.

        Raises:
            UsageError: for an unknown method or preset, and for more than one of the three.
        """
        super().__init__(
            backbone,
            method,
            preset=preset,
            minutes=minutes,
            seed=seed,
            revision=revision,
            device=device,
            published_scores=published_scores,
        )
        self.assessment: Assessment | None = None
        """What the shots say about it, where they were asked."""
        self.provenance: dict[str, bytes] = {}
        self.trained_images: frozenset[bytes] | None = None
        self._known: KnownClasses | None = None
        self._int8 = False

    def take(
        self,
        method: Method,
        record: Record | None = None,
        added: Sequence[str] = (),
        *,
        task: Task | None = None,
        assessment: Assessment | None = None,
        hashes: ImageHashes | None = None,
    ) -> "FewShotClassifier":
        """Uses an adapted method whose classes are those it was trained on, and `added`. `record`
        is that of the run that made it, and is saved with it; by its `task` it is known which
        images it saw (`hashes` has those that were opened), and by its `assessment` how its
        classes compare."""
        self.assessment = assessment
        self._known = KnownClasses(method.eval(), ClassList.of(method.trained_names, added))
        self._int8 = False
        self.metrics, self.provenance, self.trained_images = {}, {}, None
        if record is not None:
            self.note(record)
        if task is not None:
            self.trained_images = measure.trained_images(task, hashes or ImageHashes())
        return self

    def note(self, record: Record, evaluation: Evaluation | None = None) -> Record:
        """Keeps the record of the run that made it, with what an evaluation found; that record."""
        if evaluation is not None:
            record = dataclasses.replace(record, metrics=evaluation.metrics)
        self.experiment = from_dict(Experiment, record.experiment)
        self.metrics = dict(record.metrics)
        self.provenance = saving.provenance_of(record)
        return record

    @property
    def unfinished(self) -> bool:
        """Whether its fit was interrupted, and it is what was there then."""
        return saving.is_unfinished(self.provenance)

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
    def known(self) -> KnownClasses:
        """The method and its classes, embedded.

        Raises:
            UsageError: before `fit`.
        """
        if self._known is None:
            raise UsageError("This classifier has not been fitted: call fit first.")
        return self._known

    def add_classes(self, names: Sequence[str] | Mapping[str, Any]) -> None:
        """Adds classes by name; of a mapping from names to images (whatever `predict` takes), also
        by the mean of those images, with which the name's text embedding is blended. Nothing is
        trained.

        Raises:
            UsageError: when the method is bound to the classes it was trained on, or takes no
                images for others.
            DataError: for an empty name or one that is too long, and for an image that cannot be
                read.
        """
        given: Mapping[str, Any] = names if isinstance(names, Mapping) else {}
        check_names(names if isinstance(names, str) else list(names))
        names = list(names)
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
            # Refuses what cannot be embedded before it counts.
            embeds = self.method.encode_classes(names)
        if not given:
            self._set_classes(self.known.added(names))
            return
        if embeds.per_prompt is not None:
            raise UsageError(
                f"{type(self.method).__name__} compares images with more than one embedding of a "
                "class, and takes no images for classes it was not trained on."
            )
        shown = [list(images_of(given[name])[0]) for name in names]
        without = next((name for name, own in zip(names, shown, strict=True) if not own), None)
        if without is not None:
            raise DataError(f"There are no images of {without!r}.")
        means = [mean_embedding(self.method, own) for own in shown]
        counts = [len(own) for own in shown]
        self._set_classes(self.known.added(names, counts, torch.stack(means)))

    def remove_classes(self, names: Sequence[str]) -> None:
        """Stops answering with these classes (all classes of a name).

        Raises:
            UsageError: for a name that is not among the classes, or when none would be left.
        """
        self._set_classes(self.known.without(names))

    def _set_classes(self, known: KnownClasses) -> None:
        self._known = known
        self.metrics = {}  # They were those of other names to choose among.

    def evaluate(
        self,
        data: str | Path | Dataset | Sequence[tuple[ImageSource, str]],
        *,
        classes: Sequence[str] | None = None,
        as_novel: bool = False,
        zero_shot: bool = True,
        watch: measure.Watch | None = None,
    ) -> Evaluation:
        """Scores a dataset's test images (all images without any) as `predict` answers them.

        They are compared with `classes`, unless given the names that `predict` answers with; with
        `as_novel` in the label spaces of papers, where names that were not trained on are novel;
        the rule stays the classifier's (see `published_scores`). Images that it was trained on are
        left out; where no others are left, it is cross-validated. `zero_shot`
        scores the untouched model beside it. `watch` is told how far it is.

        Raises:
            DataError: when no class of the dataset is among the names, or no image is left.
            UsageError: for `as_novel` with a method that is bound to its classes.
        """
        wanted = measure.Options(classes, as_novel, zero_shot)
        return measure.evaluate(self, as_dataset(data), wanted, watch)

    # Saving

    def save_pretrained(self, folder: str | Path, *, shared: bool = False) -> Path:
        """Writes the folder that `from_pretrained` reads: what changed, as safetensors and JSON.

        The folder appears whole or not at all. It says where a pretrained model from a folder lies
        here; `shared` is for others: names alone, and who loads it says where that model is.

        Raises:
            DataError: when the folder exists and is not a saved classifier.
            UsageError: after `quantize`, which leaves nothing exact to save.
        """
        return saving.save(self._fitted(), Path(folder), shared=shared)

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path,
        *,
        device: str | None = None,
        int8: bool = False,
        backbone: str | None = None,
        published_scores: bool = False,
        revision: str | None = None,
        token: str | bool | None = None,
        cache_dir: str | Path | None = None,
        force_download: bool = False,
        local_files_only: bool = False,
    ) -> "FewShotClassifier":
        """A classifier from a saved folder or a hub repository; needs no training data.

        `int8` is `quantize`, and means the CPU where no device is named. `backbone` is the
        pretrained model, where the folder that someone else saved refers to one outside of it. The
        others are those of huggingface_hub's `ModelHubMixin`, for a repository: a branch, tag or
        commit, who asks, where downloads are kept, and whether to ask the hub again, or not at all.

        Raises:
            OutsideModelError: when such a model is not given; a DataError as well.
            DataError: for a missing, altered or foreign file.
            UsageError: for `int8` on another device than the CPU.
        """
        device = device or ("cpu" if int8 else None)
        pull = Pull(revision, token, cache_dir, force_download, local_files_only)
        fitted = saving.load(str(name), device=device, pull=pull, backbone_name=backbone)
        classifier = cls(device=device, published_scores=published_scores)
        classifier.experiment = fitted.experiment
        classifier._restore(fitted)
        return classifier.quantize() if int8 else classifier

    def push_to_hub(
        self,
        repo_id: str,
        *,
        example: ImageSource | None = None,
        private: bool | None = None,
        token: str | None = None,
        branch: str | None = None,
        create_pr: bool | None = None,
        commit_message: str | None = None,
    ) -> str:
        """Uploads the saved folder, with its model card, to a Hugging Face model repository; the
        address of the commit. `from_pretrained("user/name")` reads it.

        An `example` image is uploaded too, as small pixels alone, for the card's widget, with what
        this classifier answers. The others are those of huggingface_hub's `ModelHubMixin`; a
        `branch` is made where there is none.

        Raises:
            UsageError: after `quantize`, which leaves nothing exact to save; for what cannot be a
                repository's name; when nobody is logged in.
            DataError: when the hub cannot be reached or refuses; for an example that cannot be
                read.
        """
        fitted, shown = self._fitted(), None
        if example is not None:
            image = open_image(example)
            found = zip(self.classes, self.predict_proba(image).tolist(), strict=True)
            ranked = sorted(found, key=lambda pair: -pair[1])
            shown = saving.Example(image, dict(ranked[:LIKELIEST]))
        push = Push(private, token, branch, create_pr, commit_message)
        return saving.push(fitted, repo_id, push, shown)

    def _fitted(self) -> saving.Fitted:
        """What is saved or uploaded; rounded layers could not be loaded again."""
        if self._int8:
            raise UsageError(
                "This classifier has been rounded to 8 bits: save it before, and quantize what "
                "from_pretrained reads."
            )
        embeds = self.known.everything
        tensors = {"weight": embeds.weight, "per_prompt": embeds.per_prompt}
        return saving.Fitted(
            experiment=self.experiment,
            method=self.method,
            classes=self.known.classes,
            metrics=self.metrics,
            provenance=self.provenance,
            embeds={name: tensor for name, tensor in tensors.items() if tensor is not None},
            shots={
                **hashes_as_tensors(self.trained_images),
                **assessment_tensors(self.assessment),
                **self.known.tensors(),
            },
            assessment=assessment_numbers(self.assessment),
        )

    def _restore(self, fitted: saving.Fitted) -> None:
        method = fitted.method
        self.take(method)
        everything = None
        if fitted.embeds is not None:
            device, each = method.backbone.device, fitted.embeds.get("per_prompt")
            everything = method.class_embeddings(
                fitted.classes.everything,
                fitted.embeds["weight"].to(device),
                None if each is None else each.to(device),
            )
        self._known = KnownClasses(
            method, fitted.classes, everything, given_means(fitted.shots, fitted.classes)
        )
        shape = (len(fitted.classes.trained), method.backbone.dim)
        self.assessment = read_assessment(fitted.assessment, fitted.shots, shape)
        self.trained_images = hashes_of_tensors(fitted.shots)
        self.metrics, self.provenance = dict(fitted.metrics), dict(fitted.provenance)
