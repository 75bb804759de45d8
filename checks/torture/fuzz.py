"""Every reader is fed mutated files: it reads them, or says as a user is told what is wrong."""

import contextlib
import copy
import functools
import json
import random
import resource
import shutil
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from shotfit.errors import DataError, UsageError
from torture.inputs import Reader

SLOW = 5.0
"""Seconds of the processor after which an input counts as a failure."""
MEMORY = 2 << 30
"""Bytes beyond those at the start that a reader may take; without a limit it could take them all,
and the system would end other processes too."""
POOL = 300
"""Values of JSON that hypothesis draws, of which every input takes some."""
SHOWN_BYTES = 4000
TOKENS = (
    *(b"\0", b"\xff", b"-1", b"1e999", b"NaN", b"null", b"[[[[", b"{}", b'"', b"\\u0000"),
    *(b"9" * 30, b"../", b"/dev/zero", b"*a", b"&a [", b"\n", b",", b"\xf0\x9f\x98\x80"),
    *("²".encode(), b"{0}"),
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)


def fuzz(name: str, reader: Reader, count: int, number: int) -> dict[str, Any]:
    """Feeds `count` inputs to a reader: refusals are `DataError` or `UsageError`, in time."""
    feeding = Feeding(reader)
    started = time.process_time()
    try:
        feeding.feed_seeds()
        with limited_memory():
            for content in inputs(name, reader, count, number):
                feeding.feed(content)
    finally:
        feeding.close()
    return {
        "inputs": sum(feeding.outcomes.values()),
        **feeding.outcomes,
        "failures": feeding.failures,
        "processor_seconds": round(time.process_time() - started, 1),
    }


def inputs(name: str, reader: Reader, count: int, number: int) -> Iterator[bytes]:
    """`count` mutated files; the same ones for the same number."""
    stream, pool = random.Random(f"{number} {name}"), values(number)
    for _ in range(count):
        yield mutated(reader, stream, pool)


@contextlib.contextmanager
def limited_memory() -> Iterator[None]:
    """A reader that takes `MEMORY` fails, where the system can tell and limit what there is."""
    sizes = Path("/proc/self/statm")
    if not sizes.exists():
        yield
        return
    own = int(sizes.read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = own + MEMORY if hard == resource.RLIM_INFINITY else min(own + MEMORY, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


class Feeding:
    """A reader with its files in a folder of its own, and what became of its inputs."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.outcomes: Counter[str] = Counter()
        self.failures: dict[str, str] = {}
        """The first input, in hexadecimal digits, with which a failure was met."""
        self._folder = Path(tempfile.mkdtemp())
        self._place = self._folder / reader.name
        for name, content in {**reader.beside, reader.name: b""}.items():
            (self._folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self._folder / name).write_bytes(content)

    def feed(self, content: bytes) -> str:
        """Lets it read; the failure, or nothing."""
        outcome, detail = _fed(self.reader, self._place, content)
        self.outcomes[outcome] += 1
        if detail:
            self.failures.setdefault(detail, content[:SHOWN_BYTES].hex())
        return detail

    def feed_seeds(self) -> None:
        """Good files first, which must be read: mutated ones would else test nothing."""
        for content in self.reader.seeds:
            self.feed(content)
        assert self.outcomes == {"read": len(self.reader.seeds)}, (self.outcomes, self.failures)

    def close(self) -> None:
        """Removes the folder."""
        shutil.rmtree(self._folder, ignore_errors=True)


@functools.cache
def values(number: int) -> tuple[Any, ...]:
    """Values of JSON, drawn by hypothesis once: drawing takes longer than reading."""
    drawn: list[Any] = []

    @seed(number)
    @settings(
        max_examples=POOL,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(VALUES)
    def draw(value: Any) -> None:
        drawn.append(value)

    draw()
    return tuple(drawn)


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
        outcome, detail = "failed", f"{type(error).__name__} in {where}"
    seconds = time.process_time() - started
    return (outcome, detail) if seconds < SLOW else ("slow", f"{seconds:.0f} s")


def mutated(reader: Reader, stream: random.Random, pool: tuple[Any, ...]) -> bytes:
    """A good file with something wrong: values of another kind in JSON, tensors under other names
    or of other kinds, or bytes changed."""
    content = stream.choice(reader.seeds)
    if reader.sign is not None or stream.random() < 0.5:
        with contextlib.suppress(ValueError):  # what is not of this kind
            return reader.signed(_restructured(content, stream, pool))
    return reader.signed(mutated_bytes(content, stream))


def _restructured(content: bytes, stream: random.Random, pool: tuple[Any, ...]) -> bytes:
    if content[8:9] == b"{":
        end = 8 + int.from_bytes(content[:8], "little")
        header = json.loads(content[8:end])
        _exchange_two(header, stream) if stream.random() < 0.3 else _replace(header, stream, pool)
        text = json.dumps(header).encode()
        return len(text).to_bytes(8, "little") + text + content[end:]
    lines = content.split(b"\n") if content[:1] == b"{" and b"}\n{" in content else [content]
    place = stream.randrange(len(lines))
    values = json.loads(lines[place])
    if not isinstance(values, dict | list):
        raise ValueError("nothing to replace")
    _replace(values, stream, pool)
    lines[place] = json.dumps(values).encode()
    return b"\n".join(lines)


def _exchange_two(header: dict[str, Any], stream: random.Random) -> None:
    """Two tensors under each other's names, or what is said of them."""
    one, other = (stream.choice(list(header)) for _ in range(2))
    header[one], header[other] = header[other], header[one]


def _replace(values: Any, stream: random.Random, pool: tuple[Any, ...]) -> None:
    for _ in range(stream.choice((1, 1, 1, 2, 3))):
        # A copy: what is put in may be changed in its turn.
        replace_one(values, stream, copy.deepcopy(stream.choice(pool)))


def replace_one(values: Any, stream: random.Random, value: Any) -> None:
    """Puts `value` in the place of one of the values, however deep it lies, or removes that."""
    places: list[tuple[Any, Any]] = []
    left = [values]
    while left:
        inner = left.pop()
        keys = list(inner) if isinstance(inner, dict) else range(len(inner))
        places += [(inner, key) for key in keys]
        left += [inner[key] for key in keys if isinstance(inner[key], dict | list)]
    if not places:
        return
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
