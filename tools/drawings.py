"""The drawings that are trained on: bitmaps, captions as class indices, how often each is drawn."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

SHARES = {"emoji": 0.30, "picture": 0.19, "clipart": 0.05, "glyph": 0.05, "icon": 0.41}
"""Share of each kind in what is drawn: coloured pictures are few, and most of what is asked for."""
EMOJI = frozenset({"twemoji", "fxemoji", "streamline-emojis", "emoji-fonts"})
FAMILIAR = 3.0
"""Icons of things that are emoji too are drawn this many times as often as other icons."""
BRANDS = frozenset(
    """devicon devicon-plain skill-icons material-icon-theme catppuccin vscode-icons file-icons gcp
    k8s unjs si fa-brands fa6-brands fa7-brands""".split()
)
"""Sets of brand marks and file types: their names say nothing of what is drawn."""
DULL = 0.2
"""They, brand marks elsewhere and the thirty families of emoji are drawn this much as often."""
FIRST = 0.75
"""How often the first caption of a drawing is its target; else one of the others."""
LEFT_OUT = 2000
"""Drawings never trained on, to see how far it has come."""
MOST = 8
"""Captions of one drawing at most."""


@dataclass(frozen=True)
class Batch:
    """Drawings before augmentation, and what is right to say of them."""

    pixels: torch.Tensor
    """Premultiplied RGBA in 0..1, (B, 4, 64, 64)."""
    mono: torch.Tensor
    """Which rows are one-colour, (B,)."""
    parts: torch.Tensor
    """Bytes of ``regions.parts_of`` for the one-colour rows, (M, 64, 64)."""
    whole: torch.Tensor
    """Which rows fill their frame, as flags do, (B,)."""
    glyph: torch.Tensor
    """Which rows are characters of a font, (B,)."""
    right: torch.Tensor
    """Every right caption, -1 after the last, (B, MOST)."""
    target: torch.Tensor
    """The caption to be predicted, (B,)."""


class Drawings:
    """Drawings and their captions, drawn at random with unequal weights."""

    def __init__(self, folder: Path, without: tuple[str, ...] = ()) -> None:
        meta = json.loads((folder / "pairs.json").read_text())
        texts, icons = meta["captions"], meta["icons"]
        self.mono, self.parts, self.colour = (
            np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("mono", "parts", "colour")
        )
        self.captions = sorted({text for group in texts for text in group[:MOST]})
        index = {text: number for number, text in enumerate(self.captions)}
        right = np.full((len(texts), MOST), -1)
        for row, group in enumerate(texts):
            right[row, : len(group)] = [index[text] for text in group[:MOST]]
        self.right = torch.from_numpy(right)
        sets = [icon.split(":")[0] for icon in icons]
        emoji = {group[0] for group, prefix in zip(texts, sets, strict=True) if prefix in EMOJI}
        self.emoji = torch.tensor(sorted(index[text] for text in emoji))
        self.whole = torch.tensor(
            [
                row >= len(self.mono) and group[0].startswith("flag of ")
                for row, group in enumerate(texts)
            ]
        )
        self.glyph = torch.tensor([prefix == "fonts" for prefix in sets])
        generator = torch.Generator().manual_seed(0)
        self.validation = torch.randperm(len(texts), generator=generator)[:LEFT_OUT]
        kept = np.array([not icon.startswith(without) for icon in icons])
        kept[self.validation.numpy()] = False
        self.cumulative = np.cumsum(self._weights(texts, sets, emoji, kept))

    def _weights(
        self, texts: list[list[str]], sets: list[str], emoji: set[str], kept: np.ndarray
    ) -> np.ndarray:
        """Nothing for what is left out; rare captions, familiar things and pictures more often."""
        counts = Counter(group[0] for group in texts)
        kinds, weights = [], np.empty(len(texts))
        for row, (group, prefix) in enumerate(zip(texts, sets, strict=True)):
            kind = "icon" if row < len(self.mono) else "picture"
            kind = "emoji" if prefix in EMOJI else kind
            kinds.append({"fonts": "glyph", "openclipart": "clipart"}.get(prefix, kind))
            weights[row] = counts[group[0]] ** -0.4
            if kinds[-1] in ("icon", "picture") and group[0] in emoji:
                weights[row] *= FAMILIAR
            if prefix in BRANDS or group[0].startswith(("brand ", "family ")):
                weights[row] *= DULL
        weights *= kept
        for kind, part in SHARES.items():
            rows = np.array([name == kind for name in kinds])
            if weights[rows].any():
                weights[rows] *= part / weights[rows].sum()
        return weights

    def rows(self, count: int, rng: np.random.Generator) -> torch.Tensor:
        """Numbers of ``count`` drawings by their weights, with replacement."""
        points = rng.random(count) * self.cumulative[-1]
        return torch.from_numpy(np.searchsorted(self.cumulative, points, "right"))

    def draw(self, count: int, rng: np.random.Generator) -> Batch:
        """``count`` drawings by their weights, each with one of its captions as the target."""
        batch = self.take(self.rows(count, rng))
        others = (batch.right >= 0).sum(1)
        pick = 1 + torch.from_numpy(rng.random(count)) * (others - 1)
        pick[torch.from_numpy(rng.random(count) < FIRST) | (others == 1)] = 0
        batch.target.copy_(batch.right.gather(1, pick.long()[:, None])[:, 0])
        return batch

    def take(self, rows: torch.Tensor) -> Batch:
        """The drawings of the given rows; their first captions are the targets."""
        mono = rows < len(self.mono)
        pixels = torch.zeros(len(rows), 4, 64, 64)
        lines, pictures = rows[mono].numpy(), rows[~mono].numpy() - len(self.mono)
        pixels[mono, 3] = torch.from_numpy(self.mono[lines]).float() / 255
        rgba = torch.from_numpy(self.colour[pictures]).float() / 255
        rgba[..., :3] *= rgba[..., 3:]
        pixels[~mono] = rgba.permute(0, 3, 1, 2)
        right = self.right[rows]
        parts = torch.from_numpy(self.parts[lines])
        whole, glyph = self.whole[rows], self.glyph[rows]
        return Batch(pixels, mono, parts, whole, glyph, right, right[:, 0].clone())
