"""A job in a process of its own, which does units of work when it is told to and times them."""

import argparse
import importlib
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

BENCHMARKS = Path(__file__).parent.parent


class Job(Protocol):
    """What can be told to work: a process, or the same in this one."""

    def measure(self, units: int) -> dict[str, Any]:
        """Does so many units; their `seconds`, the last one's `value`, `peak_bytes`, and
        `loaded_bytes` before the first."""
        ...


class Here:
    """A job in this process: what a worker runs, and what a smoke test uses."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request
        self._cuda = request["device"].startswith("cuda")

    def __enter__(self) -> "Here":
        import torch

        torch.set_num_threads(self.request["threads"])
        module = importlib.import_module(f"speed.{self.request['side']}")
        self._units = module.JOBS[self.request["job"]](self.request)
        next(self._units)
        self._loaded = _memory(self._cuda, peak=False)
        return self

    def __exit__(self, *_: object) -> None:
        self._units.close()

    def measure(self, units: int) -> dict[str, Any]:
        """See `Job`."""
        seconds, value = [], None
        for _ in range(units):
            started = time.perf_counter()
            value = next(self._units)
            if self._cuda:
                import torch

                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - started)
        peak = _memory(self._cuda, peak=True)
        memory = {"peak_bytes": peak, "loaded_bytes": self._loaded}
        return {"seconds": seconds, "value": value, **memory}


class Process:
    """A job in a process of its own, ended with the `with` block."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request

    def __enter__(self) -> "Process":
        paths = [str(BENCHMARKS), str(BENCHMARKS.parent / "src"), os.environ.get("PYTHONPATH", "")]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "OMP_NUM_THREADS": str(self.request["threads"]),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "speed.process", json.dumps(self.request)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self._answer()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def measure(self, units: int) -> dict[str, Any]:
        """See `Job`.

        Raises:
            RuntimeError: when the process has ended, for lack of memory for example.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(f"{units}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._end()
            cause = "killed, perhaps for lack of memory" if code == -9 else f"exit code {code}"
            raise RuntimeError(f"The measured process has ended: {cause}.")
        return json.loads(line)

    def _end(self) -> int:
        """Waits for the end, or the next process would start beside this one; the exit code."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        try:
            return self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


def _memory(cuda: bool, *, peak: bool) -> int:
    """Bytes held now, or the most ever held; on an accelerator, those allocated there."""
    if cuda:
        import torch

        return torch.cuda.max_memory_allocated() if peak else torch.cuda.memory_allocated()
    table = Path("/proc/self/status")
    if not table.is_file():
        # The system keeps no more than the most that was ever held.
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
    # Not `ru_maxrss`: a process starts with that of the one that started it.
    wanted = "VmHWM:" if peak else "VmRSS:"
    for line in table.read_text(encoding="utf-8").splitlines():
        if line.startswith(wanted):
            return int(line.split()[1]) * 1024
    raise OSError(f"{table} has no {wanted}")


def main() -> None:
    """Does units as numbers come in, a line of JSON for each; ends with its input."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("request", type=json.loads)
    # Whatever else prints must not come between the answers.
    answers, sys.stdout = sys.stdout, sys.stderr
    with Here(parser.parse_args().request) as job:
        print("{}", file=answers, flush=True)
        for line in sys.stdin:
            print(json.dumps(job.measure(int(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
