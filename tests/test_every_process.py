"""Every method gives the same bits in every process, and nearly the same with another number of
threads."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from golden_curves import record
from test_golden import parse

from shotfit.methods import list_methods

THREADS_TOLERANCE = 2e-5
"""Of a loss after five updates, relative: threads add in another order."""
CODE = (
    "import json, sys, warnings; warnings.simplefilter('ignore')\n"
    "import torch; torch.set_num_threads(int(sys.argv[1]))\n"
    "from golden_curves import record\n"
    "print(json.dumps({name: record(name) for name in sys.argv[2:]}))"
)


def recorded(threads):
    tests = Path(__file__).parent
    paths = [str(tests), str(tests.parent / "src")]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {paths!r}\n{CODE}", str(threads)]
        + list_methods(),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def alone():
    return recorded(1)


@pytest.mark.long
@pytest.mark.slow
def test_another_process_gives_the_same_bits(alone):
    """Losses have nine digits, which tell every float32 from its neighbours."""
    assert torch.get_num_threads() == 1
    assert alone == {name: record(name) for name in list_methods()}


@pytest.mark.long
@pytest.mark.slow
def test_two_threads_give_nearly_the_same(alone):
    found = recorded(2)
    for name in list_methods():
        for one, two in zip(parse(alone[name]), parse(found[name]), strict=True):
            assert two == (
                one if isinstance(one, str) else pytest.approx(one, rel=THREADS_TOLERANCE, abs=1e-6)
            ), name
