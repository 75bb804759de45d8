"""Every reader under atheris, which looks for inputs that reach lines not reached before.

    python -m torture.guided READER RUNS SEED CORPUS    # what `make torture` starts for each

Inputs start from the reader's good files in the folder CORPUS and change as libFuzzer changes them,
or as `fuzz.mutated` does. The last line that is printed has the counts as JSON.
"""

import importlib
import json
import os
import random
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

LONGEST = 1 << 16
"""Bytes of an input."""


def guided(name: str, count: int, number: int) -> dict[str, Any]:
    """Runs atheris on a reader in a process of its own; its counts."""
    path = os.pathsep.join(filter(None, sys.path))
    with tempfile.TemporaryDirectory() as corpus:
        command = [sys.executable, "-m", "torture.guided", name, str(count), str(number), corpus]
        done = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
        )
    lines = done.stdout.strip().splitlines()
    if not lines or not lines[-1].startswith("{"):
        raise RuntimeError(f"atheris ended on {name}: {done.stderr[-2000:]}")
    return json.loads(lines[-1])


def main(name: str, count: int, number: int, corpus: Path) -> None:
    """Feeds one reader and prints what came of it."""
    atheris: Any = importlib.import_module("atheris")

    with atheris.instrument_imports(include=["shotfit"], enable_loader_override=False):
        from torture.fuzz import Feeding, mutated, values
        from torture.inputs import readers
    reader, pool, stream = readers()[name], values(number), random.Random(f"{number} {name}")
    feeding = Feeding(reader)
    feeding.feed_seeds()
    for place, content in enumerate(reader.seeds):
        (corpus / str(place)).write_bytes(content)

    def change(content: bytes, longest: int, _: int) -> bytes:
        if stream.random() < 0.5:
            return mutated(reader, stream, pool)[:longest]
        return reader.signed(atheris.Mutate(content, longest))[:longest]

    def feed(content: bytes) -> None:
        feeding.feed(content)
        if sum(feeding.outcomes.values()) >= count:
            feeding.close()
            inputs = {"inputs": sum(feeding.outcomes.values()), **feeding.outcomes}
            kept = len(list(corpus.iterdir()))
            print(json.dumps({**inputs, "kept": kept, "failures": feeding.failures}), flush=True)
            os._exit(0)  # libFuzzer takes any other end for a crash

    options = [f"-seed={number}", f"-max_len={LONGEST}", "-verbosity=0", "-rss_limit_mb=0"]
    options += [f"-artifact_prefix={corpus}/", "-timeout=60"]
    atheris.Setup([sys.argv[0], *options, str(corpus)], feed, custom_mutator=change)
    atheris.Fuzz()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
