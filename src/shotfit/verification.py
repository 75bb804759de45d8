"""Whether a saved classifier is whole, and still answers as it did when it was saved."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shotfit import saving
from shotfit.errors import DataError, UsageError
from shotfit.probe import probe_scores
from shotfit.saved_settings import CONFIG, read_settings
from shotfit.saving import Fitted

TOLERANCE = 1e-3
"""How far answers of another device, version or number of threads may lie: scores are cosines times
the model's scale, which is 100 in CLIP, so this is 1e-5 of it."""
ROUNDING = 1e-4
"""The same where those are as they were: processors choose how they add by where numbers lie in
memory, so that the last bits may differ from one loading to the next."""
EMBEDDING_TOLERANCE = 1e-5
"""The same for unit embeddings of class names."""


@dataclass(frozen=True)
class Check:
    """One thing that was looked at: `passed` is None for what could not be."""

    what: str
    passed: bool | None
    detail: str


def verify(
    folder: Path, *, device: str | None = None, backbone: str | None = None
) -> Iterator[Check]:
    """Looks at the files, their hashes and tensors, the pretrained model, the class embeddings and
    the answer to the probe, in this order; ends where nothing further can be looked at.

    Raises:
        OutsideModelError: when it is only for the user to say that a model is to be used.
    """
    try:
        settings = read_settings(folder)
    except (DataError, UsageError, OSError) as error:
        yield Check("files", False, str(error))
        return
    yield Check("files", True, f"{CONFIG} and {', '.join(settings['files'])} are unaltered")
    try:
        fitted = saving.load(str(folder), device=device, backbone_name=backbone)
    except (DataError, UsageError, OSError) as error:
        yield Check("model", False, str(error))
        return
    learned = fitted.method.learned_state()
    values = sum(tensor.numel() for tensor in learned.values())
    yield Check("tensors", True, f"{len(learned)} with {values:,} values, all finite, all fit")
    yield _model(settings, fitted)
    yield _classes(fitted)
    yield _probe(settings.get("probe"), fitted)


def _model(settings: dict[str, Any], fitted: Fitted) -> Check:
    name = fitted.method.backbone.name
    if settings.get("frozen_fingerprint") is None:
        return Check("model", None, f"{name}: only its position embeddings were noted, they fit")
    return Check("model", True, f"{name}, every tensor that was not trained as it was")


@torch.no_grad()
def _classes(fitted: Fitted) -> Check:
    """Embeds the names again, where the method can without what it was trained on."""
    names, kept = fitted.classes.everything, fitted.embeds
    if kept is None:
        return Check("classes", None, f"{len(names)} names, whose embeddings were not kept")
    try:
        made = fitted.method.encode_classes(names).weight
    except UsageError as error:
        return Check("classes", None, f"{len(names)} names; {error}")
    return _compared(
        "classes", f"{len(names)} names embedded again", kept["weight"], made, EMBEDDING_TOLERANCE
    )


def _probe(kept: Any, fitted: Fitted) -> Check:
    if kept is None:
        return Check("answer", None, "none was kept: saved before there were any")
    try:
        before = torch.tensor(kept["scores"], dtype=torch.float32)
        exact = (kept["torch"], kept["device"], kept["threads"]) == (
            torch.__version__,
            fitted.method.backbone.device.type,
            torch.get_num_threads(),
        )
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        return Check("answer", False, f"what was kept of it cannot be read: {error}")
    now = probe_scores(fitted.method, fitted.classes.everything, fitted.embeds)
    most = ROUNDING if exact else TOLERANCE
    return _compared("answer", f"{len(now)} scores of the probe", before, now, most)


def _compared(what: str, shown: str, before: Tensor, now: Tensor, most: float) -> Check:
    before, now = before.float().cpu(), now.float().cpu()
    if before.shape != now.shape:
        return Check(what, False, f"{shown}: {list(now.shape)}, and not {list(before.shape)}")
    difference = (before - now).abs().max().item() if before.numel() else 0.0
    if difference == 0:
        return Check(what, True, f"{shown}, equal to the bit")
    told = f"{shown}, different by {difference:.1e} (up to {most:.0e} is allowed)"
    return Check(what, difference <= most, told)
