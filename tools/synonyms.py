"""Other names of what a caption names, from the search tags that icon and emoji sets publish.

    npm pack lucide-static@1.62.0 @phosphor-icons/core@2.1.1 @tabler/icons@3.51.0 @mdi/svg@7.4.47 \\
        @fortawesome/fontawesome-free@7.3.1 emojibase-data@17.0.0      # unpacked in work/npm

A synonym is a further right answer for a drawing: sometimes its target, never its negative.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from captions import caption, emoji_caption
from iconset import read_set

MOST = 6
"""Synonyms kept of one caption; lists of tags put the closest first."""
LONGEST = 4
"""Words of a synonym at most."""
SHORTCODES = ("cldr", "github", "iamcal", "joypixels", "emojibase")
TOO_WIDE = 40
"""A tag under which more captions than this stand (``arrow``, ``food``) names a kind, no thing."""


def _folder(npm: Path, package: str) -> Path:
    found = sorted(npm.glob(f"{package}-[0-9]*/package"))
    if not found:
        raise FileNotFoundError(f"no unpacked {package} in {npm}")
    return found[-1]


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _plain(tag: str) -> str:
    """``bow_and_arrow`` -> ``bow and arrow``; empty for what is no name."""
    text = re.sub(r"[-_\s]+", " ", tag.strip().lower())
    good = re.fullmatch(r"[a-z0-9][a-z0-9 ']*", text) and not text.isdigit()
    return text if good and len(text.split()) <= LONGEST else ""


def emoji_codes(package: Path) -> dict[str, str]:
    """Code points (``1f415``) -> caption of the emoji."""
    chars = read_set(package, "twemoji")["chars"]
    return {_code(points): emoji_caption(name) for points, name in chars.items()}


def emoji_short_names(npm: Path) -> dict[str, list[str]]:
    """Code points -> the names that chat programs give the emoji, ``1f415`` -> ``dog2``."""
    folder = _folder(npm, "emojibase-data") / "en" / "shortcodes"
    short: dict[str, list[str]] = defaultdict(list)
    for name in SHORTCODES:
        for code, found in _json(folder / f"{name}.json").items():
            short[_code(code)] += [found] if isinstance(found, str) else found
    return short


def _code(points: str) -> str:
    return points.lower().replace("-fe0f", "")


def _emoji(npm: Path, codes: dict[str, str]) -> Iterator[tuple[str, list[str]]]:
    short = emoji_short_names(npm)
    for entry in _json(_folder(npm, "emojibase-data") / "en" / "data.json"):
        code = _code(entry["hexcode"])
        if code in codes:
            yield codes[code], [entry["label"], *short.get(code, ()), *entry.get("tags", [])]


def _icons(npm: Path, codes: dict[str, str]) -> Iterator[tuple[str, list[str]]]:
    for name, tags in _json(_folder(npm, "lucide-static") / "tags.json").items():
        yield caption(name), tags
    for name, entry in _json(_folder(npm, "tabler-icons") / "icons.json").items():
        yield caption(name), [str(tag) for tag in entry["tags"]]
    for entry in _json(_folder(npm, "mdi-svg") / "meta.json"):
        yield caption(entry["name"]), [alias.removeprefix("emoji-") for alias in entry["aliases"]]
    path = _folder(npm, "fortawesome-fontawesome-free") / "metadata" / "icon-families.json"
    for name, entry in _json(path).items():
        points = entry.get("aliases", {}).get("unicodes", {}).get("composite", [])
        emoji = [codes[point] for point in points if point in codes]
        yield caption(name), [*emoji, entry["label"], *entry["search"]["terms"]]
    source = (_folder(npm, "phosphor-icons-core") / "dist" / "index.mjs").read_text()
    for name, tags in re.findall(r'name: "([^"]+)".*?tags: \[([^\]]*)\]', source, re.DOTALL):
        yield caption(name), re.findall(r'"([^"*]+)"', tags)


def read_synonyms(package: Path, npm: Path) -> dict[str, list[str]]:
    """Caption -> at most ``MOST`` other names, those that several sources give first."""
    codes = emoji_codes(package)
    votes: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for source in (_emoji(npm, codes), _icons(npm, codes)):
        for text, tags in source:
            for place, tag in enumerate(dict.fromkeys(map(_plain, tags))):
                if tag and tag != text:
                    votes[text][tag] += 2 - min(place, 20) / 20
    width = Counter(tag for tags in votes.values() for tag in tags)

    def by_votes(tags: dict[str, float]) -> list[str]:
        return sorted((tag for tag in tags if width[tag] <= TOO_WIDE), key=lambda tag: -tags[tag])

    return {text: by_votes(tags)[:MOST] for text, tags in votes.items() if text}
