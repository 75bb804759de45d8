"""A question put to a saved classifier, and who answers it: this process, or a replica on Ray."""

import contextlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

from shotfit.apps.predict.table_file import Row
from shotfit.classifier import FewShotClassifier
from shotfit.data.addresses import is_address
from shotfit.data.images import HashedFile
from shotfit.data.prefetch import Loading
from shotfit.evaluation.decisions import Refusal, Sets
from shotfit.evaluation.inference import PredictedBatch, predict_batches


@dataclass(frozen=True)
class Question:
    """What is asked of which classifier; everything that decides what a row says."""

    model: str
    classes: tuple[str, ...] | None = None
    """Names to choose among; None takes the classifier's own."""
    top: int = 1
    int8: bool = False
    reduced: bool = False
    published_scores: bool = False
    reject: float | None = None
    """The share of trained images that may be refused as none of the classes."""
    sets: float | None = None
    """The probability with which a set of classes holds the right one."""
    contents: bool = False
    """Whether rows have the "content" of their image's file, by which it is known again."""
    backbone: str | None = None
    """The pretrained model, where the classifier may not choose it."""


class Predictor:
    """A loaded classifier that turns images into rows; what a replica on Ray is made of."""

    def __init__(
        self,
        question: Question,
        *,
        batch_size: int,
        device: str | None = None,
        workers: int | None = None,
    ) -> None:
        self.question = question
        self.batch_size = batch_size
        self.loading = Loading(workers=workers)
        self.classifier = FewShotClassifier.from_pretrained(
            question.model,
            device=device,
            int8=question.int8,
            backbone=question.backbone,
            published_scores=question.published_scores,
        )
        # Once for all images, though `rows` may be asked for block by block.
        self.classifier.warn_of_spelling(question.classes or ())
        self.scorer = self.classifier.scorer(question.classes)
        known = self.scorer.held_out, self.scorer.trained
        self.refusal = None if question.reject is None else Refusal(*known, question.reject)
        self.sets = None if question.sets is None else Sets(*known, question.sets)

    def rows(self, images: Iterator[str]) -> Generator[list[Row], None, None]:
        """Batches of rows in the order of the images; an image that cannot be read has an "error"
        in place of "answers"."""
        sources = (
            HashedFile(name) if self.question.contents and not is_address(name) else name
            for name in images
        )
        batches = predict_batches(
            self.scorer,
            sources,
            batch_size=self.batch_size,
            reduced=self.question.reduced,
            loading=self.loading,
        )
        with contextlib.closing(batches):
            for batch in batches:
                yield list(self._rows(batch))

    def _rows(self, batch: PredictedBatch) -> Iterator[Row]:
        names = self.scorer.names
        count = min(self.question.top, len(names))
        found = batch.logits.softmax(dim=-1).topk(count)
        readable = zip(found.values.tolist(), found.indices.tolist(), strict=True)
        more = self._decisions(batch)
        for place, image in enumerate(batch.images):
            known: dict[str, Any] = {"image": str(image)}
            if self.question.contents:
                known["content"] = image.content if isinstance(image, HashedFile) else ""
            if place in batch.broken:
                yield {**known, "error": str(batch.broken[place])}
                continue
            probabilities, chosen = next(readable)
            answers = [
                {"class": names[index], "probability": round(probability, 6)}
                for probability, index in zip(probabilities, chosen, strict=True)
            ]
            yield {**known, **answers[0], "answers": answers, **next(more)}

    def _decisions(self, batch: PredictedBatch) -> Iterator[Row]:
        """For each readable image, whether it is refused and its set, as far as they are asked."""
        names = self.scorer.names
        refused = None if self.refusal is None else batch.refused(self.refusal).tolist()
        sets = None if self.sets is None else self.sets(batch.logits.numpy())
        order = batch.logits.argsort(dim=-1, descending=True).tolist()
        for number in range(len(batch.logits)):
            row: dict[str, Any] = {}
            if refused is not None:
                row["refused"] = refused[number]
            if sets is not None:
                row["set"] = [names[place] for place in order[number] if sets[number, place]]
            yield row
