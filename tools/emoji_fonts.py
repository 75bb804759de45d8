"""Emoji as free text fonts draw them: black lines in Symbola and DejaVu, 16 pixels in Unifont.

    apt-get download fonts-symbola fonts-unifont && dpkg -x ...      # into work/deb
    python tools/emoji_fonts.py package work/icons Symbola_hint.ttf DejaVuSans.ttf unifont*.otf

Writes ``emoji-fonts.npy`` and ``emoji-fonts.json`` as ``iconset.py`` does for an icon set.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path

import numpy as np
from captions import is_skin_tone
from fontTools.ttLib import TTFont
from glyphs import draw
from PIL import ImageFont
from synonyms import emoji_codes

PIXEL_FONT = "unifont"
"""Drawn at a multiple of its 16 pixels, so that they stay square."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("package", type=Path, help="unpacked @iconify/json folder")
    parser.add_argument("cache", type=Path, help="folder for the bitmaps")
    parser.add_argument("fonts", type=Path, nargs="+")
    args = parser.parse_args()
    codes = {
        int(code, 16): text
        for code, text in emoji_codes(args.package).items()
        if "-" not in code and not is_skin_tone(text.replace(" ", "-"))
    }
    listing: dict[str, list] = {"names": [], "captions": [], "drawings": []}
    bitmaps = []
    for path in args.fonts:
        known = TTFont(path).getBestCmap() or {}
        font = ImageFont.truetype(path, 256 if PIXEL_FONT in path.stem else 200)
        for code, text in sorted(codes.items()):
            alpha = draw(font, chr(code)) if code in known else None
            if alpha is None or alpha.max() < 64:
                continue
            name = f"{path.stem}-{code:x}"
            listing["names"].append(name)
            listing["captions"].append([text])
            listing["drawings"].append(hashlib.sha256(name.encode()).hexdigest()[:12])
            bitmaps.append(alpha)
    (args.cache / "emoji-fonts.json").write_text(json.dumps(listing))
    np.save(args.cache / "emoji-fonts.npy", np.stack(bitmaps))
    print(f"{len(bitmaps)} drawings, {len({c[0] for c in listing['captions']})} captions")


if __name__ == "__main__":
    main()
