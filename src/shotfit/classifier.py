"""`FewShotClassifier`: fit, predict, new classes by name, save and load."""

import glob
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shotfit import archive
from shotfit.config import to_dict
from shotfit.data import load_dataset, locate
from shotfit.data.checks import check_names
from shotfit.data.dataset import Dataset, Example, Split, make_task
from shotfit.data.images import SUFFIXES, ImageSource, open_image, prepare
from shotfit.errors import DataError, UsageError
from shotfit.evaluation import evaluate
from shotfit.experiment import Experiment, fit_task, pick_device
from shotfit.methods.base import ClassEmbeddings, Method
from shotfit.recipe import Observe, Recipe, named_recipe

Images = ImageSource | Sequence[ImageSource]


class FewShotClassifier:
    """An image classifier tuned from a few labelled images per class.

    It answers with the names of its classes: those it was trained on and those added by name. One
    image in, one answer out; a list, folder or glob pattern in, a list out.
    """

    def __init__(
        self,
        backbone: str = "iconclip",
        method: str | Recipe = "2sfs",
        *,
        seed: int = 1,
        device: str | None = None,
    ) -> None:
        """`method` is "2sfs", "2sfs:lora", a method's name, or a complete recipe.

        Raises:
            UsageError: for an unknown method.
        """
        recipe = method if isinstance(method, Recipe) else named_recipe(method)
        self.experiment = Experiment(
            source="",
            data={},
            setting="all_to_all",
            shots=None,
            seed=seed,
            backbone=backbone,
            recipe=recipe,
        )
        self.device = pick_device(device)
        self.metrics: dict[str, float] = {}
        self._method: Method | None = None
        self._added: list[str] = []
        self._kept: list[int] = []
        self._classes: ClassEmbeddings | None = None

    # Learning

    def fit(
        self,
        data: str | Path | Dataset | Sequence[tuple[ImageSource, str]],
        shots: int | None = None,
        *,
        observe: Observe | None = None,
    ) -> "FewShotClassifier":
        """Learns from a folder, a manifest, an embedded task, a dataset, or (image, name) pairs.

        `shots` images of each class are drawn; None takes all. `observe` is called after every
        update with the method, the stage and the step.

        Raises:
            DataError: for images or class names that cannot be used.
        """
        dataset = as_dataset(data)
        task = make_task(dataset, "all_to_all", shots, self.experiment.seed)
        return self.take(fit_task(self.experiment, task, observe=observe, device=str(self.device)))

    def take(self, method: Method, added: Sequence[str] = ()) -> "FewShotClassifier":
        """Uses an adapted method whose classes are those it was trained on, and `added`."""
        self._method = method.eval()
        self._added = list(added)
        self._kept = list(range(len(method.trained_names) + len(added)))
        self._classes = None
        return self

    # Classes

    @property
    def classes(self) -> tuple[str, ...]:
        """The names that `predict` answers with; their order is that of `predict_proba`."""
        names = (*self.method.trained_names, *self._added)
        return tuple(names[index] for index in self._kept)

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
        self._kept += range(before, before + len(names))
        self._classes = None

    def remove_classes(self, names: Sequence[str]) -> None:
        """Stops answering with these classes (all classes of a name).

        Raises:
            UsageError: for a name that is not among the classes, or when none would be left.
        """
        known = self.classes
        missing = [name for name in names if name not in known]
        if missing:
            raise UsageError(f"There is no class {', '.join(map(repr, missing))} to remove.")
        kept = [i for i, name in zip(self._kept, known, strict=True) if name not in names]
        if not kept:
            raise UsageError("A classifier needs at least one class.")
        self._kept = kept
        self._classes = None

    # Predicting

    def predict(self, images: Images, classnames: Sequence[str] | None = None) -> Any:
        """The most likely class name of each image; with `classnames`, among those instead.

        Raises:
            DataError: for an image that cannot be read.
        """
        names = self.classes if classnames is None else tuple(classnames)
        paths, single = self._expand(images)
        answers = [
            names[index]
            for logits in self.iter_logits(paths, classnames)
            for index in logits.argmax(dim=-1).tolist()
        ]
        return answers[0] if single else answers

    def predict_proba(self, images: Images, classnames: Sequence[str] | None = None) -> np.ndarray:
        """Softmax probabilities, float32 (images, classes), or (classes,) for a single image."""
        paths, single = self._expand(images)
        batches = [logits.softmax(dim=-1) for logits in self.iter_logits(paths, classnames)]
        probabilities = torch.cat(batches).numpy()
        return probabilities[0] if single else probabilities

    @torch.no_grad()
    def iter_logits(
        self,
        images: Sequence[ImageSource],
        classnames: Sequence[str] | None = None,
        batch_size: int = 64,
    ) -> Iterator[Tensor]:
        """Logits batch by batch, so that any number of images takes constant memory."""
        if classnames is None:
            classes = self._class_embeddings()
        else:
            check_names(classnames)
            classes = self.method.encode_classes(classnames)
        spec = self.method.backbone.image_spec
        device = self.method.backbone.device
        for start in range(0, len(images), batch_size):
            batch = images[start : start + batch_size]
            pixels = torch.from_numpy(np.stack([prepare(open_image(i), spec) for i in batch]))
            yield self.method(pixels.to(device), classes).float().cpu()

    def evaluate(self, data: str | Path | Dataset) -> dict[str, float]:
        """Accuracy in percent on a dataset's test images (its training images without any).

        When the dataset has classes that this classifier was not trained on, they are novel: the
        metrics are then those of `shotfit.evaluation.evaluate` for base and novel.

        Raises:
            UsageError: when no class of the dataset is known and none can be added by name.
        """
        dataset = as_dataset(data)
        examples = dataset.test or dataset.train
        rows = self.method.trained_rows(dataset.classnames)
        known = [label for label, row in enumerate(rows) if row >= 0]
        unknown = [label for label, row in enumerate(rows) if row < 0]
        if not unknown:
            return evaluate(self.method, {"all": _part(dataset, examples, known)})
        if not known:
            return evaluate(self.method, {"all": _part(dataset, examples, unknown)})
        tests = {
            "base": _part(dataset, examples, known),
            "novel": _part(dataset, examples, unknown),
        }
        return evaluate(self.method, tests)

    # Saving

    def save_pretrained(self, folder: str | Path) -> Path:
        """Writes the folder that `from_pretrained` reads: what changed, as safetensors and JSON.

        The folder appears whole or not at all.

        Raises:
            DataError: when the folder exists and is not a saved classifier.
        """
        return archive.save(self, Path(folder))

    @classmethod
    def from_pretrained(
        cls, name: str | Path, *, device: str | None = None, revision: str | None = None
    ) -> "FewShotClassifier":
        """A classifier from a saved folder or a hub repository; needs no training data.

        Raises:
            DataError: for a missing, altered or foreign file.
        """
        return archive.load(cls, str(name), device=device, revision=revision)

    def push_to_hub(self, repository: str, *, private: bool = False) -> str:
        """Uploads the saved folder to a Hugging Face model repository and returns its address."""
        return archive.push(self, repository, private=private)

    def settings(self) -> dict[str, Any]:
        """What a saved classifier's config holds besides tensors, as plain values."""
        return {
            "experiment": to_dict(self.experiment),
            "trained_names": list(self.method.trained_names),
            "added_names": self._added,
            "kept": self._kept,
            "template": self.method.template,
            "metrics": self.metrics,
        }

    def _restore(self, method: Method, settings: Mapping[str, Any]) -> None:
        self.take(method, settings["added_names"])
        self._kept = list(settings["kept"])
        self.metrics = dict(settings["metrics"])

    @torch.no_grad()
    def _class_embeddings(self) -> ClassEmbeddings:
        """The classes' embeddings, computed once until the classes change."""
        if self._classes is None:
            names = (*self.method.trained_names, *self._added)
            everything = self.method.encode_classes(names)
            kept = torch.tensor(self._kept, device=everything.weight.device)
            views = everything.views
            self._classes = ClassEmbeddings(
                names=self.classes,
                weight=everything.weight[kept],
                rows=tuple(everything.rows[index] for index in self._kept),
                views=None if views is None else views[:, kept],
            )
        return self._classes

    def _expand(self, images: Images) -> tuple[list[ImageSource], bool]:
        """The single images that are meant, and whether one image was given as such."""
        if isinstance(images, str | Path):
            found = list_images(images)
            return (found, False) if found is not None else ([images], True)
        if isinstance(images, Sequence) and not isinstance(images, bytes):
            return list(images), False
        return [images], True


def list_images(where: str | Path) -> list[ImageSource] | None:
    """The images in a folder (and below) or matching a glob pattern; None for a plain file.

    Raises:
        DataError: when there are none.
    """
    path = Path(where).expanduser()
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
    elif glob.has_magic(str(where)) and not path.exists():
        files = sorted(Path(p) for p in glob.glob(str(path), recursive=True) if Path(p).is_file())
    else:
        return None
    if not files:
        raise DataError(f"No images in {where}.")
    return list(files)


def as_dataset(
    data: str | Path | Dataset | Sequence[tuple[ImageSource, str]], root: str | None = None
) -> Dataset:
    """What `fit` and `evaluate` accept, as a dataset.

    Raises:
        DataError: when it cannot be found or read.
    """
    if isinstance(data, Dataset):
        return data
    if isinstance(data, str | Path):
        source, options = locate(str(data))
        return load_dataset(source, root=root, **options)
    pairs = list(data)
    if not pairs:
        raise DataError("There are no images to learn from.")
    names = tuple(dict.fromkeys(name for _, name in pairs))
    label = {name: index for index, name in enumerate(names)}
    examples = tuple(
        Example(str(number), label[name], open_image(image, f"image {number}"))
        for number, (image, name) in enumerate(pairs)
    )
    return Dataset("images", names, examples)


def _part(dataset: Dataset, examples: Sequence[Example], labels: Sequence[int]) -> Split:
    position = {label: index for index, label in enumerate(labels)}
    return Split(
        classnames=tuple(dataset.classnames[label] for label in labels),
        examples=tuple(
            Example(example.key, position[example.label], example.image)
            for example in examples
            if example.label in position
        ),
        template=dataset.template,
    )
