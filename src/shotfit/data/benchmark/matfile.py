"""Read MATLAB level 5 MAT-files as plain Python values, as far as dataset annotations need.

Stanford Cars and Oxford Flowers publish their labels in this format. SciPy reads it too, but is
too large a dependency for three files that are only needed to make a split. Written from "MAT-File
Format" (The MathWorks, level 5): numbers, text, cells and structs; no sparse, no objects.
"""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shotfit.errors import DataError

_NUMBERS = {1: "b", 2: "B", 3: "h", 4: "H", 5: "i", 6: "I", 7: "f", 9: "d", 12: "q", 13: "Q"}
_TEXT = {16: "utf-8", 17: "utf-16-le", 18: "utf-32-le"}
_MATRIX, _COMPRESSED = 14, 15
_CELL, _STRUCT, _CHAR, _FIRST_NUMERIC, _LAST_NUMERIC = 1, 2, 4, 6, 15


def read_mat(path: Path) -> dict[str, Any]:
    """The variables of the MAT-file by name.

    Arrays of numbers and cells become flat lists in MATLAB's column-major order, text becomes a
    string, a struct array a list of dictionaries. Variables of other kinds are left out.

    Raises:
        DataError: when the file is missing or is not a level 5 MAT-file.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    # The mark of a little-endian file; no MATLAB of this century writes the other.
    if data[126:128] != b"IM":
        raise DataError(f"{path} is not a MATLAB level 5 file. Download it again.")
    variables = {}
    try:
        for kind, body in _elements(data[128:]):
            if kind == _COMPRESSED:
                kind, body = next(_elements(zlib.decompress(body)))
            if kind == _MATRIX:
                name, value = _matrix(body)
                if value is not None:
                    variables[name] = value
    except (struct.error, zlib.error, StopIteration, ValueError, IndexError) as error:
        raise DataError(f"{path} is cut off or damaged ({error}). Download it again.") from error
    return variables


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The (type, content) pairs in `data`."""
    position = 0
    while position < len(data):
        kind, size = struct.unpack_from("<II", data, position)
        if kind >> 16:
            # The small form: the size in the upper half of the word, the content in the next four.
            kind, size = kind & 0xFFFF, kind >> 16
            start, position = position + 4, position + 8
        else:
            start = position + 8
            # Content is padded to eight bytes, except that of compressed elements.
            padding = 0 if kind == _COMPRESSED else -size % 8
            position = start + size + padding
        if start + size > len(data):
            raise struct.error("an element runs past the end of the file")
        yield kind, data[start : start + size]


def _matrix(body: bytes) -> tuple[str, Any]:
    """The name and the value of an array element."""
    parts = _elements(body)
    flags, _dimensions, name = next(parts)[1], next(parts)[1], next(parts)[1]
    array_class = struct.unpack_from("<I", flags)[0] & 0xFF
    return name.decode("ascii"), _value(array_class, parts)


def _value(array_class: int, parts: Iterator[tuple[int, bytes]]) -> Any:
    if array_class == _CELL:
        return [_matrix(body)[1] if body else [] for _, body in parts]
    if array_class == _STRUCT:
        return _struct_array(parts)
    if array_class == _CHAR:
        kind, content = next(parts, (16, b""))
        return _text(kind, content)
    if _FIRST_NUMERIC <= array_class <= _LAST_NUMERIC:
        kind, content = next(parts, (1, b""))
        return _numbers(kind, content)
    return None


def _struct_array(parts: Iterator[tuple[int, bytes]]) -> list[dict[str, Any]]:
    length = struct.unpack_from("<i", next(parts)[1])[0]
    packed = next(parts)[1]
    names = [
        packed[start : start + length].split(b"\0", 1)[0].decode("ascii")
        for start in range(0, len(packed), length)
    ]
    values = [_matrix(body)[1] if body else [] for _, body in parts]
    return [
        dict(zip(names, values[start : start + len(names)], strict=True))
        for start in range(0, len(values), len(names))
    ]


def _text(kind: int, content: bytes) -> str:
    if kind in _TEXT:
        return content.decode(_TEXT[kind])
    return "".join(map(chr, _numbers(kind, content)))


def _numbers(kind: int, content: bytes) -> list[Any]:
    if kind not in _NUMBERS:
        raise struct.error(f"unknown number type {kind}")
    code = _NUMBERS[kind]
    count = len(content) // struct.calcsize(code)
    return list(struct.unpack(f"<{count}{code}", content))
