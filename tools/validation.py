"""Zero-shot accuracy on styles left out of training, as the suite would be asked: task by task."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from augment import normalise


def as_input(images: torch.Tensor, size: int) -> torch.Tensor:
    """RGB in 0..1 as network input at a resolution, reduced as the stored preprocessor does."""
    small = torch.nn.functional.interpolate(
        images, (size, size), mode="bicubic", antialias=True, align_corners=False
    )
    return normalise(small.clamp(0, 1))


class Validation:
    """Drawings of left-out styles in tasks of their own, each among the names of its task."""

    def __init__(self, folder: Path, captions: list[str]) -> None:
        rows = json.loads((folder / "val.json").read_text())
        pixels = np.load(folder / "val.npy").astype(np.float32) / 255
        index = {text: number for number, text in enumerate(captions)}
        keep = [number for number, (_, text, _) in enumerate(rows) if text in index]
        alpha = pixels[keep, ..., 3:]
        white = pixels[keep, ..., :3] * alpha + 1 - alpha
        self.images = torch.from_numpy(white).permute(0, 3, 1, 2).contiguous()
        self.tasks = [rows[number][0] for number in keep]
        self.labels = torch.tensor([index[rows[number][1]] for number in keep])

    @torch.no_grad()
    def accuracy(self, embeds: torch.Tensor, vectors: torch.Tensor) -> dict[str, float]:
        """Percent right in each task; ``vectors`` are of all captions."""
        result = {}
        for task in sorted(set(self.tasks)):
            rows = torch.tensor([name == task for name in self.tasks])
            names, target = torch.unique(self.labels[rows], return_inverse=True)
            guess = (embeds[rows] @ vectors[names].T).argmax(1)
            result[task] = round(100 * (guess == target).float().mean().item(), 1)
        result["mean"] = round(sum(result.values()) / len(result), 2)
        return result
