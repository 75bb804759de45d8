"""What an image looks like at a glance: enough to find copies, blanks and what was turned.

Near duplicates are found by a difference hash: whether each pixel of a 9 x 8 grey copy is darker
than its right neighbour, 64 bits of which few change when an image is scaled or compressed again
(Krawetz, Kind of like that, hackerfactor.com, 2013). Drawings of one outline have such a hash in
common, so that pairs are then compared by small copies in colour; `docs/checking.md` has what is
found and what is missed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from shotfit.data.image_hashes import picture_hash
from shotfit.data.images import FORMATS, ImageSource, open_image

BITS = 6
"""Bits by which the hashes of near duplicates may differ."""
APART = 8.0
"""Root mean square, of 255, by which their small copies in colour may differ."""
COPY = 16
"""Pixels of a side of the small copy."""
SPREAD = 2.0
"""Standard deviation of grey levels, of 255, below which there is nothing to see."""
SIDE = 24
"""Pixels of the short side below which an image is tiny."""
_ORIENTATION = 0x0112


@dataclass(frozen=True)
class ImageLook:
    """`exact` is the hash of its pixels, `near` the difference hash, `copy` a small copy in colour;
    `spread` is the standard deviation of its grey levels; `turned` says that its EXIF turns it."""

    exact: bytes
    near: bytes
    copy: bytes
    width: int
    height: int
    spread: float
    turned: bool

    @property
    def blank(self) -> bool:
        """Nearly one colour."""
        return self.spread < SPREAD

    @property
    def tiny(self) -> bool:
        """Too small to tell anything."""
        return min(self.width, self.height) < SIDE


def look_at(image: ImageSource) -> ImageLook:
    """Opens an image and looks at it.

    Raises:
        DataError: for an image that cannot be read.
    """
    picture = open_image(image)
    grey = picture.convert("L")
    small = np.asarray(grey.resize((9, 8), Image.Resampling.BOX), np.int16)
    bits = np.packbits(small[:, 1:] > small[:, :-1])
    return ImageLook(
        exact=picture_hash(picture),
        near=bits.tobytes(),
        copy=picture.resize((COPY, COPY), Image.Resampling.BOX).tobytes(),
        width=picture.width,
        height=picture.height,
        spread=float(np.asarray(grey, np.float32).std()),
        turned=_turned(image),
    )


def near_duplicates(looks: Sequence[ImageLook]) -> list[tuple[int, int]]:
    """Pairs of places of images that look the same, in order; images that are nearly one colour
    look like many and are left out."""
    places = np.array([n for n, look in enumerate(looks) if not look.blank], np.int64)
    hashes = np.array([list(looks[place].near) for place in places], np.uint8).reshape(-1, 8)
    found = []
    for number in range(len(hashes) - 1):
        differ = np.unpackbits(hashes[number + 1 :] ^ hashes[number], axis=1)
        apart = differ.sum(axis=1)
        others = places[number + 1 :][apart <= BITS]
        one = int(places[number])
        found += [(one, int(o)) for o in others if _apart(looks[one], looks[o]) <= APART]
    return found


def _apart(one: ImageLook, other: ImageLook) -> float:
    """The root mean square difference of two small copies."""
    first, second = (np.frombuffer(look.copy, np.uint8).astype(np.float32) for look in (one, other))
    return float(np.sqrt(np.mean((first - second) ** 2)))


def _turned(image: ImageSource) -> bool:
    if not isinstance(image, str | Path):
        return False
    known = [name for name in FORMATS if name in Image.OPEN]
    with Image.open(image, formats=known) as opened:
        return opened.getexif().get(_ORIENTATION, 1) != 1
