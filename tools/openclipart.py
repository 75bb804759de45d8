"""Render the public-domain drawings of Openclipart and find names for them.

    apt-get download openclipart-svg && dpkg -x openclipart-svg_*.deb work/openclipart
    python tools/openclipart.py work/openclipart/usr/share/openclipart/svg package work/icons

Writes ``openclipart.npy``, RGBA, and ``openclipart.json``. Titles are free text by hundreds of
authors, many not English, so a drawing's captions are the longest names in its title, file name and
keywords that icon or emoji sets know too; a drawing without any is left out.
"""

from __future__ import annotations

import argparse
import hashlib
import html
import json
import re
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from captions import caption, emoji_caption
from iconset import collections, icon_names, read_set, render
from splits import HELD_OUT

FOLDERS = (
    "animals",
    "buildings",
    "education",
    "electronics",
    "food",
    "office",
    "people",
    "plants",
    "recreation",
    "science",
    "signs_and_symbols",
    "tools",
    "transportation",
    "geography",
    "computer",
    "containers",
    "decorations",
    "unsorted",
)
SKIPPED = re.compile(r"lemon|flat-theme|etiquette|logos|/cards/|/led/|flowchart|jigsaw|coastline")
"""Desktop themes drawn as other icon sets are, brand marks, playing cards, segment displays."""
GENERIC = frozenset(
    """a an the of on in and or by with to for at no 01 02 03 clipart clip art icon icons symbol
    sign simple drawing image picture black white red green blue yellow orange purple pink brown
    grey gray shape special unsorted collection set new old people animal animals food tool
    tools fruit vegetable dessert recreation office computer transport transportation bird
    mammal insect plant geometry place places map nicu jon jean karl ganson r open public domain
    one two three holiday party sports small large big three left right up down line round
    square circle outline color hash theme action application filesystem device building signs
    symbols design site world carbohydrate protein beverage menu festive vehicle clothing part
    body element elements geography europe asia africa america oceania flag flags country north
    south east west
    """.split()
)
LARGEST = 400_000
"""Bytes of an SVG; the few larger ones take minutes."""


def known_names(package: Path) -> set[str]:
    """Captions that at least two training sets draw, and those of the emoji."""
    counts: Counter[str] = Counter()
    for prefix, info in collections(package).items():
        if prefix in HELD_OUT or info.get("category") == "Logos":
            continue
        counts.update({caption(name) for name in icon_names(read_set(package, prefix))})
    known = {text for text, count in counts.items() if count >= 2}
    return known | {emoji_caption(name) for name in read_set(package, "twemoji")["icons"]}


def phrases(text: str, known: set[str]) -> list[str]:
    """Known names in a text, longest first; words inside a longer name are not taken again."""
    words = [word for word in re.split(r"[^a-z0-9']+", text.lower()) if word]
    words = [re.sub(r"\d+$", "", word) or word for word in words]
    found, taken = [], set()
    for length in (4, 3, 2, 1):
        for start in range(len(words) - length + 1):
            spot = set(range(start, start + length))
            name = " ".join(words[start : start + length])
            single = name.removesuffix("s")
            name = name if name in known else single
            if name in known and not spot & taken and name not in GENERIC and len(name) > 2:
                found.append(name)
                taken |= spot
    return found


def clipart_captions(path: str, svg: str, known: set[str]) -> list[str]:
    """At most three captions, those of the title first."""
    title = re.search(r"<dc:title[^>]*>(.*?)</dc:title>", svg, re.DOTALL)
    subject = re.search(r"<dc:subject[^>]*>(.*?)</dc:subject>", svg, re.DOTALL)
    keywords = re.findall(r"<rdf:li[^>]*>(.*?)</rdf:li>", subject[1]) if subject else []
    stem = Path(path).stem
    if "/flags/" in path:
        country = [f"flag of {name}" for name in (stem.replace("_", " "), *keywords)]
        return [text for text in country if text in known][:1]
    heading = html.unescape(title[1]) if title else ""
    if "Clipart by" in heading or "SVG" in heading:
        heading = ""
    named = phrases(heading, known) + phrases(stem, known)
    tagged = [name for word in keywords for name in phrases(html.unescape(word), known)]
    return list(dict.fromkeys(named + tagged))[:3] if named or len(tagged) <= 3 else []


def render_file(path: Path) -> np.ndarray | None:
    """RGBA of the drawing cut to its ink; None where it cannot be drawn or is empty."""
    try:
        pixels = render(path.read_text(encoding="utf-8", errors="replace"), 256)
    except (ValueError, RuntimeError, OSError):
        return None
    rows, columns = np.nonzero(pixels[..., 3] > 16)
    if len(rows) < 100:
        return None
    return fit(pixels[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1])


def fit(pixels: np.ndarray, size: int = 64, box: int = 60) -> np.ndarray:
    """An RGBA picture reduced to ``box`` pixels, centred in a square of ``size``."""
    from PIL import Image

    scale = box / max(pixels.shape[:2])
    height, width = (max(1, round(side * scale)) for side in pixels.shape[:2])
    small = Image.fromarray(pixels).convert("RGBa").resize((width, height), Image.Resampling.BOX)
    square = Image.new("RGBA", (size, size))
    square.paste(small.convert("RGBA"), ((size - width) // 2, (size - height) // 2))
    return np.asarray(square)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("drawings", type=Path, help="the package's folder svg")
    parser.add_argument("package", type=Path, help="unpacked @iconify/json folder")
    parser.add_argument("cache", type=Path, help="folder for the bitmaps")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    known, chosen = known_names(args.package), []
    for path in sorted(file for name in FOLDERS for file in (args.drawings / name).rglob("*.svg")):
        name = path.relative_to(args.drawings).as_posix()
        svg = path.read_text(encoding="utf-8", errors="replace")
        if SKIPPED.search(name) or len(svg) > LARGEST or "PublicDomain" not in svg:
            continue
        if texts := clipart_captions(name, svg, known):
            chosen.append((path, name, texts, hashlib.sha256(svg.encode()).hexdigest()[:12]))
    with ProcessPoolExecutor(args.workers) as pool:
        bitmaps = list(pool.map(render_file, [path for path, *_ in chosen], chunksize=16))
    kept = [
        (row, pixels) for row, pixels in zip(chosen, bitmaps, strict=True) if pixels is not None
    ]
    listing = {
        "names": [name for (_, name, _, _), _ in kept],
        "captions": [texts for (_, _, texts, _), _ in kept],
        "drawings": [digest for (_, _, _, digest), _ in kept],
    }
    (args.cache / "openclipart.json").write_text(json.dumps(listing))
    np.save(args.cache / "openclipart.npy", np.stack([pixels for _, pixels in kept]))
    print(
        f"{len(kept)} drawings, {len({text for t in listing['captions'] for text in t})} captions"
    )


if __name__ == "__main__":
    main()
