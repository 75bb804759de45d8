"""Batches of drawings as network input: restyle, place, put on paper, spoil a little, normalise."""

from __future__ import annotations

import torch
from iconclip import MEAN, STD
from restyle import colours, restyle, share
from torch.nn.functional import affine_grid, avg_pool2d, grid_sample, interpolate


def place(pixels: torch.Tensor, strength: float, size: int) -> torch.Tensor:
    """RGBA (B, 4, 64, 64) to (B, 4, size, size): scale, shift, rotation, shear and bending.

    Strength 0 is 10 % of scale and shift; 1 is 25 %, and up to 15 degrees.
    """
    batch = len(pixels)
    amount = 0.1 + 0.15 * strength
    zoom = 1.05 + amount * (2 * torch.rand(batch, 2) - 1)
    zoom = zoom.mean(1, keepdim=True).lerp(zoom, 0.5)
    shift = 0.8 * amount * (2 * torch.rand(batch, 2) - 1)
    turned = torch.rand(batch) < 0.6
    angle = 0.27 * strength * (2 * torch.rand(batch) - 1) * turned
    shear = 0.2 * strength * (2 * torch.rand(batch) - 1) * turned
    cos, sin = angle.cos(), angle.sin()
    theta = torch.stack(
        [
            torch.stack([cos * zoom[:, 0], (shear - sin) * zoom[:, 0], shift[:, 0]], 1),
            torch.stack([sin * zoom[:, 1], cos * zoom[:, 1], shift[:, 1]], 1),
        ],
        1,
    )
    grid = affine_grid(theta, [batch, 4, size, size], align_corners=False)
    rows = share(torch.arange(batch), 0.4 * strength)
    if len(rows):
        bend = interpolate(torch.rand(len(rows), 2, 5, 5) - 0.5, (size, size), mode="bicubic")
        grid[rows] += 0.25 * torch.rand(len(rows), 1, 1, 1) * bend.permute(0, 2, 3, 1)
    return grid_sample(pixels, grid, align_corners=False)


def cut_out(pixels: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
    """Rows that fill their frame (flags), zoomed in on and seen through a circle or a square."""
    rows = share(whole.nonzero()[:, 0], 0.5)
    if not len(rows):
        return pixels
    zoom, batch = 0.65 + 0.2 * torch.rand(len(rows)), len(rows)
    stretch = 0.6 + 0.4 * torch.rand(batch)
    theta = torch.zeros(batch, 2, 3)
    theta[:, 0, 0], theta[:, 1, 1] = zoom, zoom * stretch
    theta[:, 0, 2] = 0.15 * (2 * torch.rand(batch) - 1)
    grid = affine_grid(theta, [batch, *pixels.shape[1:]], align_corners=False)
    inside = grid_sample(pixels[rows], grid, align_corners=False)
    axis = torch.linspace(-1, 1, pixels.shape[-1])
    power = torch.where(torch.rand(batch) < 0.5, 2.0, 8.0)[:, None, None]
    far = axis.abs()[None, :, None] ** power + axis.abs()[None, None] ** power
    pixels[rows] = inside * (12 * (0.95 - far)).clamp(0, 1)[:, None]
    return pixels


def paper(drawn: torch.Tensor, mono: torch.Tensor, strength: float) -> torch.Tensor:
    """Premultiplied RGBA on a ground: mostly white, some tinted, a few dark."""
    batch = len(drawn)
    alpha, colour = drawn[:, 3:], drawn[:, :3]
    ground = torch.ones(batch, 3, 1, 1)
    everyone = torch.arange(batch)
    rows = share(everyone, 0.02 + 0.13 * strength)
    ground[rows] = (0.35 + 0.65 * colours(len(rows))).view(-1, 3, 1, 1)
    # A black drawing on a dark ground is drawn in light ink, as dark themes show it.
    rows = share(everyone, 0.05 * strength)
    if len(rows):
        ground[rows] *= 0.3 * torch.rand(len(rows), 1, 1, 1)
        black = rows[colour[rows].amax((1, 2, 3)) < 0.4]
        colour[black] = (0.6 + 0.4 * torch.rand(len(black), 3, 1, 1)) * alpha[black]
    return colour + ground * (1 - alpha)


def spoil(image: torch.Tensor, strength: float, glyph: torch.Tensor) -> torch.Tensor:
    """Contrast, blur and few pixels; glyphs are seen at eight pixels as often as not."""
    everyone = torch.arange(len(image))
    rows = share(everyone, 0.2 * strength)
    gain = 0.5 + 0.7 * torch.rand(len(rows), 1, 1, 1)
    image[rows] = 1 - gain * (1 - image[rows])
    rows = share(everyone, 0.1 * strength)
    if len(rows):
        image[rows] = avg_pool2d(image[rows], 3, 1, 1, count_include_pad=False)
    rows = share(everyone, 0.12 * strength)
    image[rows] = coarse(image[rows], int(torch.randint(14, 33, ())), torch.rand(()) < 0.5)
    rows = share(glyph.nonzero()[:, 0], 0.6)
    image[rows] = coarse(image[rows], int(torch.randint(7, 12, ())), torch.rand(()) < 0.2)
    return image.clamp_(0, 1)


def coarse(image: torch.Tensor, pixels: int, blocks: bool | torch.Tensor) -> torch.Tensor:
    """Reduced to few pixels and enlarged again, in blocks or smoothly."""
    if not len(image):
        return image
    small = interpolate(image, (pixels, pixels), mode="area")
    mode = "nearest" if blocks else "bicubic"
    return interpolate(small, image.shape[-2:], mode=mode)


def normalise(images: torch.Tensor) -> torch.Tensor:
    """Zero mean and unit spread, as the stored preprocessor does."""
    mean = torch.tensor(MEAN)[:, None, None]
    std = torch.tensor(STD)[:, None, None]
    return (images - mean) / std


def batch_of(batch, strength: float, size: int) -> torch.Tensor:
    """Network input of a ``drawings.Batch``."""
    drawn = cut_out(batch.pixels, batch.whole)
    drawn = restyle(drawn, batch.mono, batch.parts, strength)
    drawn = place(drawn, strength, size)
    return normalise(spoil(paper(drawn, batch.mono, strength), strength, batch.glyph))
