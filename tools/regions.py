"""Connected parts of one-colour drawings, so that training can colour them in like a picture book.

A line drawing of a fish and a coloured fish share no pixel values. Which white areas lines enclose,
and which strokes hang together, is found here once; training gives the parts random colours.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import ndimage

PARTS = 15
"""Areas, and strokes, told apart; further ones count as the last."""
SMALLEST = 5
"""Pixels of an area that is worth a colour of its own."""


def parts_of(alpha: np.ndarray) -> np.ndarray:
    """One byte a pixel from the alpha (64, 64) of a drawing: 16 * stroke + area.

    Area 0 is what lies outside; those enclosed count from 1, the largest first. Every pixel also
    knows the nearest stroke, and every inked pixel the nearest area, for the soft edge between.
    """
    ink = alpha >= 128
    area = _ranked(~ink, np.pad(~ink, 1, constant_values=True))
    stroke = _ranked(ink, None)
    nearest_area = area[tuple(_nearest(~ink))] if not ink.all() else area
    nearest_stroke = stroke[tuple(_nearest(ink))] if ink.any() else stroke
    return (16 * nearest_stroke + nearest_area).astype(np.uint8)


def _nearest(wanted: np.ndarray) -> np.ndarray:
    found: Any = ndimage.distance_transform_edt(
        ~wanted, return_distances=False, return_indices=True
    )
    return found


def _components(mask: np.ndarray, structure: np.ndarray | None) -> tuple[np.ndarray, int]:
    """Number of its component for every pixel, 0 outside the mask, and how many there are."""
    labels: Any
    labels, count = ndimage.label(mask, structure)  # pyright: ignore[reportGeneralTypeIssues]
    return labels, count


def _ranked(mask: np.ndarray, padded: np.ndarray | None) -> np.ndarray:
    """Components by size; with ``padded`` that of the border is 0 and counting starts at 1."""
    if padded is None:
        labels, count = _components(mask, np.ones((3, 3)))
        first, outside = 0, None
    else:
        everywhere, count = _components(padded, None)
        labels, outside, first = everywhere[1:-1, 1:-1], everywhere[0, 0], 1
    sizes = np.bincount(labels.ravel(), minlength=count + 1)
    rank = np.zeros(count + 1, np.int64)
    number = first
    for label in np.argsort(-sizes):
        if label in (0, outside) or sizes[label] < SMALLEST:
            continue
        rank[label] = min(number, PARTS)
        number += 1
    return rank[labels]
