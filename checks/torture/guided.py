"""Every reader under atheris, which looks for inputs that reach lines not reached before.

    python -m torture.guided    # what `make torture` starts once in each of its processes

It reads a line of JSON for each reader and forks a process for it: importing everything takes
longer than feeding some readers. Inputs start from the reader's good files and change as libFuzzer
changes them, or as `fuzz.mutated` does. The line that is answered has the counts as JSON.
"""

import atexit
import functools
import importlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

LONGEST = 1 << 16
"""Bytes of an input."""


def guided(name: str, count: int, number: int) -> dict[str, Any]:
    """Runs atheris on a reader in a process of its own; its counts."""
    process = _warm()
    assert process.stdin is not None and process.stdout is not None
    with tempfile.TemporaryDirectory() as corpus:
        process.stdin.write(json.dumps([name, count, number, corpus]) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        log = Path(corpus, "log")
        if not answer.startswith("{"):
            said = log.read_text(errors="replace")[-2000:] if log.exists() else answer
            raise RuntimeError(f"atheris ended on {name}: {said}")
    return json.loads(answer)


@functools.cache
def _warm() -> subprocess.Popen[str]:
    """The process that has imported everything, one for each that asks."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "torture.guided"]
    process = subprocess.Popen(
        command,
        env=environ,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # every module that is instrumented
    )
    atexit.register(_end, process)
    return process


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def main() -> None:
    """Answers each line of the standard input."""
    atheris: Any = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["shotfit"], enable_loader_override=False):
        from torture.fuzz import values
        from torture.inputs import readers

        found = readers()
    for line in sys.stdin:
        name, count, number, corpus = json.loads(line)
        values(number)  # drawn once for all
        result = Path(corpus, "result")
        pid = os.fork()
        if pid == 0:
            log = os.open(Path(corpus, "log"), os.O_WRONLY | os.O_CREAT)
            os.dup2(log, 1)
            os.dup2(log, 2)
            feed(atheris, found[name], random.Random(f"{number} {name}"), (count, number), result)
        os.waitpid(pid, 0)
        print(result.read_text() if result.exists() else "", flush=True)


def feed(
    atheris: Any, reader: Any, stream: random.Random, counts: tuple[int, int], result: Path
) -> None:
    """Feeds one reader, writes what came of it, and ends this process."""
    from torture.fuzz import Feeding, mutated, values

    (count, number), corpus = counts, result.with_name("corpus")
    feeding, pool = Feeding(reader), values(number)
    feeding.feed_seeds()
    corpus.mkdir()
    for place, content in enumerate(reader.seeds):
        (corpus / str(place)).write_bytes(content)

    def change(content: bytes, longest: int, _: int) -> bytes:
        if stream.random() < 0.5:
            return mutated(reader, stream, pool)[:longest]
        return reader.signed(atheris.Mutate(content, longest))[:longest]

    def once(content: bytes) -> None:
        feeding.feed(content)
        if sum(feeding.outcomes.values()) >= count:
            feeding.close()
            inputs = {"inputs": sum(feeding.outcomes.values()), **feeding.outcomes}
            kept = len(list(corpus.iterdir()))
            # Who started this process does not wait for it, and would not know.
            seconds = {"processor_seconds": round(time.process_time(), 1)}
            found = {**inputs, **seconds, "kept": kept, "failures": feeding.failures}
            result.write_text(json.dumps(found))
            os._exit(0)  # libFuzzer takes any other end for a crash

    options = [f"-seed={number}", f"-max_len={LONGEST}", "-verbosity=0", "-rss_limit_mb=0"]
    options += [f"-artifact_prefix={corpus}/", "-timeout=60"]
    atheris.Setup([sys.argv[0], *options, str(corpus)], once, custom_mutator=change)
    atheris.Fuzz()
    os._exit(1)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
