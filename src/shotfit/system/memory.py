"""The memory of this process: how much is free, how much it has held, and what freeing returns."""

import contextlib
import resource
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from shotfit.system.heap import glibc

# Numbers of glibc's `mallopt`.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4
MB = 1 << 20
PROC, CGROUP = Path("/proc"), Path("/sys/fs/cgroup")

_depth = 0
_lock = threading.Lock()


@contextmanager
def reused_memory() -> Iterator[None]:
    """Inside, the C library keeps freed buffers instead of handing them back at every step.

    A training step frees and asks for the same buffers again; giving each back to the system costs
    page faults, a sixth of a step of the embedded model. Buffers of more than 32 MB, such as those
    of ViT-B/16's MLP, would always be given back, whatever the threshold: none is mapped on its
    own. The end of the outermost use hands back what is free. Only glibc has these settings.
    """
    global _depth
    libc = glibc()
    with _lock:
        _depth += 1
        if libc is not None and _depth == 1:
            libc.mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1)
            libc.mallopt(M_MMAP_MAX, 0)
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if libc is not None and _depth == 0:
                # glibc starts with thresholds of 128 KB and raises them to these as it meets large
                # buffers, until one of them is set: then it leaves them where they are.
                libc.mallopt(M_MMAP_MAX, 65536)
                libc.mallopt(M_MMAP_THRESHOLD, 32 * MB)
                libc.mallopt(M_TRIM_THRESHOLD, 64 * MB)
                libc.malloc_trim(0)


def take_in_advance(size: int) -> None:
    """Makes `size` bytes the process's own, so that buffers asked for later cost no page faults.

    Only inside `reused_memory`: elsewhere they go straight back.
    """
    torch.empty(size, dtype=torch.uint8).fill_(1)


def reset_peak_memory(device: torch.device) -> None:
    """Starts counting the peak of a device's memory anew, where the system can (Linux, CUDA)."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    with contextlib.suppress(OSError):
        # proc(5): 5 resets the peak of the resident set to its present size.
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory_bytes(device: torch.device) -> int:
    """The most memory this process has held since `reset_peak_memory`, or, where that cannot be
    reset, since its start (on CUDA: the most allocated there)."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    # Not `ru_maxrss` where there is another: a process starts with that of the one that started it.
    held = _table(PROC / "self/status").get("VmHWM")
    if held is not None:
        return held
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def free_memory_bytes(device: torch.device) -> int:
    """What could be taken now on a device; where the system does not say, a cautious 4 GB."""
    if device.type == "cuda":
        # PyTorch holds on to freed memory for its own use.
        reusable = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + reusable
    free = _table(PROC / "meminfo").get("MemAvailable", 4 << 30)
    return max(0, min([free, *_left_in_groups()]))


def _table(path: Path) -> dict[str, int]:
    """Sizes in bytes by name, of a table such as /proc/meminfo; empty where it is missing."""
    sizes = {}
    with contextlib.suppress(OSError):
        for line in path.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if value.endswith(" kB"):
                sizes[name] = int(value.split()[0]) * 1024
    return sizes


def _left_in_groups() -> Iterator[int]:
    """What the control groups that this process is in, such as a container's, leave it."""
    with contextlib.suppress(OSError):
        for line in (PROC / "self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, place = line.split(":", 2)
            if controllers == "":
                root, names = CGROUP, ("memory.max", "memory.current")
            elif "memory" in controllers.split(","):
                root = CGROUP / "memory"
                names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
            else:
                continue
            # Within a container, its own group is often the root that is seen.
            folder = root / place.strip("/")
            for group in (folder, *folder.parents):
                # The root itself has no limit where it is the machine's, and then no such file.
                with contextlib.suppress(OSError, ValueError):
                    limit, used = (int((group / name).read_text()) for name in names)
                    yield limit - used + _reclaimable(group)
                if group == root:
                    break


def _reclaimable(group: Path) -> int:
    """Bytes of files that a control group keeps in memory and gives up when it needs room."""
    with contextlib.suppress(OSError):
        lines = (group / "memory.stat").read_text(encoding="utf-8").splitlines()
        sizes = dict(line.split() for line in lines)
        # The first version counts the groups below only in its "total".
        return int(sizes.get("total_inactive_file", sizes.get("inactive_file", 0)))
    return 0
