"""Turn icon names into captions: ``home-filled-24`` -> ``home``.

An icon's name carries two things, what is drawn and how it is drawn. Only the first belongs in a
caption; the second would split one concept into a dozen captions that no eye can tell apart.
"""

from __future__ import annotations

import re

STYLE_WORDS = frozenset(
    [
        "outline",
        "outlined",
        "outlines",
        "filled",
        "fill",
        "rounded",
        "round",
        "sharp",
        "solid",
        "line",
        "linear",
        "lines",
        "regular",
        "bold",
        "light",
        "thin",
        "duotone",
        "twotone",
        "broken",
        "bulk",
        "stroke",
        "stroked",
        "flat",
        "monotone",
        "color",
        "colour",
        "colored",
        "mono",
        "alt",
        "fa",
        "sm",
        "md",
        "lg",
        "xs",
        "xl",
        "xxl",
        "small",
        "large",
        "medium",
        "1x1",
        "4x3",
        "duo",
        "border",
        "borderless",
        "oi",
        "o",
        "pop",
        "pencil",
        "print",
        "plain",
        "wordmark",
        "original",
        "micro",
        "mini",
        "logo",
        "logos",
        "rr",
        "br",
        "sr",
        "ss",
        "rs",
        "bs",
        "tt",
        "inline",
        "remix",
        "freehand",
        "sketch",
        "streamline",
        "flex",
        "plump",
        "cyber",
        "kameleon",
        "glyph",
        "semi",
        "two",
        "tone",
        "static",
        "animated",
        "transition",
        "off20",
        "variant",
        "ios",
        "md2",
        "android",
        "baseline",
        "twotoned",
        "pictogram",
    ]
)
"""Words that say how an icon is drawn; dropped from the end of a name, never from its middle."""

SKIN = re.compile(r"(light|medium|dark)-skin|skin-tone|skin$|-[1-5]f3f[b-f]")
"""Skin tones: five copies of one drawing; the suite and the training pairs leave them out."""

LEADING = frozenset({"outline", "baseline", "ic", "icon", "logo", "logos"})
"""Style words that some sets put first."""

_COUNTRY = re.compile(r"^flag-(?:for-)?(?:flag-)?(.+)$")
_SIZE = re.compile(r"^\d+(px|x\d+)?$|^\d+(\.\d+)?$")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")


def is_skin_tone(name: str) -> bool:
    """Whether the name is a skin-tone variant of another drawing."""
    return SKIN.search(name) is not None


def split_words(name: str) -> list[str]:
    """Words of an icon name, lower-cased; ``alarmClock_24`` -> ``["alarm", "clock", "24"]``."""
    spaced = _CAMEL.sub("-", name).lower()
    return [word for word in re.split(r"[-_\s.]+", spaced) if word]


def caption(name: str) -> str:
    """The caption of an icon name, or an empty string when nothing but style words is left."""
    words = split_words(name)
    while len(words) > 1 and (words[-1] in STYLE_WORDS or _SIZE.match(words[-1])):
        words.pop()
    while len(words) > 1 and words[0] in LEADING:
        words.pop(0)
    return " ".join(words)


NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_FRAMES = frozenset(
    """number numeric digit num counter looks circle circled square box rounded hexagon octagon
    pentagon diamond triangle rhombus badge small waves key bold light fill filled outline solid
    duotone thin line sharp rounded alt multiple dashed dotted""".split()
)
_SAYS_NUMBER = frozenset({"number", "numeric", "digit", "num", "counter", "looks"})


def number_caption(name: str) -> str:
    """``numeric-5-box`` and ``5-circle`` -> ``five``; empty when the drawing is no single digit.

    ``circle-5`` is a fifth circle, not a five in a circle: a digit that comes last counts only
    beside a word that says number.
    """
    words = split_words(name)
    found = [word for word in words if word in NUMBERS or (len(word) == 1 and word.isdigit())]
    rest = [word for word in words if word not in found]
    if len(found) != 1 or not set(rest) <= _FRAMES:
        return ""
    if rest and words[0] != found[0] and not set(rest) & _SAYS_NUMBER:
        return ""
    return NUMBERS[int(found[0])] if found[0].isdigit() else found[0]


def emoji_caption(name: str) -> str:
    """The caption of an emoji: as above, and country flags in one wording, ``flag of spain``."""
    country = _COUNTRY.match(name)
    if country and not country[1].startswith("in-hole"):
        return "flag of " + country[1].replace("-", " ")
    return caption(name)
