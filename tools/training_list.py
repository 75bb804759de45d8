"""Choose the training pairs from the cache, and write down what was chosen.

    python tools/training_list.py package work/npm work/icons work/pairs

Writes the bitmaps and captions for ``pretrain.py``, and ``training_list.txt.gz`` and
``training_list.safetensors.gz`` beside this file: set and name of each training icon, and the
hashes by which ``tests/tools/test_assets.py`` proves that none of them is in the suite.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
from captions import caption, emoji_caption, number_caption
from emoji_names import fxemoji_captions
from glyphs import glyph_captions
from iconset import collections, read_set
from regions import parts_of
from safetensors.numpy import save
from splits import HELD_OUT
from synonyms import read_synonyms

OTHER_SOURCES = ("emoji-fonts", "fonts", "openclipart")
"""Rendered beside the icon sets by ``emoji_fonts.py``, ``glyphs.py`` and ``openclipart.py``."""
TRAINING_EMOJI = ("twemoji", "fxemoji", "streamline-emojis")
PER_SET = 4
"""Drawings of one caption taken from one set: some sets draw a home in eight sizes."""
NEAR = 0.035
"""Root mean square difference, of 1, of two 8x8 grey thumbnails that count as near-duplicates."""


def on_white(pixels: np.ndarray) -> np.ndarray:
    """Uint8 RGB on white, from alpha only (black drawing) or RGBA."""
    if pixels.ndim == 3:
        return np.repeat(255 - pixels[..., None], 3, axis=-1)
    alpha = pixels[..., 3:].astype(np.uint16)
    mixed = (pixels[..., :3] * alpha + 255 * (255 - alpha) + 127) // 255
    return mixed.astype(np.uint8)


def thumbnails(rgb: np.ndarray) -> np.ndarray:
    """8x8 grey thumbnails in 16 levels, as (N, 64) bytes: cheap to store and to compare."""
    grey = rgb.astype(np.float32).mean(-1).reshape(len(rgb), 8, 8, 8, 8).mean((2, 4))
    return np.round(grey.reshape(len(rgb), 64) / 17).astype(np.uint8)


def render_hashes(rgb: np.ndarray) -> np.ndarray:
    """First six bytes of the SHA-256 of each bitmap on white, as (N, 6) bytes."""
    digests = [hashlib.sha256(image.tobytes()).digest()[:6] for image in rgb]
    return np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 6)


def near_duplicates(queries: np.ndarray, references: np.ndarray, near: float = NEAR) -> np.ndarray:
    """Which thumbnails of ``queries`` lie within ``near`` (root mean square) of a reference."""
    a, b = queries.astype(np.float32) / 15, references.astype(np.float32) / 15
    norms = (b**2).sum(1)
    found = np.zeros(len(a), bool)
    for start in range(0, len(a), 4096):
        part = a[start : start + 4096]
        squared = (part**2).sum(1)[:, None] + norms - 2 * part @ b.T
        found[start : start + 4096] = squared.min(1) / 64 < near**2
    return found


def captions_of(package: Path, npm: Path, cache: Path, prefix: str) -> Callable[[str], list[str]]:
    """The function from a drawing's name to its captions, the best first, that suits a set."""
    if prefix == "fonts":
        return glyph_captions
    if prefix in OTHER_SOURCES:
        meta = json.loads((cache / f"{prefix}.json").read_text())
        named = dict(zip(meta["names"], meta["captions"], strict=True))
        return lambda name: named[name]
    if prefix == "fxemoji":
        spelled = fxemoji_captions(package, npm)
        return lambda name: [spelled[name]] if name in spelled else []
    if prefix == "streamline-emojis":
        flags = set(read_set(package, prefix)["categories"].get("Flags", ()))
        return lambda name: [("flag of " if name in flags else "") + emoji_caption(name)]
    if prefix in TRAINING_EMOJI:
        return lambda name: [emoji_caption(name)]
    return icon_captions


def icon_captions(name: str) -> list[str]:
    """An icon's caption; a digit in a frame is that number."""
    number = number_caption(name)
    texts = [number, f"number {number}"] if number else [caption(name)]
    return [text for text in texts if text]


def load_set(cache: Path, prefix: str) -> tuple[list[str], list[str], np.ndarray]:
    """Names, drawing hashes and bitmaps of a rendered set."""
    meta = json.loads((cache / f"{prefix}.json").read_text())
    return meta["names"], meta["drawings"], np.load(cache / f"{prefix}.npy")


def held_out_fingerprints(cache: Path) -> tuple[set[str], np.ndarray, np.ndarray]:
    """Drawing hashes, render hashes and thumbnails of every icon of the held-out sets."""
    drawings, renders, small = set(), [], []
    for prefix in sorted(HELD_OUT):
        if not (cache / f"{prefix}.json").exists():
            continue
        _, hashes, pixels = load_set(cache, prefix)
        rgb = on_white(pixels)
        drawings.update(hashes)
        renders.append(render_hashes(rgb))
        small.append(thumbnails(rgb))
    return drawings, np.concatenate(renders), np.concatenate(small)


def choose(
    names: list[str], to_captions: Callable[[str], list[str]], rng: random.Random
) -> list[tuple[int, list[str]]]:
    """Positions and captions of at most ``PER_SET`` drawings for each caption of one set."""
    by_caption, captions = defaultdict(list), {}
    for position, name in enumerate(names):
        texts = to_captions(name)
        if texts:
            captions[position] = texts
            by_caption[texts[0]].append(position)
    chosen = []
    for positions in by_caption.values():
        rng.shuffle(positions)
        chosen += positions[:PER_SET]
    return [(position, captions[position]) for position in sorted(chosen)]


def gather(package: Path, npm: Path, cache: Path) -> dict[str, list]:
    """Every training pair that shares neither drawing, rendering nor look with a held-out icon."""
    drawings, renders, small = held_out_fingerprints(cache)
    seen_renders = {row.tobytes() for row in renders}
    synonyms = read_synonyms(package, npm)
    rng = random.Random(0)
    kept = defaultdict(list)
    dropped = Counter()
    for prefix in [*collections(package), *OTHER_SOURCES]:
        if prefix in HELD_OUT or not (cache / f"{prefix}.json").exists():
            continue
        names, hashes, pixels = load_set(cache, prefix)
        to_captions = captions_of(package, npm, cache, prefix)
        chosen = (
            [(position, to_captions(name)) for position, name in enumerate(names)]
            if prefix in OTHER_SOURCES
            else choose(names, to_captions, rng)
        )
        if not chosen:
            continue
        rgb = on_white(pixels[[position for position, _ in chosen]])
        prints, thumbs = render_hashes(rgb), thumbnails(rgb)
        near = near_duplicates(thumbs, small)
        for row, (position, texts) in enumerate(chosen):
            same = hashes[position] in drawings or prints[row].tobytes() in seen_renders
            if same or near[row]:
                dropped["same" if same else "near"] += 1
                continue
            other = [name for name in synonyms.get(texts[0], ()) if name not in texts]
            kept["icon"].append(f"{prefix}:{names[position]}")
            kept["captions"].append(texts + other)
            kept["drawing"].append(bytes.fromhex(hashes[position]))
            kept["render"].append(prints[row].tobytes())
            kept["thumbnail"].append(thumbs[row])
            kept["pixels"].append(pixels[position])
    print(f"{len(kept['icon'])} kept, left out: {dict(dropped)}")
    return kept


def write_list(kept: dict[str, list], folder: Path) -> None:
    """The committed record: names as text, hashes and thumbnails (two levels a byte) as tensors."""
    write_gzip(folder / "training_list.txt.gz", "\n".join(kept["icon"]).encode())
    small = np.stack(kept["thumbnail"])
    tensors = {
        "drawing": np.frombuffer(b"".join(kept["drawing"]), np.uint8).reshape(-1, 6),
        "render": np.frombuffer(b"".join(kept["render"]), np.uint8).reshape(-1, 6),
        "thumbnail": small[:, ::2] * 16 + small[:, 1::2],
    }
    write_gzip(folder / "training_list.safetensors.gz", save(tensors))


def write_gzip(path: Path, content: bytes) -> None:
    """Gzip without date or name, so that the same content gives the same file."""
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as stream:
        stream.write(content)
    path.write_bytes(buffer.getvalue())


def write_pairs(kept: dict[str, list], work: Path) -> None:
    """Bitmaps and captions; one-colour drawings, with their parts, and many-coloured ones apart."""
    work.mkdir(parents=True, exist_ok=True)
    mono = [index for index, pixels in enumerate(kept["pixels"]) if pixels.ndim == 2]
    colour = [index for index, pixels in enumerate(kept["pixels"]) if pixels.ndim == 3]
    np.save(work / "mono.npy", np.stack([kept["pixels"][index] for index in mono]))
    np.save(work / "parts.npy", np.stack([parts_of(kept["pixels"][index]) for index in mono]))
    np.save(work / "colour.npy", np.stack([kept["pixels"][index] for index in colour]))
    order = [*mono, *colour]
    pairs = {
        "icons": [kept["icon"][index] for index in order],
        "captions": [kept["captions"][index] for index in order],
    }
    (work / "pairs.json").write_text(json.dumps(pairs))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("package", type=Path, help="unpacked @iconify/json folder")
    parser.add_argument("npm", type=Path, help="folder of the packages that synonyms.py names")
    parser.add_argument("cache", type=Path, help="folder of bitmaps written by iconset.py")
    parser.add_argument("work", type=Path, help="folder for the training pairs")
    args = parser.parse_args()
    kept = gather(args.package, args.npm, args.cache)
    write_list(kept, Path(__file__).parent)
    write_pairs(kept, args.work)


if __name__ == "__main__":
    main()
