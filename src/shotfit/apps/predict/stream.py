"""What `shotfit predict` does: rows of answers from a stream of images, here or on Ray."""

import contextlib
import hashlib
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, Protocol

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn

from shotfit import saving
from shotfit.apps.predict.predictor import Predictor, Question
from shotfit.apps.predict.table_file import Row
from shotfit.data.image_files import find_images
from shotfit.errors import DataError
from shotfit.saved_settings import read_settings
from shotfit.system.memory import reused_memory
from shotfit.system.ray_cluster import RayOptions

# Without a terminal: a line of progress at most this often, in seconds.
PLAIN_INTERVAL = 10.0


class Show(Protocol):
    """Progress: how many images have been answered and how many of those were unreadable."""

    def __call__(self, done: int, broken: int) -> None:
        """Shows progress when an update is due."""
        ...


def survey(places: Sequence[str]) -> tuple[int, str]:
    """The number of images and a digest of their names, which are not kept.

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
        DataError: for a folder that is not a saved classifier, or places without images.
    """
    settings = read_settings(saving.find(question.model))
    count, digest = survey(places)
    return count, {
        "model": settings["checksum"][:12],
        "classes": None if question.classes is None else list(question.classes),
        "top": question.top,
        "int8": question.int8,
        "reduced": question.reduced,
        "published_scores": question.published_scores,
        "reject": question.reject,
        "sets": question.sets,
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
        batches = Predictor(question, batch_size=batch_size, device=device).rows(images)
    else:
        from shotfit.apps.predict.on_ray import rows_on_ray

        batches = rows_on_ray(
            question, images, ray, batch_size=batch_size, device=ray.device(device)
        )
    done, broken = skip, 0
    with reused_memory(), contextlib.closing(batches), _progress(total, skip, quiet) as show:
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
