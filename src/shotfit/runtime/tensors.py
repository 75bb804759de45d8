"""Arrays in the safetensors format, read and written with numpy alone.

The format: the length of a JSON header (8 bytes, little-endian), the header, the arrays' bytes.
The package safetensors is not among the few that an exported classifier needs.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from shotfit.errors import DataError
from shotfit.system.files import write_bytes_atomically

_TYPES = {"F32": "<f4", "F64": "<f8", "I64": "<i8", "I32": "<i4"}
_NAMES = {np.dtype(kind): name for name, kind in _TYPES.items()}
_LONGEST_HEADER = 100_000_000  # of the reference implementation


def write_tensors(path: Path, arrays: Mapping[str, np.ndarray], facts: Mapping[str, str]) -> None:
    """Writes arrays and the facts about them; the file is complete or not there.

    Raises:
        OSError: when it cannot be written.
    """
    header: dict[str, object] = {"__metadata__": dict(facts)}
    parts, start = [], 0
    for name, array in arrays.items():
        content = np.ascontiguousarray(array).tobytes()
        header[name] = {
            "dtype": _NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [start, start + len(content)],
        }
        parts.append(content)
        start += len(content)
    text = json.dumps(header, ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    write_bytes_atomically(path, b"".join([len(text).to_bytes(8, "little"), text, *parts]))


def read_tensors(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays of a file, and the facts about them.

    Raises:
        DataError: for a file that is missing, or not of this format.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    try:
        return _parsed(content)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{path} is not a file of tensors that can be read: {error}") from error


def _parsed(content: bytes) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 + length or length > _LONGEST_HEADER:
        raise ValueError("it is shorter than it says")
    header = json.loads(content[8 : 8 + length])
    facts = header.pop("__metadata__", {})
    data = memoryview(content)[8 + length :]
    arrays = {}
    for name, entry in header.items():
        kind, shape = np.dtype(_TYPES[entry["dtype"]]), tuple(entry["shape"])
        start, end = entry["data_offsets"]
        if not 0 <= start <= end <= len(data) or end - start != math.prod(shape) * kind.itemsize:
            raise ValueError(f"{name} has another size than it says")
        arrays[name] = np.frombuffer(data[start:end], dtype=kind).reshape(shape)
    return arrays, facts
