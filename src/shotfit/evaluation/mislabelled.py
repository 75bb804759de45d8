"""Training images that look like another class than the one they are labelled with.

Two witnesses are asked, neither of which has seen the image's label: the text embeddings of the
class names, and the mean embeddings of the classes' other images. Each is centred and measured in
standard deviations of the scores of classes that images are not labelled with. `docs/checking.md`
says how many wrong labels are found so, and how many right ones are suspected.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

MARGIN = 4.0
"""By how much, of both witnesses together, the other class must be ahead."""
NEIGHBOURS = 5
_LENGTH = 1e-4
"""Length of a mean embedding below which it has no direction."""


@dataclass(frozen=True)
class Suspect:
    """The place of an image, the class that it looks like, by how much, and how many of its
    `neighbours` nearest images are labelled with that class."""

    place: int
    looks_like: int
    margin: float
    agreeing: int
    neighbours: int


def suspects(
    features: Tensor, labels: Sequence[int], classes: Tensor, margin: float = MARGIN
) -> list[Suspect]:
    """The suspected images, the most suspicious first.

    `features` (images, dim) and `classes` (classes, dim) are unit embeddings of the images and of
    the class names. An image that is the only one of its class is never suspected: nothing says
    what the class looks like.
    """
    own = torch.tensor(labels)
    if len(own) < 2 or len(classes) < 2:
        return []
    centred = F.normalize(features - features.mean(dim=0), dim=-1)
    texts = features @ classes.T
    by_text = _standardised(texts - texts.mean(dim=0), own)
    means, alone = _means_without_self(centred, own, len(classes))
    by_images = _standardised(means, own)
    ahead = by_text + by_images
    # A class is only looked for where it has images: without, its name alone would speak.
    ahead[:, torch.bincount(own, minlength=len(classes)) == 0] = -torch.inf
    rows = torch.arange(len(own))
    mine = ahead[rows, own]
    ahead[rows, own] = -torch.inf
    best, other = ahead.max(dim=-1)
    chosen = (best - mine >= margin) & ~alone
    for witness in (by_text, by_images):
        chosen &= witness[rows, other] > witness[rows, own]
    places = chosen.nonzero()[:, 0].tolist()
    places.sort(key=lambda place: float(mine[place] - best[place]))
    return [
        Suspect(
            place,
            int(other[place]),
            float(best[place] - mine[place]),
            *_neighbours(centred, own, place, int(other[place])),
        )
        for place in places
    ]


def _standardised(scores: Tensor, own: Tensor) -> Tensor:
    """Scores (images, classes) in standard deviations of those of other classes than the own."""
    others = torch.ones_like(scores, dtype=torch.bool)
    others[torch.arange(len(own)), own] = False
    spread = scores[others].std()
    return (scores - scores[others].mean()) / spread.clamp(min=1e-6)


def _means_without_self(features: Tensor, own: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Cosines (images, classes) with the mean of each class, of the own class without the image
    itself; and whether an image is alone in its class."""
    members = F.one_hot(own, classes).to(features.dtype)
    sums = members.T @ features
    cosines = features @ F.normalize(sums, dim=-1).T
    rest = sums[own] - features
    rows = torch.arange(len(own))
    cosines[rows, own] = (features * F.normalize(rest, dim=-1)).sum(dim=-1)
    return cosines, rest.norm(dim=-1) < _LENGTH


def _neighbours(features: Tensor, own: Tensor, place: int, other: int) -> tuple[int, int]:
    """How many of the nearest images have the other class, and how many were asked."""
    near = features @ features[place]
    near[place] = -torch.inf
    count = min(NEIGHBOURS, len(own) - 1)
    return int((own[near.topk(count).indices] == other).sum()), count
