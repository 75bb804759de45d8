"""Ray, started on this machine or reached on a cluster, and how much it can hold."""

import contextlib
import importlib
import logging
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from shotfit.errors import DataError, UsageError

# A run's record is some ten kilobytes; Ray would otherwise take a third of the memory for objects.
OBJECT_STORE_BYTES = 100 * 2**20


CONNECT_SECONDS = 3.0


# To start Ray on this machine.
ATTEMPTS = 3


@dataclass(frozen=True)
class RayOptions:
    """Where runs are made and what each of them takes."""

    address: str | None = None
    """host:port of a cluster's head, ray://host:port, or "auto"; None starts Ray on this machine
    for as long as the grid runs."""
    cpus: float = 1
    gpus: float = 0
    retries: int = 3
    """How often a run is repeated when the worker or machine it ran on is lost."""

    def device(self, wish: str | None) -> str | None:
        """The device of a worker. By default the CPU where a worker has no GPU of its own: Ray
        does not hide a machine's GPUs from it, and all workers would take the first one."""
        return wish or (None if self.gpus else "cpu")


@contextlib.contextmanager
def connected(options: RayOptions) -> Iterator[Any]:
    """Ray, reached or started, for as long as the block lasts.

    Raises:
        UsageError: when Ray is not installed, or no machine has what `options` ask for.
        DataError: when the cluster cannot be reached.
    """
    # Before the import, which reads them: no usage report, and no notice about how a later Ray
    # will treat accelerators of tasks that ask for none.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise UsageError("--ray needs Ray: pip install 'shotfit[bench]'.") from None
    _start(ray, options.address)
    # A lost node's last log lines would be printed on standard output, among our own; Ray has no
    # option for that, and where this switch is gone nothing else changes.
    worker: Any = importlib.import_module("ray._private.worker")
    worker._worker_logs_enabled = False
    try:
        _check_capacity(ray, options)
        yield ray
    finally:
        # In this order: shutting down prints what was held back.
        ray.shutdown()
        worker._worker_logs_enabled = True


def _start(ray: Any, address: str | None) -> None:
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is not None:
        _check_reachable(address)
        where = f"join the Ray cluster at {address!r}"
        start = partial(ray.init, address=address, **quiet)
    else:
        where = "start Ray on this machine"
        start = partial(
            ray.init,
            # Without it, Ray would join whatever cluster runs here, and refuse a number of CPUs.
            address="local",
            num_cpus=os.cpu_count() or 1,
            include_dashboard=False,
            object_store_memory=OBJECT_STORE_BYTES,
            **quiet,
        )
    # Ray gives its processes 30 s, which they may miss while a machine is busy, and then raises a
    # bare `Exception`.
    for attempt in range(ATTEMPTS):
        try:
            start()
            return
        except Exception as error:
            ray.shutdown()
            if address is not None or attempt == ATTEMPTS - 1:
                raise DataError(
                    f"Cannot {where}: {error}{_hint(address)} No record was lost."
                ) from error


def _hint(address: str | None) -> str:
    """What is known to be in the way: to an address that it is given, Ray brings no token by
    itself, and says of being refused only that it failed."""
    if address in (None, "auto") or "RAY_AUTH_MODE" in os.environ:
        return ""
    return " A cluster with tokens, as Ray starts them from 2.60 on, wants RAY_AUTH_MODE=token."


def _check_reachable(address: str) -> None:
    """Ray itself tries for a minute and then ends the process; a closed port shows at once."""
    if address == "auto":
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise UsageError(f"--ray takes host:port, ray://host:port or auto, got {address!r}.")
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        raise DataError(
            f"No Ray cluster can be reached at {address!r} ({error}). `ray start --head` starts "
            "one; --ray without an address uses this machine."
        ) from error


def _check_capacity(ray: Any, options: RayOptions) -> None:
    """Ray would wait forever for a machine that nobody will add."""
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if not any(_fits(machine, options) for machine in machines):
        raise UsageError(
            f"No machine of the Ray cluster has the {options.cpus:g} CPUs and {options.gpus:g} "
            "GPUs that a run asks for."
        )


def _fits(machine: dict[str, float], options: RayOptions) -> int:
    """How many runs a machine can make at a time."""
    limits = [machine.get(kind, 0) // wanted for kind, wanted in _wanted(options).items()]
    return int(min(limits))


def _wanted(options: RayOptions) -> dict[str, float]:
    wanted = {"CPU": options.cpus, "GPU": options.gpus}
    return {kind: amount for kind, amount in wanted.items() if amount} or {"CPU": 1}


def slots(ray: Any, options: RayOptions) -> int:
    """How many of what `options` describe the cluster can hold now."""
    return sum(_fits(node["Resources"], options) for node in ray.nodes() if node["Alive"])
