"""Predicting as Python asks for it: images of any kind in, names and probabilities out."""

import contextlib
import warnings
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from shotfit.data.images import ImageSource
from shotfit.data.names import check_names
from shotfit.data.prefetch import Loading
from shotfit.data.python_data import images_of
from shotfit.errors import UsageError
from shotfit.evaluation.assessment import Assessment
from shotfit.evaluation.decisions import Refusal, Sets
from shotfit.evaluation.expected import Expected
from shotfit.evaluation.inference import PredictedBatch, predict_batches
from shotfit.evaluation.scoring import Scorer
from shotfit.evaluation.unknown_names import spelled_otherwise
from shotfit.known_classes import KnownClasses
from shotfit.methods.base import Method


class Predicting(ABC):
    """What answers with the names of its classes, by the rule that it goes by."""

    assessment: Assessment | None
    published_scores: bool

    @property
    @abstractmethod
    def known(self) -> KnownClasses:
        """The method and its classes, embedded."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The names that `predict` answers with; their order is that of `predict_proba`."""
        return self.known.classes.names

    @property
    def method(self) -> Method:
        """The adapted method.

        Raises:
            UsageError: before `fit`.
        """
        return self.known.method

    @property
    def expected(self) -> Expected | None:
        """The accuracy to expect on new images, its curve over the shots and what more images would
        do, by shots held out after the fit; None where none could be."""
        return None if self.assessment is None else self.assessment.expected

    def predict(
        self,
        images: Any,
        classnames: Sequence[str] | None = None,
        *,
        reject: float | None = None,
        fetch_urls: bool = False,
    ) -> Any:
        """The most likely class name of each image; with `classnames`, among those instead.

        With `reject`, None for an image that is none of the classes: by a threshold under which at
        most that share of trained images falls, as held-out shots say.

        `images` is one image, a folder or pattern, or what holds images: a list, an array (n, h, w,
        3), a generator, a data frame or dataset (`python_data`). An image is a path, bytes, a file
        object, a PIL image or an array; addresses on the web are fetched only with `fetch_urls`.

        Raises:
            DataError: for an image that cannot be read.
            UsageError: for what holds no images, and for a rate that the shots cannot tell.
        """
        self.warn_of_spelling(classnames or ())
        scorer = self.scorer(classnames)
        refusal = None if reject is None else Refusal(scorer.held_out, scorer.trained, reject)
        found, single = images_of(images, fetch_urls=fetch_urls)
        answers: list[str | None] = []
        for batch in _readable(scorer, found):
            refused = [False] * len(batch.logits)
            if refusal is not None:
                refused = batch.refused(refusal).tolist()
            chosen = zip(batch.logits.argmax(dim=-1).tolist(), refused, strict=True)
            answers += [None if none else scorer.names[index] for index, none in chosen]
        return answers[0] if single else answers

    def prediction_sets(
        self,
        images: Any,
        coverage: float = 0.9,
        classnames: Sequence[str] | None = None,
        *,
        fetch_urls: bool = False,
    ) -> Any:
        """For each image the classes, likeliest first, among which the right one is with this
        probability; `images` as in `predict`.

        What is promised holds on average over images like the shots (conformal prediction).

        Raises:
            DataError: for an image that cannot be read.
            UsageError: when so few shots cannot promise that, saying what they can.
        """
        scorer = self.scorer(classnames)
        sets = Sets(scorer.held_out, scorer.trained, coverage)
        found, single = images_of(images, fetch_urls=fetch_urls)
        answers: list[tuple[str, ...]] = []
        for batch in _readable(scorer, found):
            order = batch.logits.argsort(dim=-1, descending=True).tolist()
            for inside, ranked in zip(sets(batch.logits.numpy()), order, strict=True):
                answers.append(tuple(scorer.names[index] for index in ranked if inside[index]))
        return answers[0] if single else answers

    def predict_proba(
        self, images: Any, classnames: Sequence[str] | None = None, *, fetch_urls: bool = False
    ) -> np.ndarray:
        """Softmax probabilities, float32 (images, classes), or (classes,) for a single image."""
        found, single = images_of(images, fetch_urls=fetch_urls)
        classes = len(self.classes if classnames is None else classnames)
        batches = [logits.softmax(dim=-1) for logits in self.iter_logits(found, classnames)]
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
        for batch in _readable(self.scorer(classnames), images, batch_size):
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
        return predict_batches(
            self.scorer(classnames),
            images,
            batch_size=batch_size,
            reduced=reduced,
            loading=loading,
        )

    def warn_of_spelling(self, classnames: Sequence[str]) -> None:
        """Warns where a trained class is asked for in another spelling, and so is not asked for."""
        for name, trained in spelled_otherwise(classnames, self.method.trained_names):
            warnings.warn(
                f"{name!r} is scored by its name alone: the class that was trained is spelt "
                f"{trained!r}.",
                stacklevel=3,
            )

    @property
    def rule(self) -> Literal["fitted", "published"]:
        """How classes are compared: on the scale that was fitted on the shots, or as published."""
        return "published" if self.assessment is None or self.published_scores else "fitted"

    @torch.no_grad()
    def scorer(self, classnames: Sequence[str] | None = None) -> Scorer:
        """What scores images, for prediction and evaluation alike: among `classnames`, or else
        among `classes`, which are embedded once until they change.

        Raises:
            DataError: for an empty name or one that is too long.
            UsageError: for no names at all.
        """
        classes = self.known.active
        if classnames is not None:
            check_names(classnames)
            if not len(classnames):
                raise UsageError("There are no class names to choose among.")
            classes = self.method.encode_classes(classnames)
        assessment = self.assessment if self.rule == "fitted" else None
        return Scorer(self.method, classes, self.known.given(classes), assessment)


def _readable(
    scorer: Scorer, images: Iterable[ImageSource], batch_size: int = 64
) -> Iterator[PredictedBatch]:
    """Batches of images that can all be read; the first that cannot raises its error."""
    with contextlib.closing(predict_batches(scorer, images, batch_size=batch_size)) as batches:
        for batch in batches:
            for error in batch.broken.values():
                raise error
            yield batch
