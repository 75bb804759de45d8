"""Batches of drawings as network input: place, scale, colour, normalise, all on the device."""

from __future__ import annotations

import torch
from iconclip import IMAGE_SIZE, MEAN, STD
from torch.nn.functional import affine_grid, grid_sample


def place(pixels: torch.Tensor, strength: float) -> torch.Tensor:
    """RGBA (B, 4, 64, 64) to (B, 4, 32, 32): random scale, shift and a little rotation.

    Strength 0 only halves the size; 1 is 25 % of scale and shift and 12 degrees.
    """
    batch, device = len(pixels), pixels.device
    amount = 0.1 + 0.15 * strength if strength >= 0 else 0.0
    zoom = 1 + amount * (2 * torch.rand(batch, 2, device=device) - 1)
    zoom = zoom.mean(1, keepdim=True).lerp(zoom, 0.4)
    shift = amount * (2 * torch.rand(batch, 2, device=device) - 1)
    angle = 0.2 * max(strength, 0) * (2 * torch.rand(batch, device=device) - 1)
    cos, sin = angle.cos(), angle.sin()
    theta = torch.stack(
        [
            torch.stack([cos * zoom[:, 0], -sin * zoom[:, 0], shift[:, 0]], 1),
            torch.stack([sin * zoom[:, 1], cos * zoom[:, 1], shift[:, 1]], 1),
        ],
        1,
    )
    grid = affine_grid(theta, [batch, 4, IMAGE_SIZE, IMAGE_SIZE], align_corners=False)
    return grid_sample(pixels, grid, align_corners=False)


def colour(pixels: torch.Tensor, mono: torch.Tensor, strength: float) -> torch.Tensor:
    """Premultiplied RGBA on paper: mostly black on white, other inks and papers as it gets strong.

    A share of the one-colour drawings gets random ink, a share of all a tinted paper, and a few
    dark paper with light ink; the rest stay black on white, as most icons are met.
    """
    batch, device = len(pixels), pixels.device
    alpha = pixels[:, 3:]
    chance = torch.rand(batch, 3, 1, 1, 1, device=device)
    share = 0.1 + 0.4 * strength
    paper = torch.ones(batch, 3, 1, 1, device=device)
    tint = 1 - 0.5 * torch.rand(batch, 3, 1, 1, device=device) * strength
    paper = torch.where(chance[:, 0] < share * 0.5, tint, paper)
    ink = torch.rand(batch, 3, 1, 1, device=device) * 0.8
    ink = torch.where((chance[:, 1] < share) & mono[:, None, None, None], ink, torch.zeros(()))
    dark = (chance[:, 2] < 0.15 * strength) & mono[:, None, None, None]
    paper = torch.where(dark, 0.3 * paper, paper)
    ink = torch.where(dark, 1 - 0.5 * ink, ink)
    drawn = torch.where(mono[:, None, None, None], ink * alpha, pixels[:, :3])
    grey = drawn.mean(1, keepdim=True)
    faded = torch.rand(batch, 1, 1, 1, device=device) < 0.2 * strength
    drawn = torch.where(faded, grey, drawn)
    return drawn + paper * (1 - alpha)


def normalise(images: torch.Tensor) -> torch.Tensor:
    """Zero mean and unit spread, as the stored preprocessor does."""
    mean = torch.tensor(MEAN, device=images.device)[:, None, None]
    std = torch.tensor(STD, device=images.device)[:, None, None]
    return (images - mean) / std


def batch_of(pixels: torch.Tensor, mono: torch.Tensor, strength: float) -> torch.Tensor:
    """Network input from premultiplied RGBA in 0..1; strength -1 means no augmentation."""
    if strength < 0:
        plain = torch.nn.functional.avg_pool2d(pixels, 2)
        return normalise(plain[:, :3] + 1 - plain[:, 3:])
    return normalise(colour(place(pixels, strength), mono, strength))
