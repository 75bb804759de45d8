"""Which sets may be used at all, and which are kept from training for the suite."""

from __future__ import annotations

LICENCES = frozenset(
    [
        "MIT",
        "Apache-2.0",
        "CC0-1.0",
        "ISC",
        "BSD-3-Clause",
        "Unlicense",
        "CC-BY-4.0",
        "CC-BY-3.0",
        "OFL-1.1",
        "MPL-2.0",
    ]
)
"""SPDX identifiers of the licences that let us pass on renderings without further terms."""

HELD_OUT_EMOJI = (
    "noto",
    "noto-v1",
    "fluent-emoji",
    "fluent-emoji-flat",
    "fluent-emoji-high-contrast",
    "emojione",
    "emojione-monotone",
)
"""Seven styles of three families. The members of a family share drawings, so a family is held out
whole. Training keeps three styles of three other families: twemoji, fxemoji, streamline-emojis."""

HELD_OUT_FLAGS = ("circle-flags", "flag", "flagpack", "cif")
"""Fluent and Noto draw no country flags, so the flags task takes its styles from flag sets."""

HELD_OUT_ICONS = (
    "pixelarticons",
    "streamline-pixel",
    "pixel",
    "memory",
    "dinkie-icons",
    "streamline-freehand",
    "streamline-freehand-color",
    "streamline-kameleon-color",
    "streamline-stickies-color",
    "marketeq",
    "flat-color-icons",
    "flat-ui",
    "meteocons",
)
"""Pixel art, hand drawings, stickers and flat colour: unlike the line icons of training."""

HELD_OUT = frozenset(HELD_OUT_EMOJI + HELD_OUT_FLAGS + HELD_OUT_ICONS)
