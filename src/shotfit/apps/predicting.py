"""What `shotfit predict` does: rows of answers from a stream of images, here or on Ray."""

import contextlib
import hashlib
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn

from shotfit import archive
from shotfit.apps.prediction_file import Row
from shotfit.classifier import FewShotClassifier
from shotfit.cluster import RayOptions
from shotfit.data.listing import find_images
from shotfit.data.loading import Loading
from shotfit.errors import DataError
from shotfit.scoring import Scored

# Without a terminal: a line of progress at most this often, in seconds.
PLAIN_INTERVAL = 10.0


@dataclass(frozen=True)
class Question:
    """What is asked of which classifier; everything that decides what a row says."""

    model: str
    classes: tuple[str, ...] | None = None
    """Names to choose among; None takes the classifier's own."""
    top: int = 1
    int8: bool = False
    draft: bool = False


class Answerer:
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
            question.model, device=device, int8=question.int8
        )
        self.names = question.classes or self.classifier.classes

    def rows(self, images: Iterator[str]) -> Generator[list[Row], None, None]:
        """Batches of rows in the order of the images; an image that cannot be read has an "error"
        in place of "answers"."""
        batches = self.classifier.score(
            images,
            self.question.classes,
            batch_size=self.batch_size,
            draft=self.question.draft,
            loading=self.loading,
        )
        with contextlib.closing(batches):
            for batch in batches:
                yield list(self._rows(batch))

    def _rows(self, batch: Scored) -> Iterator[Row]:
        count = min(self.question.top, len(self.names))
        found = batch.logits.softmax(dim=-1).topk(count)
        readable = zip(found.values.tolist(), found.indices.tolist(), strict=True)
        for place, image in enumerate(batch.images):
            if place in batch.broken:
                yield {"image": str(image), "error": str(batch.broken[place])}
                continue
            probabilities, chosen = next(readable)
            answers = [
                {"class": self.names[index], "probability": round(probability, 6)}
                for probability, index in zip(probabilities, chosen, strict=True)
            ]
            yield {"image": str(image), "answers": answers}


class Show(Protocol):
    """Progress: how many images have been answered and how many of those were unreadable."""

    def __call__(self, done: int, broken: int) -> None:
        """Shows it, if it is time to."""
        ...


def survey(places: Sequence[str]) -> tuple[int, str]:
    """The number of images and a digest of their names, in constant memory.

    Raises:
        DataError: for a folder or pattern without images.
    """
    count, names = 0, hashlib.sha256()
    for name in find_images(places):
        names.update(name.encode("utf-8", "surrogateescape") + b"\0")
        count += 1
    return count, names.hexdigest()[:12]


def identity(question: Question, places: Sequence[str]) -> tuple[int, dict[str, Any]]:
    """The number of images, and all that the rows of a command depend on as plain values.

    Raises:
        DataError: for a folder that is no saved classifier, or places without images.
    """
    settings = archive.read_settings(archive.find(question.model))
    count, digest = survey(places)
    return count, {
        "model": settings["checksum"][:12],
        "classes": None if question.classes is None else list(question.classes),
        "top": question.top,
        "int8": question.int8,
        "draft": question.draft,
        "images": digest,
    }


def predictions(
    question: Question,
    places: Sequence[str],
    *,
    skip: int = 0,
    total: int,
    batch_size: int = 64,
    device: str | None = None,
    ray: RayOptions | None = None,
    skip_broken: bool = False,
    quiet: bool = False,
) -> Iterator[list[Row]]:
    """Batches of rows, in order, from the image number `skip` on, with progress.

    Raises:
        DataError: at the first image that cannot be read, after the rows before it; with
            `skip_broken` its row says why instead.
    """
    images = islice(find_images(places), skip, None)
    if ray is None:
        batches = Answerer(question, batch_size=batch_size, device=device).rows(images)
    else:
        from shotfit.apps.predicting_on_ray import rows_on_ray

        batches = rows_on_ray(question, images, ray, batch_size=batch_size, device=device)
    done, broken = skip, 0
    with contextlib.closing(batches), _progress(total, skip, quiet) as show:
        for rows in batches:
            errors = [number for number, row in enumerate(rows) if "error" in row]
            if errors and not skip_broken:
                yield rows[: errors[0]]
                raise DataError(
                    f"{rows[errors[0]]['error']} Use --skip-broken to note this in the image's row "
                    "and go on."
                )
            yield rows
            done, broken = done + len(rows), broken + len(errors)
            show(done, broken)


@contextmanager
def _progress(total: int, skip: int, quiet: bool) -> Iterator[Show]:
    """A bar on a terminal, a line now and then elsewhere, on standard error."""
    started = last = time.monotonic()

    def words(done: int, broken: int) -> str:
        rate = (done - skip) / max(1e-9, time.monotonic() - started)
        return f"{rate:,.0f} images/s" + (f", {broken:,} unreadable" if broken else "")

    def line(done: int, broken: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= PLAIN_INTERVAL:
            last = now
            print(f"{done:,}/{total:,}: {words(done, broken)}", file=sys.stderr, flush=True)

    console = Console(stderr=True)
    if quiet:
        yield lambda done, broken: None
    elif not console.is_terminal:
        yield line
    else:
        columns = (*Progress.get_default_columns(), MofNCompleteColumn())
        rate = TextColumn("{task.fields[rate]}")
        with Progress(*columns, rate, console=console, transient=True) as bars:
            task = bars.add_task("predicting", total=total, completed=skip, rate="")
            yield lambda done, broken: bars.update(task, completed=done, rate=words(done, broken))
