"""Predictions over any number of images in constant memory, with progress."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress, TextColumn

from shotfit.classifier import FewShotClassifier, list_images


def predictions(
    classifier: FewShotClassifier,
    images: Sequence[str],
    classnames: Sequence[str] | None,
    *,
    top: int,
    batch_size: int,
    quiet: bool,
) -> Iterator[dict[str, Any]]:
    """For each image its file and its `top` answers with probabilities, in order."""
    files = [file for where in images for file in (list_images(where) or [where])]
    names = classifier.classes if classnames is None else classnames
    count = min(top, len(names))
    done, started = 0, time.monotonic()
    columns = (*Progress.get_default_columns(), TextColumn("{task.fields[rate]}"))
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, disable=quiet or not console.is_terminal, transient=True
    ) as progress:
        task = progress.add_task("predicting", total=len(files), rate="")
        for logits in classifier.iter_logits(files, classnames, batch_size):
            probabilities, chosen = logits.softmax(dim=-1).topk(count)
            for offset, (p, c) in enumerate(zip(probabilities, chosen, strict=True)):
                yield {"image": str(files[done + offset]), "answers": _answers(names, p, c)}
            done += len(logits)
            rate = done / max(1e-9, time.monotonic() - started)
            progress.update(task, completed=done, rate=f"{rate:.0f} images/s")


def _answers(
    names: Sequence[str], probabilities: torch.Tensor, chosen: torch.Tensor
) -> list[dict[str, Any]]:
    return [
        {"class": names[index], "probability": round(probability, 6)}
        for probability, index in zip(probabilities.tolist(), chosen.tolist(), strict=True)
    ]
