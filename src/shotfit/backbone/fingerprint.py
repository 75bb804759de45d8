"""What tells one pretrained model from another: its tensors, as they were before training."""

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor

from shotfit.backbone.model import Backbone
from shotfit.errors import DataError


def position_fingerprint(backbone: Backbone) -> str:
    """Twelve hex digits of the position embeddings: small, in every family, and never trained.

    They tell models apart before a method is built on one, but not two that share them.
    """
    digest = hashlib.sha256()
    for tower in (backbone.vision, backbone.text):
        digest.update(_bytes(tower.position_embedding))
    return digest.hexdigest()[:12]


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """The SHA-256 of tensors, their names and shapes; numbers count in single precision."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(f"{name} {tuple(tensors[name].shape)}\n".encode())
        digest.update(_bytes(tensors[name]))
    return digest.hexdigest()


def check_finite(tensors: Mapping[str, Tensor]) -> None:
    """Refuses tensors that answer nothing.

    Raises:
        DataError: naming the first that has a value that is not finite.
    """
    for name, values in tensors.items():
        if values.is_floating_point() and not torch.isfinite(values).all():
            raise DataError(
                f"The tensor {name} has values that are not finite, so that no answer would be. "
                "Training with too high a learning rate ends so."
            )


def _bytes(values: Tensor) -> bytes:
    values = values.detach().cpu()
    plain = values.to(torch.float32) if values.is_floating_point() else values
    return plain.contiguous().numpy().tobytes()
