"""Which emoji a drawing of fxemoji shows."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

from fxemoji_names import FXEMOJI
from iconset import read_set
from synonyms import emoji_codes, emoji_short_names


def _key(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def fxemoji_captions(package: Path, npm: Path) -> dict[str, str]:
    """fxemoji's name -> the emoji's caption, by its caption, Unicode's name or a short name."""
    keys: dict[str, tuple[int, str]] = {}
    short = emoji_short_names(npm)
    for code, text in emoji_codes(package).items():
        names = [text, *short.get(code, ())]
        if "-" not in code:
            names.insert(1, unicodedata.name(chr(int(code, 16)), ""))
        for rank, name in enumerate(names):
            known = keys.get(_key(name))
            if known is None or known[0] > rank:
                keys[_key(name)] = (rank, text)
    found = {}
    for name in read_set(package, "fxemoji")["icons"]:
        for variant in _variants(_key(name)):
            if variant in keys:
                found[name] = keys[variant][1]
                break
    return found | FXEMOJI


def _variants(key: str) -> list[str]:
    bare = [key.removesuffix(end) for end in ("symbol", "face", "sign", "icon")]
    start = [key.removeprefix(begin) for begin in ("black", "white")]
    return [key, *bare, *start, key + "face", key + "s"]
