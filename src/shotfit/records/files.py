"""How every kind of record lies on the disk: JSON, written whole, refused when it is damaged."""

import dataclasses
import json
from pathlib import Path
from typing import Any, TypeVar

from shotfit.config import from_dict
from shotfit.errors import DataError, UsageError
from shotfit.system.files import write_atomically
from shotfit.system.parsing import parse_json

T = TypeVar("T")


def write_text(path: Path, text: str) -> None:
    """Writes a record's JSON; the file is there whole or not at all.

    Raises:
        DataError: when it cannot be written; what was there before is there still.
    """
    try:
        write_atomically(path, text + "\n")
    except OSError as error:
        raise DataError(f"Cannot write the record {path}: {error}") from error


def spelled(values: dict[str, Any], *rows: str) -> str:
    """`values` as JSON for people: what `rows` name has a line for each of its entries, so that a
    curve of 80 points is 80 lines of a diff and not 480."""
    text = json.dumps({**values, **{key: [key] for key in rows}}, indent=1, ensure_ascii=False)
    for key in rows:
        lines = [json.dumps(row, ensure_ascii=False) for row in values[key]]
        spread = "[\n  " + ",\n  ".join(lines) + "\n ]" if lines else "[]"
        text = text.replace(f'\n "{key}": [\n  "{key}"\n ]', f'\n "{key}": {spread}')
    return text


def read_values(path: Path, kind: str) -> dict[str, Any]:
    """The JSON object in a file that should hold a record of this kind.

    Raises:
        DataError: naming the file, when it cannot be read or holds something else.
    """
    try:
        values = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path} holds no {kind}: it cannot be read ({error}). Move it away, and its run is "
            "made again."
        ) from error
    if not isinstance(values, dict):
        raise DataError(f"{path} holds no {kind}. Keep other files out of the folder.")
    return values


def parse(cls: type[T], values: dict[str, Any], path: Path, kind: str, schema: int) -> T:
    """The record that these values are.

    Raises:
        DataError: naming the file, when they are damaged or of another version.
    """
    if "schema" not in values:
        raise DataError(f"{path} holds no {kind}. Keep other files out of the folder.")
    if values["schema"] != schema:
        raise DataError(
            f"{path} holds a {kind} of format {values['schema']}; this version of ShotFit reads "
            f"format {schema}. Use another folder, or the version that wrote it."
        )
    missing = [name for name in required_fields(cls) if name not in values]
    if missing:
        raise DataError(f"The {kind} in {path} lacks {', '.join(missing)}. Move it away.")
    try:
        return from_dict(cls, values)
    except UsageError as error:
        raise DataError(f"The {kind} in {path} is damaged: {error}") from error


def required_fields(cls: Any) -> list[str]:
    """The fields of a dataclass that have no default."""
    return [
        part.name
        for part in dataclasses.fields(cls)
        if part.default is dataclasses.MISSING and part.default_factory is dataclasses.MISSING
    ]
