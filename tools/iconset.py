"""Read the npm package @iconify/json and render its icons to a cache of 64x64 bitmaps.

    npm pack @iconify/json@2.2.535 && tar xzf iconify-json-2.2.535.tgz
    python tools/iconset.py package work/icons      # about six minutes on two cores

One file per set: ``<set>.npy`` holds the bitmaps (alpha only for one-colour sets, RGBA for the
others) and ``<set>.json`` the icon names and the hashes of their drawings. Sets already rendered
are skipped, so an interrupted run picks up where it stopped.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import re
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import resvg_py
from captions import caption, is_skin_tone
from PIL import Image
from splits import HELD_OUT, LICENCES

SIZE = 64

PICTORIAL = frozenset(
    [
        "game-icons",
        "healthicons",
        "pinhead",
        "temaki",
        "maki",
        "roentgen",
        "medical-icon",
        "fluent-color",
        "glyphs-poly",
        "icon-park",
        "streamline-color",
        "streamline-ultimate-color",
        "streamline-cyber-color",
        "streamline-plump-color",
        "whh",
        "tabler",
        "mdi",
        "ph",
        "nrk",
        "covid",
    ]
)
"""Sets that draw things rather than controls: all of their drawings are wanted, however rare."""

_LOOKS = re.compile(
    r"\b(fill|stroke|color|stop-color|opacity|fill-opacity|stroke-opacity|stop-opacity|id|class"
    r"|style|stroke-width|stroke-linecap|stroke-linejoin|fill-rule|clip-rule)=\"[^\"]*\""
)


def read_set(package: Path, prefix: str) -> dict:
    """The parsed file of one icon set."""
    return json.loads((package / "json" / f"{prefix}.json").read_text(encoding="utf-8"))


def collections(package: Path) -> dict[str, dict]:
    """Set prefix -> its entry in the collection list, for the licences that we may pass on."""
    listing = json.loads((package / "collections.json").read_text(encoding="utf-8"))
    return {
        prefix: info
        for prefix, info in sorted(listing.items())
        if info.get("license", {}).get("spdx") in LICENCES
    }


def icon_names(data: dict) -> list[str]:
    """Names of the drawings of a set: no aliases, no hidden icons, no skin tones."""
    return [
        name
        for name, icon in sorted(data["icons"].items())
        if not icon.get("hidden") and not is_skin_tone(name) and caption(name)
    ]


def svg_of(data: dict, name: str) -> str:
    """A complete SVG document of one icon."""
    icon = data["icons"][name]
    box = [icon.get(key, data.get(key, default)) for key, default in _BOX]
    left, top, width, height = box
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'width="{width}" height="{height}" viewBox="{left} {top} {width} {height}">'
        f"{icon['body']}</svg>"
    )


_BOX = (("left", 0), ("top", 0), ("width", 16), ("height", 16))


def drawing_hash(data: dict, name: str) -> str:
    """Hash of the shapes alone, so that a recoloured or renamed copy counts as the same drawing."""
    body = _LOOKS.sub("", data["icons"][name]["body"])
    return hashlib.sha256(re.sub(r"\s+", "", body).encode()).hexdigest()[:12]


def render(svg: str, size: int = SIZE) -> np.ndarray:
    """RGBA bitmap of an SVG, centred in a square, aspect ratio kept."""
    png = bytes(
        resvg_py.svg_to_bytes(svg_string=svg, width=size, height=size, skip_system_fonts=True)
    )
    image = Image.open(io.BytesIO(png)).convert("RGBA")
    if image.size != (size, size):
        image.thumbnail((size, size), Image.Resampling.BICUBIC)
        square = Image.new("RGBA", (size, size))
        square.paste(image, ((size - image.width) // 2, (size - image.height) // 2))
        image = square
    return np.asarray(image)


def render_set(package: Path, prefix: str, colour: bool, keep: set[str] | None, cache: Path) -> int:
    """Render one set to the cache; icons that cannot be drawn or come out empty are left out.

    ``keep`` are the captions wanted, all when it is None.
    """
    target = cache / f"{prefix}.npy"
    if target.exists():
        return len(json.loads((cache / f"{prefix}.json").read_text())["names"])
    data = read_set(package, prefix)
    names, hashes, bitmaps = [], [], []
    for name in icon_names(data):
        if keep is not None and caption(name) not in keep:
            continue
        try:
            pixels = render(svg_of(data, name))
        except (ValueError, RuntimeError, OSError):
            continue
        if pixels[..., 3].max() < 64:
            continue
        names.append(name)
        hashes.append(drawing_hash(data, name))
        bitmaps.append(pixels if colour else pixels[..., 3])
    shape = (0, SIZE, SIZE, 4) if colour else (0, SIZE, SIZE)
    (cache / f"{prefix}.json").write_text(json.dumps({"names": names, "drawings": hashes}))
    np.save(target, np.stack(bitmaps) if bitmaps else np.zeros(shape, np.uint8))
    return len(names)


def common_captions(package: Path, listing: dict[str, dict], minimum: int) -> set[str]:
    """Captions drawn by at least ``minimum`` sets of the training part."""
    counts: dict[str, int] = {}
    for prefix in listing:
        if prefix in HELD_OUT:
            continue
        for text in {caption(name) for name in icon_names(read_set(package, prefix))}:
            counts[text] = counts.get(text, 0) + 1
    return {text for text, count in counts.items() if count >= minimum}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("package", type=Path, help="unpacked @iconify/json folder")
    parser.add_argument("cache", type=Path, help="folder for the bitmaps")
    parser.add_argument("--minimum", type=int, default=2, help="sets that must draw a caption")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    args.cache.mkdir(parents=True, exist_ok=True)
    listing = collections(args.package)
    keep = common_captions(args.package, listing, args.minimum)
    with ProcessPoolExecutor(args.workers) as pool:
        jobs = {}
        for prefix, info in listing.items():
            emoji = info.get("category") == "Emoji" or prefix == "fluent-emoji"
            everything = prefix in HELD_OUT or emoji or prefix in PICTORIAL
            if info.get("category") == "Logos" and not everything:
                continue  # brand marks: thousands of names that say nothing of what is drawn
            wanted = None if everything else keep
            jobs[prefix] = pool.submit(
                render_set, args.package, prefix, bool(info.get("palette")), wanted, args.cache
            )
        for prefix, job in jobs.items():
            print(f"{prefix}: {job.result()} icons", flush=True)


if __name__ == "__main__":
    main()
