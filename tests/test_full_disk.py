"""Whatever is saved: where there is no room for it, the command ends with exit code 3 and a
sentence, what was there is there still, and the same command works when there is room again. Nor is
anything replaced that it was not asked to replace.

Two kinds of no room: the disk is full when data is to reach it, and the system lets no file become
longer than some bytes, which libraries in other languages meet too.
"""

import errno
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from synthetic_records import record
from torture.commands import prepare
from torture.inputs import FORMATS_SO_FAR

from shotfit.records import write_record

MODEL = ("--backbone", "backbone")
STUDY = ("--data", "photos", *MODEL, "--shots", "1", "--results", "out", "--out", "out", "-q")
FIT = ("fit", "photos", *MODEL, "--shots", "1", "--iters-per-shot", "2", "--published-scores", "-q")
SHORT = 64
"""Bytes."""


@dataclass(frozen=True)
class Save:
    """A command that saves something of a kind, the places that are `there` before, and what it
    may leave where it fails: from this it goes on, or what was trained is in it."""

    words: tuple[str, ...]
    there: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


SAVES = {
    "classifier": Save((*FIT, "--out", "out"), left=("out-*",)),
    "changed classifier": Save(("add-classes", "model", "orange", *MODEL)),
    "record": Save(
        ("bench", "--datasets", "photos", "--backbones", "backbone", "--methods", "zero_shot")
        + ("--shots", "1", "--results", "out", "-q")
    ),
    "curve": Save(("dynamics", "--method", "layernorm", "--iterations", "2", *STUDY)),
    "figure": Save(
        ("plot", "ranking", "--results", "records", "--out", "out.png", "--overwrite"),
        there=("out.png",),
    ),
    "table": Save(
        ("table", "runs", "--results", "records", "--out", "out.md", "--overwrite"),
        there=("out.md",),
    ),
    "comparison": Save(
        ("compare", "coop", "lora", "--results", "records", "--out", "out.html", "--overwrite")
        + ("--format", "html"),
        there=("out.html",),
    ),
    **{
        f"predictions {ending}": Save(
            ("predict", "model", "photos", *MODEL, "--out", f"out{ending}", "-q", "--overwrite"),
            there=(f"out{ending}",),
            left=(f"out{ending}.partial*",),
        )
        for ending in (".jsonl", ".csv", ".parquet")
    },
    "evaluation": Save(
        ("evaluate", "model", "photos", *MODEL, "--csv", "out.csv", "-q", "--overwrite"),
        there=("out.csv",),
    ),
    "logits": Save(
        ("evaluate", "model", "photos", *MODEL, "--keep-predictions", "out.jsonl", "-q")
        + ("--overwrite",),
        there=("out.jsonl",),
    ),
    "report": Save(
        ("report", "model", *MODEL, "--out", "out.html", "-q", "--overwrite"), there=("out.html",)
    ),
    "check": Save(
        ("check", "photos", "--no-model", "--out", "out.html", "-q", "--overwrite"),
        there=("out.html",),
    ),
    "merged": Save(("export", "merged", "model", "out", *MODEL)),
    "ONNX": Save(("export", "onnx", "model", "out", "--no-text", *MODEL)),
    "conversion": Save(("convert", "open_clip", "out", "--tokenizer", "backbone")),
    "few-shot lists": Save(("splits", "make", "photos", "out", "--shots", "1", "--seeds", "1")),
}


@pytest.fixture
def full(monkeypatch):
    """No data reaches the disk any more."""

    def nothing_more(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", nothing_more)
        yield patch.undo


@pytest.fixture
def short():
    """No file becomes longer than `SHORT` bytes."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SHORT, before[1]))

    def end():
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    yield end
    end()


@pytest.fixture
def work(tmp_path, monkeypatch):
    folder = tmp_path / "work"
    folder.mkdir()
    prepare(folder, FORMATS_SO_FAR)
    for method in ("coop", "lora"):
        for task in ("animals", "food"):
            write_record(folder / "records", record(method, task))
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return folder


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("kind", SAVES)
@pytest.mark.parametrize("fault", ["full", "short"])
def test_no_room(kind, fault, work, shotfit, request):
    save = SAVES[kind]
    for name in save.there:
        Path(name).write_text("of before")
    before = files(work)
    end = request.getfixturevalue(fault)
    code, _, said = shotfit(*save.words)
    end()
    assert code == 3, said
    words = "No space left on device" if fault == "full" else "File too large"
    sentence = said.splitlines()[-1]  # after what libraries say of their progress
    assert sentence.startswith("shotfit: ") and words in sentence, said
    assert "SHOTFIT_DEBUG" not in sentence
    for pattern in save.left:
        for path in work.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert files(work).keys() == before.keys() and files(work) == before
    if fault == "full":
        assert shotfit(*save.words)[0] == 0


@pytest.mark.parametrize("kind", [kind for kind in SAVES if SAVES[kind].there])
def test_a_file_is_replaced_on_request_alone(kind, work, shotfit):
    save = SAVES[kind]
    for name in save.there:
        Path(name).write_text("of before")
    before = files(work)
    code, _, said = shotfit(*(word for word in save.words if word != "--overwrite"))
    assert code == 3 and "--overwrite replaces it" in said
    assert files(work) == before


@pytest.mark.parametrize("kind", ["classifier", "merged", "ONNX", "conversion"])
def test_a_folder_of_somebody_elses_is_left_as_it_is(kind, work, shotfit):
    (work / "out").mkdir()
    (work / "out" / "thesis.txt").write_text("mine")
    before = files(work)
    for more in ((), ("--overwrite",)) if kind != "conversion" else ((),):
        assert shotfit(*SAVES[kind].words, *more)[0] in (2, 3)
        assert files(work) == before
