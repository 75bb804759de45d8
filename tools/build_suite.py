"""Build the embedded suite: eleven tasks, drawn only in styles that training never saw.

    python tools/build_suite.py package work/icons src/shotfit/assets/suite

One ``<task>.zip`` (stored, fixed dates, so the same input gives the same bytes) with 64x64 PNGs
and ``manifest.json``; ``suite.json`` lists the tasks with their hashes.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import random
import zipfile
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from captions import caption, emoji_caption
from iconset import collections, read_set
from interface_concepts import CONCEPTS
from PIL import Image
from splits import HELD_OUT_EMOJI, HELD_OUT_FLAGS, HELD_OUT_ICONS
from training_list import load_set, on_white, render_hashes

GROUPS = {
    "Animals & Nature": "animals",
    "Food & Drink": "food",
    "Travel & Places": "travel",
    "Activities": "activities",
    "Objects": "objects",
    "Symbols": "symbols",
    "Smileys & Emotion": "smileys",
    "People & Body": "people",
}
TEMPLATE = "a photo of a {}."
MIN_IMAGES = 6
MAX_CLASSES = 100
"""Enough to be a task, few enough to adapt to in seconds; the best-known names come first."""
TEST_IMAGES = 2
COLOURS = 64
"""Palette size of the PNGs: half the bytes of true colour, and no eye sees it at this size."""
SEED = 2025
TOPICS = (
    "interface essential",
    "content files",
    "computers devices electronics",
    "coding apps websites",
    "design",
    "email",
    "entertainment events hobbies",
    "food drink",
    "health",
    "internet network",
    "map navigation",
    "money payments",
    "music",
    "photography",
    "shopping shipping",
    "social rewards",
    "technology",
    "transportation",
    "video movies",
    "weather",
)
DIGITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


@dataclass
class Picture:
    """One image of a task before it is written."""

    style: str
    source: str
    drawing: str
    pixels: np.ndarray = field(repr=False)


class Styles:
    """Rendered held-out sets, looked up by caption."""

    def __init__(self, cache: Path, prefixes: tuple[str, ...]) -> None:
        self.by_caption: dict[str, dict[str, Picture]] = defaultdict(dict)
        for prefix in prefixes:
            names, hashes, pixels = load_set(cache, prefix)
            to_caption = emoji_caption if prefix in HELD_OUT_EMOJI else caption
            # Shortest name first: "dog" before "dog-2" where both give the caption "dog".
            for row in sorted(range(len(names)), key=lambda row: (len(names[row]), names[row])):
                picture = Picture(prefix, f"{prefix}:{names[row]}", hashes[row], pixels[row])
                self.by_caption[to_caption(names[row])].setdefault(prefix, picture)


def emoji_groups(package: Path) -> dict[str, str]:
    """Caption -> task, from the categories of two sets that name their emoji alike."""
    groups = {}
    for prefix in ("fluent-emoji-flat", "noto"):
        for group, names in read_set(package, prefix)["categories"].items():
            for name in names:
                groups[emoji_caption(name)] = GROUPS.get(group, "")
    return groups


def fame(package: Path) -> Counter:
    """How many sets of the whole package draw each caption: a measure of how known a name is."""
    counts: Counter = Counter()
    for prefix in collections(package):
        counts.update({caption(name) for name in read_set(package, prefix)["icons"]})
    return counts


def emoji_tasks(package: Path, cache: Path) -> dict[str, dict[str, list[Picture]]]:
    """The eight emoji groups without flags."""
    styles, groups, known = Styles(cache, HELD_OUT_EMOJI), emoji_groups(package), fame(package)
    tasks: dict[str, dict[str, list[Picture]]] = {task: {} for task in GROUPS.values()}
    for text, found in styles.by_caption.items():
        # Dropping numbers merges the keycaps; 24 clock faces would be a task of their own.
        unclear = text == "keycap" or text.endswith(("oclock", "thirty"))
        if len(found) >= MIN_IMAGES and groups.get(text) and not unclear:
            tasks[groups[text]][text] = list(found.values())
    for task, classes in tasks.items():
        best = sorted(classes, key=lambda text: (-len(classes[text]), -known[text], text))
        tasks[task] = {text: classes[text] for text in best[:MAX_CLASSES]}
    return tasks


def country_codes(package: Path) -> dict[str, str]:
    """``flag of france`` -> ``fr``, from the code points of the flag emoji."""
    codes = {}
    for points, name in read_set(package, "twemoji")["chars"].items():
        letters = [int(point, 16) - 0x1F1E6 for point in points.split("-")]
        if len(letters) == 2 and all(0 <= letter < 26 for letter in letters):
            codes[emoji_caption(name)] = "".join(chr(97 + letter) for letter in letters)
    return codes


def flags(package: Path, cache: Path) -> dict[str, list[Picture]]:
    """Country flags; the square and the oblong cut of ``flag`` count as two styles."""
    emoji = Styles(cache, ("emojione", "emojione-monotone"))
    sets = {prefix: load_set(cache, prefix) for prefix in HELD_OUT_FLAGS}
    classes = {}
    for text, code in country_codes(package).items():
        pictures = list(emoji.by_caption.get(text, {}).values())
        for prefix, (names, hashes, pixels) in sets.items():
            suffixes = ("-1x1", "-4x3") if prefix == "flag" else ("",)
            for suffix in suffixes:
                if code + suffix in names:
                    row = names.index(code + suffix)
                    source = f"{prefix}:{code}{suffix}"
                    pictures.append(Picture(prefix + suffix, source, hashes[row], pixels[row]))
        if len(pictures) == 7:
            classes[text] = pictures
    populous = random.Random(SEED).sample(sorted(classes), min(MAX_CLASSES, len(classes)))
    return {text: classes[text] for text in populous}


def without_topic(text: str) -> str:
    """streamline-pixel puts a topic before the name: ``interface essential key`` -> ``key``."""
    for topic in TOPICS:
        text = text.removeprefix(topic + " ")
    return text


def interface(cache: Path) -> dict[str, list[Picture]]:
    """Interface concepts, one image for each held-out icon style that draws them."""
    # streamline-freehand is the one-colour twin of streamline-freehand-color.
    styles = Styles(cache, tuple(p for p in HELD_OUT_ICONS if p != "streamline-freehand"))
    for text, pictures in sorted(styles.by_caption.items(), key=lambda item: len(item[0])):
        if "streamline-pixel" in pictures:
            short = styles.by_caption[without_topic(text)]
            short.setdefault("streamline-pixel", pictures["streamline-pixel"])
    classes = {}
    for concept, names in CONCEPTS.items():
        found: dict[str, Picture] = {}
        for name in names:
            for style, picture in styles.by_caption.get(name, {}).items():
                found.setdefault(style, picture)
        if len(found) >= MIN_IMAGES:
            classes[concept] = list(found.values())
    return classes


def digits() -> dict[str, list[Picture]]:
    """Sixty of scikit-learn's 8x8 handwritten digits a class, dark on white like the rest."""
    from sklearn.datasets import load_digits

    data: Any = load_digits()
    classes: dict[str, list[Picture]] = {name: [] for name in DIGITS}
    for row, (image, label) in enumerate(zip(data.images, data.target, strict=True)):
        pictures = classes[DIGITS[label]]
        if len(pictures) < 60:
            grey = Image.fromarray(np.uint8(255 - image * 255 / 16))
            ink = 255 - np.asarray(grey.resize((64, 64), Image.Resampling.BICUBIC))
            pictures.append(Picture("handwriting", f"sklearn-digits:{row}", "", ink))
    return classes


def png(pixels: np.ndarray) -> bytes:
    """Palette PNG of a bitmap on white."""
    buffer = io.BytesIO()
    image = Image.fromarray(on_white(pixels[None])[0])
    image.quantize(COLOURS, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def split_of(classes: list[list[Picture]], test_images: int) -> list[list[str]]:
    """Train or test for each picture; every style gives its share of the test images.

    The styles take turns: a class takes as test images those of its styles that have been taken
    least so far, ties by a seeded draw.
    """
    rng, taken, splits = random.Random(SEED), Counter(), []
    for pictures in classes:
        ranked = sorted(
            range(len(pictures)), key=lambda i: (taken[pictures[i].style], rng.random())
        )
        test = set(ranked[:test_images])
        taken.update(pictures[i].style for i in test)
        splits.append(["test" if i in test else "train" for i in range(len(pictures))])
    return splits


def manifest_hash(classnames: list[str], images: list[dict]) -> str:
    """Hash of what defines the task: names, and file, label, split and content of each image."""
    lines = [*classnames]
    lines += [f"{i['file']} {i['label']} {i['split']} {i['sha256']}" for i in images]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def write_task(name: str, classes: dict[str, list[Picture]], licences: dict, folder: Path) -> dict:
    """Write one zip; returns its line for ``suite.json``."""
    classnames = sorted(classes)
    # A fixed shuffle: base classes are the first half, and alphabetical order would put
    # "black circle" and "black square" on one side, so the halves would differ in difficulty.
    random.Random(SEED).shuffle(classnames)
    pictures = [sorted(classes[text], key=lambda p: (p.style, p.source)) for text in classnames]
    many = len(pictures[0]) >= 40
    splits = split_of(pictures, 36 if many else TEST_IMAGES)
    images, files = [], {}
    for label, (group, split) in enumerate(zip(pictures, splits, strict=True)):
        for number, (picture, part) in enumerate(zip(group, split, strict=True)):
            path = f"images/{label:03d}-{number:02d}-{picture.style}.png"
            files[path] = png(picture.pixels)
            rgb = on_white(picture.pixels[None])
            images.append(
                {
                    "file": path,
                    "label": label,
                    "style": picture.style,
                    "split": part,
                    "source": picture.source,
                    "sha256": hashlib.sha256(files[path]).hexdigest(),
                    "drawing": picture.drawing,
                    "render": render_hashes(rgb)[0].tobytes().hex(),
                }
            )
    used = {image["source"].split(":")[0] for image in images}
    manifest = {
        "name": name,
        "template": TEMPLATE,
        "licence": {prefix: licences[prefix] for prefix in sorted(used)},
        "sha256": manifest_hash(classnames, images),
        "classnames": classnames,
        "images": images,
    }
    write_zip(folder / f"{name}.zip", manifest, files)
    counts = Counter(image["split"] for image in images)
    return {
        "sha256": manifest["sha256"],
        "classes": len(classnames),
        "train": counts["train"],
        "test": counts["test"],
        "styles": sorted({image["style"] for image in images}),
    }


def write_zip(path: Path, manifest: dict, files: dict[str, bytes]) -> None:
    """Stored members in a fixed order with a fixed date; the manifest alone is deflated."""
    with zipfile.ZipFile(path, "w") as archive:
        text = json.dumps(manifest, indent=0, ensure_ascii=False).encode()
        for name, content in [("manifest.json", text), *sorted(files.items())]:
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.create_system = 3
            kind = zipfile.ZIP_DEFLATED if name == "manifest.json" else zipfile.ZIP_STORED
            archive.writestr(info, content, kind)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("package", type=Path, help="unpacked @iconify/json folder")
    parser.add_argument("cache", type=Path, help="folder of bitmaps written by iconset.py")
    parser.add_argument("output", type=Path)
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    licences = {p: i["license"]["spdx"] for p, i in collections(args.package).items()}
    licences["sklearn-digits"] = "CC-BY-4.0"
    tasks = emoji_tasks(args.package, args.cache)
    tasks["flags"] = flags(args.package, args.cache)
    tasks["interface"] = interface(args.cache)
    tasks["digits"] = digits()
    index = {
        name: write_task(name, classes, licences, args.output)
        for name, classes in sorted(tasks.items())
    }
    (args.output / "suite.json").write_text(json.dumps(index, indent=1) + "\n")
    for name, line in index.items():
        print(name, {k: v for k, v in line.items() if k != "styles"}, len(line["styles"]), "styles")


if __name__ == "__main__":
    main()
