"""The memory of the process: kept while it works, handed back afterwards."""

import platform
import resource
import subprocess
import sys

import pytest
import torch
from conftest import make_backbone

from shotfit.experiment import Experiment, fit_task, run
from shotfit.recipe import two_stage
from shotfit.system import memory
from shotfit.system.memory import (
    MB,
    free_memory_bytes,
    peak_memory_bytes,
    reset_peak_memory,
    reused_memory,
)

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
needs_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's settings")


# Each in a process of its own: the heap of this one has holes of all sizes that tests have left,
# and they would be filled first.
KEPT = """
from pathlib import Path
import torch
from shotfit.system.memory import MB, reused_memory

def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

def use_and_free(size, count):
    # Buffers filled and freed, behind one that stays: only from the middle of the heap.
    buffers = [torch.ones(size // 4) for _ in range(count)]
    stays = torch.ones(MB // 4)
    del buffers
    return stays

before = resident_bytes()
with reused_memory():
    with reused_memory():
        stays = use_and_free({size}, 200 * MB // {size})
    inside = resident_bytes() - before
outside = resident_bytes() - before
# And from then on as ever: what is larger than any hole that the heap has is mapped.
later = use_and_free(300 * MB, 1)
print(inside, outside, resident_bytes() - before)
"""
TAKEN = """
import resource, torch
from shotfit.system.memory import MB, reused_memory, take_in_advance

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

with reused_memory():
    before = faults()
    {line}
    taken = faults()
    buffers = [torch.ones(MB // 4) for _ in range(100)]
    print(taken - before, faults() - taken)
"""


def printed_by(script, **values):
    command = [sys.executable, "-c", script.format(**values)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    return [int(word) for word in answer.stdout.split()]


@needs_glibc
@pytest.mark.parametrize("size", [MB, 40 * MB])
def test_freed_memory_is_kept_inside_and_handed_back_by_the_outermost(size):
    inside, outside, later = printed_by(KEPT, size=size)
    assert inside > 150 * MB
    assert outside < 50 * MB
    assert later < 50 * MB


@needs_glibc
@pytest.mark.parametrize(("line", "first"), [("take_in_advance(200 * MB)", True), ("", False)])
def test_memory_taken_in_advance_costs_no_page_faults_later(line, first):
    taking, later = printed_by(TAKEN, line=line)
    pages = 100 * MB // resource.getpagesize()
    assert (taking > pages, later > pages / 2) == (first, not first)


def test_a_fit_keeps_memory_and_no_longer_than_itself(task):
    depths = []
    experiment = Experiment(recipe=two_stage(iters_per_shot=1))
    with reused_memory():
        fit_task(
            experiment,
            task,
            backbone=make_backbone(),
            observe=lambda *_: depths.append(memory._depth),
        )
        assert memory._depth == 1
    assert set(depths) == {2}
    with pytest.raises(ZeroDivisionError), reused_memory():
        _ = 1 / 0
    assert memory._depth == 0


def test_the_peak_is_this_process_s_own_on_the_device_it_used(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 7)
    assert peak_memory_bytes(CUDA) == 7
    assert peak_memory_bytes(CPU) > 7
    reset_peak_memory(CPU)
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "status").write_text("Name:\tpython\nVmHWM:\t    1234 kB\n")
    monkeypatch.setattr(memory, "PROC", tmp_path)
    assert peak_memory_bytes(CPU) == 1234 * 1024
    monkeypatch.setattr(memory, "PROC", tmp_path / "none")
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert peak_memory_bytes(CPU) in (most, 1024 * most)


def test_a_run_records_the_peak_of_the_device_it_used(dataset, monkeypatch):
    devices = []
    monkeypatch.setattr(
        "shotfit.experiment.peak_memory_bytes", lambda device: devices.append(device.type) or 5
    )
    experiment = Experiment(recipe=two_stage(iters_per_shot=1))
    record, _ = run(experiment, dataset=dataset, backbone=make_backbone(), device="cpu")
    assert record.cost["peak_memory_bytes"] == 5
    assert devices == ["cpu"]


def test_memory_that_pytorch_holds_for_reuse_is_free(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10, 100))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 50)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 20)
    assert free_memory_bytes(CUDA) == 40


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A system of files that a test writes, by path under /proc or the control groups."""
    monkeypatch.setattr(memory, "PROC", tmp_path / "proc")
    monkeypatch.setattr(memory, "CGROUP", tmp_path / "cgroup")

    def write(**files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    write(**{"proc/meminfo": "MemTotal:  9000 kB\nMemAvailable:  1000 kB\nHugePages_Free: 0\n"})
    return write


def test_free_memory_of_a_machine_and_of_a_container(system, tmp_path):
    assert free_memory_bytes(CPU) == 1000 * 1024
    system(**{"proc/self/cgroup": "0::/\n"})
    assert free_memory_bytes(CPU) == 1000 * 1024
    system(**{"cgroup/memory.max": "max\n", "cgroup/memory.current": "900\n"})
    assert free_memory_bytes(CPU) == 1000 * 1024
    system(**{"cgroup/memory.max": "1500\n"})
    assert free_memory_bytes(CPU) == 600
    # Files that were read count as used, and give way.
    system(**{"cgroup/memory.stat": "anon 800\ninactive_file 100\n"})
    assert free_memory_bytes(CPU) == 700
    # A limit further down, and its group seen from outside.
    system(**{"proc/self/cgroup": "0::/pods/one\n"})
    assert free_memory_bytes(CPU) == 700
    system(**{"cgroup/pods/memory.max": "1000", "cgroup/pods/memory.current": "980"})
    assert free_memory_bytes(CPU) == 20
    system(**{"cgroup/pods/memory.current": "1010"})
    assert free_memory_bytes(CPU) == 0
    (tmp_path / "proc" / "meminfo").unlink()
    system(**{"proc/self/cgroup": "0::/\n", "cgroup/memory.max": "max\n"})
    assert free_memory_bytes(CPU) == 4 << 30


def test_free_memory_of_a_container_of_the_first_version(system):
    system(
        **{
            "proc/self/cgroup": "9:name=systemd:/\n4:cpu,memory:/one\n0::/\n",
            "cgroup/memory/one/memory.limit_in_bytes": "1000\n",
            "cgroup/memory/one/memory.usage_in_bytes": "900\n",
            "cgroup/memory/one/memory.stat": "inactive_file 1\ntotal_inactive_file 50\n",
        }
    )
    assert free_memory_bytes(CPU) == 150
