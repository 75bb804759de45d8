"""Bulk prediction on Ray Data: one loaded classifier per replica, rows in order.

https://docs.ray.io/en/latest/data/batch_inference.html. Replicas read the classifier, its backbone
and the images by the same paths as here. A replica that is lost is started again, and the images
it was given are answered again; the rows come back to this process, so that a file of them is
resumed as without Ray.
"""

import importlib
import json
import logging
import os
import re
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from shotfit.apps.predict.predictor import Predictor, Question
from shotfit.apps.predict.table_file import Row
from shotfit.errors import DataError, UsageError
from shotfit.system.ray_cluster import RayOptions, connected, slots

# Images that a replica is given at a time, in batches: enough for its threads to work ahead.
BATCHES = 4
# Images whose names Ray and this process hold at a time; new replicas are started for the next.
NAMES = 1_000_000


def rows_on_ray(
    question: Question,
    images: Iterator[str],
    options: RayOptions,
    *,
    batch_size: int,
    device: str | None,
) -> Generator[list[Row], None, None]:
    """Batches of rows in the order of the images, as `Predictor.rows`.

    Raises:
        UsageError: when Ray or what Ray Data needs is not installed, or no machine has what a
            replica takes.
        DataError: when the cluster cannot be reached, or replicas fail, with the reason.
    """
    with connected(options) as ray:
        try:
            data = importlib.import_module("ray.data")
        except ImportError as error:
            raise UsageError(
                f"--ray needs Ray Data: pip install 'shotfit[bench]' ({error})."
            ) from None
        context = data.DataContext.get_current()
        context.enable_progress_bars = False
        context.execution_options.preserve_order = True
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        while names := list(islice(images, NAMES)):
            try:
                yield from _predicted(
                    data, question, names, options, slots(ray, options), batch_size, device
                )
            except ray.exceptions.RayError as error:
                raise DataError(f"Predicting on Ray failed: {_reason(error)}") from error


def _predicted(
    data: Any,
    question: Question,
    names: Sequence[str],
    options: RayOptions,
    replicas: int,
    batch_size: int,
    device: str | None,
) -> Iterator[list[Row]]:
    size = BATCHES * batch_size
    # A block of images is what a replica takes at a time, and what is repeated after a loss.
    places = [os.path.abspath(os.path.expanduser(name)) for name in names]
    dataset = data.from_items(places, override_num_blocks=-(-len(places) // size))
    answered = dataset.map_batches(
        Replica,
        fn_constructor_kwargs={
            "question": replace(question, model=_anywhere(question.model)),
            "batch_size": batch_size,
            "device": device,
            "workers": max(1, round(options.cpus)),
        },
        batch_size=size,
        compute=data.ActorPoolStrategy(min_size=1, max_size=max(1, replicas)),
        num_cpus=options.cpus,
        num_gpus=options.gpus or None,
    )
    named = zip(places, names, strict=True)
    for batch in answered.iter_batches(batch_size=size, batch_format="numpy"):
        rows = [json.loads(row) for row in batch["row"]]
        for row in rows:
            # Other replicas' rows may stand before it.
            if "failed" in row:
                raise DataError(f"A replica on Ray cannot answer: {row['failed']}")
        yield [_as_given(row, *next(named)) for row in rows]


def _as_given(row: Row, place: str, name: str) -> Row:
    """The row that is written without Ray, where an image goes by its name, not its whole path."""
    if "error" in row:
        return {**row, "image": name, "error": row["error"].replace(place, name)}
    return {**row, "image": name}


def _reason(error: Exception) -> str:
    """What a replica died of. Ray puts tracebacks before it, if there are any, and advice after."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return next((line for line in lines if re.match(r"[\w.]+(Error|Exception): ", line)), lines[0])


def _anywhere(model: str) -> str:
    """A local folder by its whole path; replicas have working directories of their own."""
    folder = Path(model).expanduser()
    return str(folder.absolute()) if folder.is_dir() else model


class Replica:
    """A classifier in a Ray actor."""

    def __init__(
        self, *, question: Question, batch_size: int, device: str | None, workers: int
    ) -> None:
        import torch

        torch.set_num_threads(workers)
        self.predictor: Predictor | None = None
        try:
            self.predictor = Predictor(
                question, batch_size=batch_size, device=device, workers=workers
            )
        except Exception as error:
            # If it were raised here, Ray would report it in a hundred lines.
            self.failure = _words(error)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Paths in, rows out: as JSON, since rows with answers and with an error differ."""
        if self.predictor is not None:
            names = iter([str(name) for name in batch["item"]])
            try:
                rows = [row for rows in self.predictor.rows(names) for row in rows]
                return {"row": [json.dumps(row) for row in rows]}
            except Exception as error:
                self.failure = _words(error)
        return {"row": [json.dumps({"failed": self.failure})]}


def _words(error: Exception) -> str:
    """Our own messages as they are; unforeseen errors with their type."""
    known = isinstance(error, DataError | UsageError)
    return str(error) if known else f"{type(error).__name__}: {error}"
