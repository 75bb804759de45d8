"""A small part of `make torture`: the tool itself, and every reader with a few inputs."""

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec

import pytest
import torch
from safetensors.torch import load_file
from torture import __main__ as torture_main
from torture import fuzz, guided, inputs, interruptions
from torture.commands import commands, finish, prepare, start
from torture.page import page
from torture.weights import write_open_clip

from shotfit.backbone.convert.clip import convert
from shotfit.errors import DataError

READERS = inputs.readers()


@pytest.fixture(autouse=True)
def few_values(monkeypatch):
    """Drawing them takes longer than all else here."""
    monkeypatch.setattr(fuzz, "POOL", 20)


@pytest.mark.parametrize("name", READERS, ids=lambda name: name.replace(" ", "-"))
def test_a_reader_reads_or_refuses(name):
    count = 25 if READERS[name].share == 1 else 5
    found = fuzz.fuzz(name, READERS[name], count, 1)
    assert found["failures"] == {} and found["inputs"] >= count


HOSTILE = {
    "nothing": b"",
    "deep lists": b"[" * 200_000,
    "deep objects": b'{"a":' * 200_000,
    "a number of 5,000 digits": b"9" * 5000,
    "numbers that are none": b"[NaN, 1e999, -Infinity, 9999999999999999999999]",
    "one long line": b"a" * 1_000_000,
    "a header that is longer than any file": (1 << 62).to_bytes(8, "little") + b"{}",
    "no text": bytes(range(256)) * 16,
}
"""What no file of ours holds, whatever it is of."""


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_what_is_deep_long_or_huge_is_read_or_refused(content):
    """By each reader, within seconds and in the words of a user's error."""
    found = {}
    for name, reader in READERS.items():
        feeding = fuzz.Feeding(reader)
        try:
            found[name] = feeding.feed(reader.signed(content))
        finally:
            feeding.close()
    assert {name: why for name, why in found.items() if why} == {}


def test_a_seed_draws_the_same_inputs_and_another_others():
    reader = inputs.Reader(lambda _: None, "file", [b'{"a": 1, "b": [2, 3]}'])

    def drawn(number):
        return list(fuzz.inputs("file", reader, 20, number))

    assert drawn(1) == drawn(1) != drawn(2)


@pytest.mark.parametrize(
    ("error", "outcome"), [(KeyError("a"), "failed"), (DataError("b"), "refused")]
)
def test_what_is_no_error_of_a_user_is_a_failure(tmp_path, error, outcome):
    def read(path):
        raise error

    found, detail = fuzz._fed(inputs.Reader(read, "file", []), tmp_path / "file", b"")
    assert found == outcome and bool(detail) == (outcome == "failed")


@pytest.mark.skipif(sys.platform != "linux", reason="only there the limit is known")
def test_a_reader_that_takes_all_memory_fails(monkeypatch):
    monkeypatch.setattr(fuzz, "MEMORY", 64 << 20)
    taken = []
    reader = inputs.Reader(lambda _: taken.append(len(bytearray(128 << 20))), "file", [b"{}"])
    monkeypatch.setattr(fuzz.Feeding, "feed_seeds", lambda _: None)
    found = fuzz.fuzz("file", reader, 2, 1)
    assert found["failed"] == 2 and not taken
    assert [kind.split()[0] for kind in found["failures"]] == ["MemoryError"]
    assert len(bytearray(128 << 20)) == 128 << 20, "afterwards there is as much as before"


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
    assert finish(start(command.again[0], folder)) == 0
    assert command.outcome(folder) == ["blue", "green", "orange", "purple", "red", "yellow"]


def test_the_page_says_what_was_lost():
    verdicts = {"same": 1, "same, with files left over": 2, "lost (exit code 0)": 3}
    unit = {"asked": {"kills": 6}, "processor_seconds": 61}
    kinds = dict.fromkeys(("kills", "full disk", "short files", "two at once"), verdicts)
    found = {**kinds, "crashes": {"operations": 9, **verdicts, "same, resumed": 4}}
    text = page({"interruptions": {"fit": {**unit, "found": found}}, "processors": 2}, {})
    assert "| `fit` | 9 | 3 of 6 | 7 of 10 | 3 of 6 | 3 of 6 | 3 of 6 |" in text
    assert "`fit`, kills: lost (exit code 0), 3 times" in text
    assert "4 of them went on from a checkpoint." in text
    assert "`python -m torture run --part interruptions --kills 6`: 1 minutes of one" in text
    more = {"asked": {"kills": 50}, "processor_seconds": 119, "found": found}
    units = {"fit": {**unit, "found": found}, "bench": more, "sweep": more}
    text = page({"interruptions": units, "processors": 2}, {})
    command = "`python -m torture run --part interruptions --kills"
    assert f"{command} 50`, 2 rows; {command} 6`, 1 rows: 5 minutes of one processor" in text
    counts = {"inputs": 1200, "read": 1000, "refused": 190, "failed": 9, "slow": 1}
    found = {**counts, "kept": 7, "failures": {"KeyError in a.py:b": "00"}}
    units = {"record": {**unit, "found": found}}
    text = page({"fuzz": units, "guided": units, "processors": 2}, {})
    assert "| record | 1,200 | 1,000 | 190 | 10 |\n" in text
    assert "| record | 1,200 | 1,000 | 190 | 10 | 7 |" in text
    assert "1,200 inputs in all. Failures: KeyError in a.py:b." in text
    versions = {"torch": "2.6.0", "transformers": "5.0.0", "pillow": "11.0.0", "numpy": "1.26.4"}
    runs = {"oldest, Python 3.11": {"versions": versions, "passed": 1234, "failed": 2, "error": 1}}
    assert ("| oldest, Python 3.11 | 2.6.0 | 5.0.0 | 11.0.0 | 1.26.4 | 1,234 | 3 | 0 |\n") in page(
        {}, runs
    )


def test_a_broken_off_run_goes_on_with_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(torture_main, "RECORD", tmp_path / "record.json")
    monkeypatch.setattr(torture_main, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(torture_main, "VERSIONS", tmp_path / "versions.json")
    done = []

    def measured(part, name, counts):
        done.append(name)
        unit = {"inputs": 1, "failures": {}}
        return {"asked": torture_main.asked(part, counts), "found": unit, "processor_seconds": 1}

    monkeypatch.setattr(torture_main, "measured", measured)
    monkeypatch.setattr(torture_main, "ProcessPoolExecutor", lambda *_: ThreadPoolExecutor(1))
    monkeypatch.setattr(torture_main, "_prepare", lambda *_, **__: None)

    def run(*words):
        done.clear()
        monkeypatch.setattr("sys.argv", ["torture", "run", "--part", "fuzz", *words])
        torture_main.main()
        return list(done)

    assert run("--only", "manifest") == ["manifest .csv", "manifest .jsonl"]
    assert run("--only", "manifest") == []
    assert run("--only", "manifest", "--inputs", "7") == ["manifest .csv", "manifest .jsonl"]
    assert run("--only", ".jsonl", "--inputs", "7", "--again") == ["manifest .jsonl"]
    assert set(json.loads((tmp_path / "record.json").read_text())) == {"fuzz", "processors"}
    assert "| manifest .csv | 1 |" in (tmp_path / "page.md").read_text()


@pytest.mark.slow
@pytest.mark.skipif(find_spec("atheris") is None, reason="needs atheris")
def test_atheris_reads_or_refuses():
    found = guided.guided("classnames.json", 200, 1)
    assert found["failures"] == {} and found["inputs"] == 200
    assert found["processor_seconds"] > 0


def test_the_model_in_the_naming_of_open_clip_is_the_same(tmp_path):
    backbone = inputs.FORMATS_SO_FAR / "backbone"
    write_open_clip(backbone, tmp_path / "open_clip")
    convert(tmp_path / "open_clip", tmp_path / "out", tokenizer=backbone)
    folders = (backbone, tmp_path / "out")
    before, after = (load_file(folder / "model.safetensors") for folder in folders)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
