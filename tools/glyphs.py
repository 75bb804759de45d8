"""Digits and letters of open fonts, mostly handwriting, as drawings named ``five``, ``letter b``.

    npm pack @fontsource/caveat @fontsource/kalam ...      # unpacked in work/fonts/<family>
    python tools/glyphs.py work/fonts work/icons

Writes ``fonts.npy`` and ``fonts.json`` as ``iconset.py`` does for an icon set. Icon sets draw few
digits, and name them so that the number is taken for a size.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import string
from pathlib import Path

import numpy as np
from captions import NUMBERS
from iconset import SIZE
from PIL import Image, ImageDraw, ImageFont

BOX = 56
"""Longer side of a glyph, in pixels of 64."""


def characters() -> dict[str, str]:
    """Name -> character: ``5`` for five, ``b`` for small-b, ``B`` for capital-b."""
    names = dict(zip(NUMBERS, string.digits, strict=True))
    names |= {f"small-{letter}": letter for letter in string.ascii_lowercase}
    return names | {f"capital-{letter}": letter.upper() for letter in string.ascii_lowercase}


def glyph_captions(name: str) -> list[str]:
    """Captions of a glyph by the name that its drawing has in the cache: ``caveat-400-five``."""
    last = name.rsplit("-", 1)[1]
    return [last, f"number {last}", f"digit {last}"] if last in NUMBERS else [f"letter {last}"]


def draw(font: ImageFont.FreeTypeFont, character: str) -> np.ndarray | None:
    """Alpha of one character, filling the square; None where the font has no such glyph."""
    left, top, right, bottom = map(round, font.getbbox(character))
    width, height = right - left, bottom - top
    if width < 4 or height < 20:
        return None
    image = Image.new("L", (width, height))
    ImageDraw.Draw(image).text((-left, -top), character, 255, font)
    scale = BOX / max(width, height)
    small = (max(1, round(width * scale)), max(1, round(height * scale)))
    square = Image.new("L", (SIZE, SIZE))
    square.paste(
        image.resize(small, Image.Resampling.LANCZOS),
        ((SIZE - small[0]) // 2, (SIZE - small[1]) // 2),
    )
    return np.asarray(square)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("fonts", type=Path, help="folder with one unpacked font package a family")
    parser.add_argument("cache", type=Path, help="folder for the bitmaps")
    args = parser.parse_args()
    names, hashes, bitmaps = [], [], []
    for path in sorted(args.fonts.glob("*/files/*-latin-[0-9]*-normal.woff")):
        family, weight = path.stem.split("-latin-")[0], path.stem.split("-")[-2]
        font = ImageFont.truetype(path, 200)
        for name, character in characters().items():
            alpha = draw(font, character)
            if alpha is None:
                continue
            full = f"{family}-{weight}-{name}"
            names.append(full)
            hashes.append(hashlib.sha256(full.encode()).hexdigest()[:12])
            bitmaps.append(alpha)
    (args.cache / "fonts.json").write_text(json.dumps({"names": names, "drawings": hashes}))
    np.save(args.cache / "fonts.npy", np.stack(bitmaps))
    print(f"{len(names)} glyphs")


if __name__ == "__main__":
    main()
