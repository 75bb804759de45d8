"""Checkpoints of the pretraining steps: flat safetensors files, written in one piece."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file


def part(tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    """Tensors of one prefix, the prefix removed."""
    return {k[len(prefix) :]: v for k, v in tensors.items() if k.startswith(prefix)}


def write(tensors: dict[str, torch.Tensor], path: Path) -> None:
    """Write so that an interruption leaves the old file whole."""
    whole = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    save_file(whole, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)
