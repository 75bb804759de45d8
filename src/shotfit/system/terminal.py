"""Names from elsewhere on a terminal: they are shown, and steer nothing."""

import unicodedata

# Controls, and marks that turn the direction of writing; lone surrogates are bytes of file names
# that are no Unicode.
_UNSHOWN = ("Cc", "Cf", "Cs", "Zl", "Zp")


def printable(text: str) -> str:
    r"""`text` with what a terminal would act on as an escape, such as `\x1b`; lines stay lines."""
    return "".join(map(_shown, text))


def has_controls(text: str) -> bool:
    """Whether a name holds characters that a terminal would act on."""
    return any(unicodedata.category(character) in ("Cc", "Zl", "Zp") for character in text)


def _shown(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) not in _UNSHOWN:
        return character
    if character == "\u200d":  # joins emoji
        return character
    return (
        character.encode("ascii", "backslashreplace").decode()
        if ord(character) > 255
        else (f"\\x{ord(character):02x}")
    )
