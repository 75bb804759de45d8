"""Every reader is fed mutated files: it reads them, or says as a user is told what is wrong."""

import json
import random
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from shotfit.errors import DataError, UsageError
from shotfit.saved_settings import checksum
from torture.inputs import Reader, readers

SLOW = 5.0
"""Seconds of the processor after which an input counts as a failure."""
SUPPRESSED = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
"""Slow or large inputs are what is looked for here."""
TOKENS = (
    *(
        b"\0",
        b"\xff",
        b"-1",
        b"1e999",
        b"NaN",
        b"null",
        b"[[[[",
        b"{}",
        b'"',
        b"\\u0000",
        b"9" * 30,
    ),
    *(b"../", b"/dev/zero", b"*a", b"&a [", b"\n", b",", b"\xf0\x9f\x98\x80", "²".encode(), b"{0}"),
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)


def fuzz(count: int, number: int, only: str | None = None) -> dict[str, Any]:
    """Feeds `count` inputs to every reader; how often each read or refused, and what else came."""
    found = {}
    for name, reader in readers().items():
        if only is None or only in name:
            found[name] = fuzz_one(reader, count, number)
    return found


def fuzz_one(reader: Reader, count: int, number: int) -> dict[str, Any]:
    """One reader's share: refusals are `DataError` or `UsageError`, in time."""
    outcomes: Counter[str] = Counter()
    failures: dict[str, str] = {}
    started = time.process_time()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name, content in reader.beside.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)

        def feed(content: bytes) -> None:
            outcome, detail = _fed(reader, folder / reader.name, content)
            outcomes[outcome] += 1
            if detail:
                failures.setdefault(detail, content[:2000].hex())

        for content in reader.seeds:
            feed(content)
        assert not failures and outcomes["read"] == len(reader.seeds), (outcomes, failures)
        _drawn(reader, feed, count, number)
    return {
        "inputs": sum(outcomes.values()),
        **outcomes,
        "failures": failures,
        "processor_seconds": round(time.process_time() - started, 1),
    }


def _drawn(reader: Reader, feed: Callable[[bytes], None], count: int, number: int) -> None:
    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=SUPPRESSED,
    )
    @given(st.integers(0, 2**48), VALUES)
    def feed_drawn(drawn: int, value: Any) -> None:
        feed(mutated(reader, random.Random(drawn), value))

    feed_drawn()


def _fed(reader: Reader, path: Path, content: bytes) -> tuple[str, str]:
    path.write_bytes(content)
    started = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reader.read(path)
        outcome, detail = "read", ""
    except (DataError, UsageError):
        outcome, detail = "refused", ""
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.name}"
        outcome, detail = "failed", f"{type(error).__name__} in {where}: {error}"[:200]
    seconds = time.process_time() - started
    return (outcome, detail) if seconds < SLOW else ("slow", f"{seconds:.0f} s")


def mutated(reader: Reader, stream: random.Random, value: Any) -> bytes:
    """A good file with something wrong: a value of another kind in JSON, or bytes changed."""
    content = stream.choice(reader.seeds)
    is_json = content[:1] in (b"{", b"[")
    if is_json and (reader.signed or stream.random() < 0.5):
        try:
            values = json.loads(content)
            replace_one(values, stream, value)
            if reader.signed:
                values["checksum"] = checksum(values)
            return json.dumps(values).encode()
        except ValueError:  # JSON lines; what JSON cannot say
            pass
    return mutated_bytes(content, stream)


def replace_one(values: Any, stream: random.Random, value: Any) -> None:
    """Puts `value` in the place of one of the values, however deep it lies, or removes that."""
    places: list[tuple[Any, Any]] = []
    left = [values]
    while left:
        inner = left.pop()
        keys = list(inner) if isinstance(inner, dict) else range(len(inner))
        places += [(inner, key) for key in keys]
        left += [inner[key] for key in keys if isinstance(inner[key], dict | list)]
    inner, key = stream.choice(places)
    if isinstance(inner, dict) and stream.random() < 0.2:
        del inner[key]
    else:
        inner[key] = value


def mutated_bytes(content: bytes, stream: random.Random) -> bytes:
    """Some bytes changed, cut out, doubled or put in."""
    changed = bytearray(content)
    for _ in range(stream.choice((1, 1, 2, 4, 16))):
        if not changed:
            break
        place = stream.randrange(len(changed))
        end = min(len(changed), place + stream.choice((1, 2, 8, 64)))
        kind = stream.randrange(6)
        if kind == 0:
            changed[place] ^= 1 << stream.randrange(8)
        elif kind == 1:
            changed[place] = stream.choice((0, 255, 127, 128))
        elif kind == 2:
            del changed[place:end]
        elif kind == 3:
            changed[place:place] = changed[place:end] * stream.choice((1, 2, 100))
        elif kind == 4:
            changed[place:place] = stream.choice(TOKENS)
        else:
            del changed[stream.randrange(len(changed)) :]
    return bytes(changed)
