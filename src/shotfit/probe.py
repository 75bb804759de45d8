"""A picture that a classifier is shown when it is saved: its scores are kept, to be compared later.

It is made of whole numbers by a formula, so that every machine draws the same one; no photograph is
kept for it, and what it shows is nothing.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from shotfit.data.transforms import ImageSpec
from shotfit.methods.base import Method

SCORES = 8
"""How many are kept, of the first classes."""


def probe_pixels(spec: ImageSpec) -> Tensor:
    """The picture as a backbone takes it, float32 (1, 3, size, size)."""
    rows = torch.arange(spec.size).view(1, -1, 1)
    columns = torch.arange(spec.size).view(1, 1, -1)
    channels = torch.arange(3).view(-1, 1, 1)
    levels = (7 * rows + 13 * columns + (rows * columns) // 16 + 85 * channels) % 256
    mean, std = (torch.tensor(x).view(-1, 1, 1) for x in (spec.mean, spec.std))
    return ((levels.to(torch.float32) * spec.scale - mean) / std).unsqueeze(0)


@torch.no_grad()
def probe_scores(
    method: Method, names: tuple[str, ...], embeds: Mapping[str, Tensor] | None
) -> Tensor:
    """The published scores of the picture among the classes, float32 (at most `SCORES`,), on the
    CPU. With the classes' `embeds`, as they are saved, no text is embedded."""
    device, backbone = method.backbone.device, method.backbone
    if embeds is None:
        classes = method.encode_classes(names)
    else:
        each = embeds.get("per_prompt")
        classes = method.class_embeddings(
            names, embeds["weight"].to(device), None if each is None else each.to(device)
        )
    scores = method(probe_pixels(backbone.image_spec).to(device), classes)
    return scores[0, :SCORES].float().cpu()


def probe_facts(scores: Tensor, device: str) -> dict[str, Any]:
    """What is kept of it: JSON keeps every bit of a number in single precision."""
    return {
        "scores": scores.tolist(),
        "torch": torch.__version__,
        "device": device,
        "threads": torch.get_num_threads(),
    }
