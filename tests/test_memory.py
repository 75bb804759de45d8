"""The memory of the process: kept while it works, handed back afterwards."""

import platform
from pathlib import Path

import pytest
import torch
from conftest import make_backbone

from shotfit import memory
from shotfit.experiment import Experiment, fit_task
from shotfit.memory import MB, kept_memory
from shotfit.recipe import two_stage

needs_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's settings")


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def use_and_free(size, count):
    """Buffers filled and freed, behind one that stays: only from the middle of the heap."""
    buffers = [torch.ones(size // 4) for _ in range(count)]
    stays = torch.ones(MB // 4)
    del buffers
    return stays


@needs_glibc
@pytest.mark.parametrize("size", [MB, 40 * MB])
def test_freed_memory_is_kept_inside_and_handed_back_by_the_outermost(size):
    with kept_memory():
        pass  # Hands back what the tests before have left.
    before = resident_bytes()
    with kept_memory():
        with kept_memory():
            stays = use_and_free(size, 200 * MB // size)
        assert resident_bytes() - before > 150 * MB
    assert resident_bytes() - before < 50 * MB
    # And from then on as ever: what is larger than any hole that the heap has is mapped.
    later = use_and_free(300 * MB, 1)
    assert resident_bytes() - before < 50 * MB
    del stays, later


def test_a_fit_keeps_memory_and_no_longer_than_itself(task):
    depths = []
    experiment = Experiment(recipe=two_stage(iters_per_shot=1))
    with kept_memory():
        fit_task(
            experiment,
            task,
            backbone=make_backbone(),
            observe=lambda *_: depths.append(memory._depth),
        )
        assert memory._depth == 1
    assert set(depths) == {2}
    with pytest.raises(ZeroDivisionError), kept_memory():
        _ = 1 / 0
    assert memory._depth == 0
