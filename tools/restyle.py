"""Redraw a batch of drawings in looks that no training set has, before they are placed.

Everything works on premultiplied RGBA in 0..1, (B, 4, H, W), and changes a random share of the
rows. ``strength`` in 0..1 scales the shares.
"""

from __future__ import annotations

import math

import torch
from torch.nn.functional import avg_pool2d, interpolate, max_pool2d


def share(rows: torch.Tensor, part: float) -> torch.Tensor:
    """A random subset of row numbers, each kept with probability ``part``."""
    return rows[torch.rand(len(rows)) < part]


def colours(*shape: int) -> torch.Tensor:
    """Random colours (..., 3), most of them lively: hue even, saturation and value high."""
    hue = torch.rand(*shape, 1) * 6 + torch.tensor([0.0, 2.0, 4.0])
    wheel = ((hue % 6 - 3).abs() - 1).clamp(0, 1)
    saturation = torch.rand(*shape, 1).sqrt()
    value = 1 - 0.7 * torch.rand(*shape, 1) ** 1.5
    return value * (1 - saturation * (1 - wheel))


def field(batch: int, size: int, cells: int) -> torch.Tensor:
    """Smooth random fields in -1..1, (B, 1, size, size)."""
    coarse = 2 * torch.rand(batch, 1, cells, cells) - 1
    return interpolate(coarse, (size, size), mode="bilinear", align_corners=True)


def thicken(alpha: torch.Tensor) -> torch.Tensor:
    """Strokes a little bolder or thinner, (B, 1, H, W)."""
    amount = 1.6 * torch.rand(len(alpha), 1, 1, 1) - 0.8
    bold, thin = max_pool2d(alpha, 3, 1, 1), -max_pool2d(-alpha, 3, 1, 1)
    return alpha + amount.clamp(min=0) * (bold - alpha) + amount.clamp(max=0) * (alpha - thin)


def colour_in(alpha: torch.Tensor, parts: torch.Tensor) -> torch.Tensor:
    """One-colour drawings (B, 1, H, W) with their parts (B, H, W) as coloured pictures.

    Enclosed areas get colours of their own; strokes one dark or coloured ink, or several.
    """
    batch, _, height, width = alpha.shape
    areas = torch.cat([colours(batch, 16), torch.ones(batch, 16, 1)], -1)
    white = torch.rand(batch, 16, 1) < 0.25
    areas[..., :3] = torch.where(white, torch.ones(()), areas[..., :3])
    filled = (torch.rand(batch, 1) < 0.75) & (torch.rand(batch, 16) < 0.9)
    filled[:, 0] = False
    areas = torch.where(filled[..., None], areas, torch.zeros(()))
    one_ink = colours(batch, 1).expand(-1, 16, -1)
    inks = torch.where(torch.rand(batch, 1, 1) < 0.5, colours(batch, 16), one_ink)
    dark = torch.rand(batch, 1, 1) < 0.5
    inks = torch.where(dark, 0.3 * torch.rand(batch, 1, 1) * one_ink, inks)
    inks = torch.cat([inks, torch.ones(batch, 16, 1)], -1)
    flat = parts.reshape(batch, -1).long()
    under, over = _looked_up(areas, flat % 16), _looked_up(inks, flat // 16)
    under, over = (x.transpose(1, 2).reshape(batch, 4, height, width) for x in (under, over))
    return over * alpha + under * (1 - alpha)


def _looked_up(palette: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """(B, 16, 4) palettes at (B, N) indices: (B, N, 4)."""
    offset = 16 * torch.arange(len(palette))[:, None]
    return palette.reshape(-1, 4)[(index + offset).reshape(-1)].view(len(palette), -1, 4)


def recolour(drawn: torch.Tensor) -> torch.Tensor:
    """Hues turned, channels mixed, contrast bent; alpha kept."""
    batch = len(drawn)
    angle = (2 * torch.rand(batch) - 1) * math.pi * torch.rand(batch)
    cos, sin = angle.cos()[:, None, None], angle.sin()[:, None, None] / math.sqrt(3)
    ones = torch.ones(3, 3) / 3
    cross = torch.tensor([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])
    turn = cos * torch.eye(3) + (1 - cos) * ones + sin * cross
    saturation = 0.2 + 1.3 * torch.rand(batch, 1, 1)
    mix = saturation * turn + (1 - saturation) * (torch.ones(3, 3) / 3)
    gain = 1 + 0.3 * (2 * torch.rand(batch, 1, 1) - 1)
    alpha = drawn[:, 3:]
    colour = torch.einsum("bij,bjhw->bihw", gain * mix, drawn[:, :3])
    return torch.cat([torch.minimum(colour.clamp(min=0), alpha), alpha], 1)


def line_art(drawn: torch.Tensor) -> torch.Tensor:
    """Coloured pictures as black lines: where brightness or opacity changes."""
    alpha = drawn[:, 3:]
    grey = drawn[:, :3].mean(1, keepdim=True) + 0.5 * (1 - alpha)
    both = torch.cat([grey, 0.7 * alpha], 1)
    thick = 3 if torch.rand(()) < 0.7 else 5
    high = max_pool2d(both, thick, 1, thick // 2)
    edge = (high + max_pool2d(-both, thick, 1, thick // 2)).amax(1, keepdim=True)
    ink = ((edge - 0.08) * (3 + 4 * torch.rand(len(drawn), 1, 1, 1))).clamp(0, 1)
    return torch.cat([torch.zeros_like(drawn[:, :3]), ink], 1)


def two_tone(drawn: torch.Tensor) -> torch.Tensor:
    """Coloured pictures as black ink where they are dark, paper where they are bright."""
    alpha = drawn[:, 3:]
    grey = drawn[:, :3].mean(1, keepdim=True) / alpha.clamp(min=1e-3)
    total = alpha.sum((2, 3), keepdim=True).clamp(min=1.0)
    middle = (grey * alpha).sum((2, 3), keepdim=True) / total
    ink = (8 * (middle - grey) + 0.5 + torch.rand(len(drawn), 1, 1, 1)).clamp(0, 1) * alpha
    return torch.cat([torch.zeros_like(drawn[:, :3]), ink], 1)


def shade(drawn: torch.Tensor) -> torch.Tensor:
    """Soft light and shadow over flat fills, each channel a little differently."""
    batch, size = len(drawn), drawn.shape[-1]
    light = field(batch, size, int(torch.randint(2, 5, ())))
    warm = 0.15 * (2 * torch.rand(batch, 3, 1, 1) - 1)
    depth = 0.1 + 0.4 * torch.rand(batch, 1, 1, 1)
    alpha = drawn[:, 3:]
    colour = drawn[:, :3] * (1 + (depth + warm) * light) + 0.2 * depth * light * alpha
    return torch.cat([torch.minimum(colour.clamp(min=0), alpha), alpha], 1)


def edge_or_shadow(drawn: torch.Tensor) -> torch.Tensor:
    """A sticker's rim around the drawing, or a soft shadow below it."""
    alpha = drawn[:, 3:]
    if torch.rand(()) < 0.5:
        under = max_pool2d(alpha, 5, 1, 2)
        tone = colours(len(drawn), 1).view(-1, 3, 1, 1)
        tone = torch.where(torch.rand(len(drawn), 1, 1, 1) < 0.6, tone.round(), tone)
    else:
        under = 0.5 * avg_pool2d(torch.roll(alpha, (2, 1), (2, 3)), 5, 1, 2)
        tone = torch.zeros(())
    rim = under * (1 - alpha)
    return torch.cat([drawn[:, :3] + tone * rim, alpha + rim], 1)


PICTURE_LOOKS = ((line_art, 0.0, 0.12), (two_tone, 0.12, 0.2), (recolour, 0.2, 0.65))
"""Looks of coloured pictures, each with the part of all pictures that it takes, from and to."""


def restyle(
    drawn: torch.Tensor, mono: torch.Tensor, parts: torch.Tensor, strength: float
) -> torch.Tensor:
    """The batch in new looks; ``parts`` belong to the rows where ``mono`` is true, in order.

    Args:
        drawn: premultiplied RGBA, (B, 4, H, W), changed in place.
        mono: which rows are one-colour, (B,).
        parts: bytes of ``regions.parts_of`` for those rows, (M, H, W).
        strength: 0 leaves all as drawn, 1 changes most.
    """
    lines, pictures = mono.nonzero()[:, 0], (~mono).nonzero()[:, 0]
    place = torch.full((len(drawn),), -1)
    place[lines] = torch.arange(len(lines))
    rows = share(lines, 0.35 * strength)
    if len(rows):
        drawn[rows, 3:] = thicken(drawn[rows, 3:])
    rows = share(lines, 0.5 * strength)
    if len(rows):
        drawn[rows] = colour_in(drawn[rows, 3:], parts[place[rows]])
    luck = torch.rand(len(pictures)) / max(strength, 1e-6)
    for look, low, high in PICTURE_LOOKS:
        rows = pictures[(luck >= low) & (luck < high)]
        if len(rows):
            drawn[rows] = look(drawn[rows])
    for look, part in ((shade, 0.25), (edge_or_shadow, 0.12)):
        rows = share(torch.arange(len(drawn)), part * strength)
        if len(rows):
            drawn[rows] = look(drawn[rows])
    return drawn
