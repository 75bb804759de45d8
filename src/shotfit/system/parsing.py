"""JSON from files of others: what cannot be parsed is a ValueError, whatever it is."""

import json
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """The value that a JSON text holds.

    Raises:
        ValueError: for text that is not JSON, or is nested without end.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None
