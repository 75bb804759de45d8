"""A small part of `make torture`: the tool itself, and every reader with a few inputs."""

import os
import sys
from functools import partial

import pytest
from torture import fuzz, inputs, interruptions
from torture.commands import commands, finish, prepare, start
from torture.page import page

from shotfit.errors import DataError

READERS = inputs.readers()


@pytest.mark.parametrize("name", READERS, ids=lambda name: name.replace(" ", "-"))
def test_a_reader_reads_or_refuses(name):
    found = fuzz.fuzz_one(READERS[name], 25, 1)
    assert found["failures"] == {} and found["inputs"] >= 25


def test_a_seed_draws_the_same_inputs_and_another_others():
    def drawn(number):
        seen = []
        reader = inputs.Reader(lambda _: None, "file", [b'{"a": 1, "b": [2, 3]}'])
        fuzz._drawn(reader, seen.append, 20, number)
        return seen

    assert drawn(1) == drawn(1) != drawn(2)


@pytest.mark.parametrize(
    ("error", "outcome"), [(KeyError("a"), "failed"), (DataError("b"), "refused")]
)
def test_what_is_no_error_of_a_user_is_a_failure(tmp_path, error, outcome):
    def read(path):
        raise error

    found, detail = fuzz._fed(inputs.Reader(read, "file", []), tmp_path / "file", b"")
    assert found == outcome and bool(detail) == (outcome == "failed")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.skipif(sys.platform != "linux", reason="threads of macOS do not survive a fork")
def test_a_command_crashes_at_the_operation_that_was_asked_for(tmp_path):
    """And what it comes to after it was run again is what it comes to in any case."""
    folder = tmp_path / "work"
    folder.mkdir()
    prepare(folder, inputs.FORMATS_SO_FAR)
    command = commands()["add-classes"]
    crash = partial(interruptions._fail, folder, 3, interruptions._crash)
    assert finish(start(command.words, folder, crash)) == interruptions.CRASHED
    assert command.outcome(folder) == ["blue", "green", "purple", "red", "yellow"]
    assert finish(start(command.again, folder)) == 0
    assert command.outcome(folder) == ["blue", "green", "orange", "purple", "red", "yellow"]


def test_the_page_says_what_was_lost():
    verdicts = {"same": 1, "same, with files left over": 2, "lost (exit code 0)": 3}
    part = {"commands": ["run"], "seconds": 61, "processors": 2}
    kinds = dict.fromkeys(("kills", "full disk", "two at once"), verdicts)
    found = {"fit": {**kinds, "crashes": {"operations": 9, **verdicts}}}
    text = page({"interruptions": {**part, "found": found}})
    assert "| `fit` | 9 | 3 of 6 | 3 of 6 | 3 of 6 | 3 of 6 |" in text
    assert "`fit`, kills: lost (exit code 0), 3 times" in text
    reader = {"inputs": 1200, "read": 1000, "refused": 190, "failed": 9, "slow": 1}
    text = page({"fuzz": {**part, "found": {"record": reader}}})
    assert "| record | 1,200 | 1,000 | 190 | 10 |" in text
