"""A question put to a saved classifier, and who answers it: this process, or a replica on Ray."""

import contextlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass

from shotfit.apps.predict.output_file import Row
from shotfit.classifier import FewShotClassifier
from shotfit.data.prefetch import Loading
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
        self.scorer = self.classifier.scorer(question.classes)

    def rows(self, images: Iterator[str]) -> Generator[list[Row], None, None]:
        """Batches of rows in the order of the images; an image that cannot be read has an "error"
        in place of "answers"."""
        batches = predict_batches(
            self.scorer,
            images,
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
        for place, image in enumerate(batch.images):
            if place in batch.broken:
                yield {"image": str(image), "error": str(batch.broken[place])}
                continue
            probabilities, chosen = next(readable)
            answers = [
                {"class": names[index], "probability": round(probability, 6)}
                for probability, index in zip(probabilities, chosen, strict=True)
            ]
            yield {"image": str(image), "answers": answers}
