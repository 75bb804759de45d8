"""Folders that appear whole or not at all: exchanged, filled, killed, and recovered."""

import errno
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from shotfit.system import folders
from shotfit.system.folders import check_writable, folder_written_whole, is_empty, recover


def test_a_folder_takes_the_place_of_the_one_before(tmp_path):
    target = tmp_path / "model"
    for text in ("first", "second"):
        with folder_written_whole(target) as folder:
            (folder / f"{text}.txt").write_text(text)
            assert target.exists() == (text == "second"), "until the block ends nothing changes"
    assert [file.name for file in target.iterdir()] == ["second.txt"]
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("before", ["nothing", "an empty folder", "a folder"])
def test_a_block_that_fails_changes_nothing(tmp_path, before):
    target = tmp_path / "model"
    if before != "nothing":
        target.mkdir()
    if before == "a folder":
        (target / "old.txt").write_text("old")
    with pytest.raises(ValueError, match="halfway"), folder_written_whole(target) as folder:
        (folder / "new.txt").write_text("new")
        raise ValueError("halfway")
    left = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*"))
    assert (
        left
        == {"nothing": [], "an empty folder": ["model"], "a folder": ["model", "model/old.txt"]}[
            before
        ]
    )


def test_an_exchange_that_fails_between_its_renames_puts_the_old_folder_back(tmp_path, monkeypatch):
    target = tmp_path / "model"
    with folder_written_whole(target) as folder:
        (folder / "old.txt").write_text("old")
    monkeypatch.setattr("shotfit.system.folders._exchanged", lambda *_: False)
    rename = Path.rename

    def only_away(self, to):
        if self.name == "made":
            raise OSError("the disk is full")
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", only_away)
    with pytest.raises(OSError, match="full"), folder_written_whole(target) as folder:
        (folder / "new.txt").write_text("new")
    assert [file.name for file in target.iterdir()] == ["old.txt"]
    assert list(tmp_path.iterdir()) == [target]


def test_a_folder_that_cannot_be_put_back_is_left_beside_its_place(tmp_path, monkeypatch):
    target = tmp_path / "model"
    with folder_written_whole(target) as folder:
        (folder / "old.txt").write_text("old")
    monkeypatch.setattr("shotfit.system.folders._exchanged", lambda *_: False)
    rename = Path.rename

    def never_there(self, to):
        if to == target:
            raise OSError("the disk is gone")
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", never_there)
    with pytest.raises(OSError, match="gone"), folder_written_whole(target) as folder:
        (folder / "new.txt").write_text("new")
    (left,) = tmp_path.rglob("old.txt")
    assert left.read_text() == "old"


def mounted(monkeypatch, target):
    monkeypatch.setattr("os.path.ismount", lambda path: str(path) == str(target))


def test_an_empty_mount_is_filled_not_exchanged(tmp_path, monkeypatch):
    target = tmp_path / "mount"
    target.mkdir()
    mounted(monkeypatch, target)
    before = target.stat().st_ino
    with folder_written_whole(target) as folder:
        (folder / "a.txt").write_text("a")
        (folder / "b").mkdir()
    assert target.stat().st_ino == before
    assert sorted(path.name for path in target.iterdir()) == ["a.txt", "b"]
    with pytest.raises(OSError, match="cannot be exchanged"), folder_written_whole(target):
        pass
    assert sorted(path.name for path in target.iterdir()) == ["a.txt", "b"]


def test_an_empty_folder_among_those_of_others_is_filled(tmp_path, monkeypatch):
    target = tmp_path / "mine"
    target.mkdir()
    monkeypatch.setattr("os.access", lambda path, mode: path != tmp_path)
    check_writable(target)
    with folder_written_whole(target) as folder:
        (folder / "a.txt").write_text("a")
        assert folder.is_relative_to(target)
    assert [path.name for path in target.iterdir()] == ["a.txt"]


def test_the_folder_behind_a_link_is_exchanged_and_the_link_stays(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "old.txt").write_text("old")
    (tmp_path / "link").symlink_to("real")
    with folder_written_whole(tmp_path / "link") as folder:
        (folder / "new.txt").write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert [file.name for file in (tmp_path / "real").iterdir()] == ["new.txt"]


needs_exchange = pytest.mark.skipif(sys.platform != "linux", reason="asks the system itself")


@needs_exchange
def test_folders_are_exchanged_in_one_step_and_what_hinders_is_told(tmp_path):
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.txt").touch()
    assert folders._exchanged(tmp_path / "one", tmp_path / "other")
    assert (tmp_path / "one" / "other.txt").exists() and (tmp_path / "other" / "one.txt").exists()
    with pytest.raises(FileNotFoundError):
        folders._exchanged(tmp_path / "one", tmp_path / "nosuch")


KILLED = """
import os, sys
from pathlib import Path
from shotfit.system import folders

def stop(*_):
    os.kill(os.getpid(), 9)

target, moment = Path(sys.argv[1]), sys.argv[2]
if moment == "between renames":
    folders._exchanged = lambda *_: False
    rename = Path.rename
    Path.rename = lambda self, to: stop() if self.name == "made" else rename(self, to)
if moment == "filling a mount":
    os.path.ismount = lambda path: str(path) == str(target)
    rename = Path.rename
    Path.rename = lambda self, to: stop() if self.name == "b.txt" else rename(self, to)
with folders.folder_written_whole(target) as made:
    (made / "a.txt").write_text("new")
    if moment == "writing":
        stop()
    (made / "b.txt").write_text("new")
"""


def killed(target, moment):
    source = Path(folders.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(target), moment],
        env={**os.environ, "PYTHONPATH": str(source)},
    )
    assert done.returncode == -signal.SIGKILL


@pytest.mark.parametrize("before", [[], ["old.txt"]])
def test_a_kill_while_a_folder_is_written_leaves_what_was_there_and_goes_at_the_next_start(
    tmp_path, before
):
    target = tmp_path / "model"
    if before:
        target.mkdir()
        (target / "old.txt").write_text("old")
    killed(target, "writing")
    assert [p.name for p in target.glob("*")] == before
    assert len(list(tmp_path.glob(".shotfit-*"))) == 1
    with folder_written_whole(target) as folder:
        (folder / "new.txt").write_text("new")
    assert [p.name for p in target.iterdir()] == ["new.txt"]
    assert list(tmp_path.iterdir()) == [target]


def test_a_folder_that_a_kill_left_hidden_comes_back(tmp_path):
    target = tmp_path / "model"
    target.mkdir()
    (target / "old.txt").write_text("old")
    killed(target, "between renames")
    assert not target.exists()
    recover(target)
    assert [(p.name, p.read_text()) for p in target.iterdir()] == [("old.txt", "old")]
    recover(target)
    with folder_written_whole(target) as folder:
        (folder / "new.txt").write_text("new")
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize(("moment", "found"), [("writing", []), ("filling a mount", ["a", "b"])])
def test_a_mount_that_a_kill_left_half_filled_is_finished_or_still_empty(
    tmp_path, monkeypatch, moment, found
):
    target = tmp_path / "mount"
    target.mkdir()
    killed(target, "filling a mount" if found else "writing")
    mounted(monkeypatch, target)
    recover(target)
    assert [p.stem for p in sorted(target.glob("*.txt"))] == found
    assert is_empty(target) is not bool(found)


def test_what_a_kill_left_beside_a_folder_goes_when_that_is_next_used(tmp_path):
    """Not only when it is written again: a command that finds its work done writes nothing."""
    target = tmp_path / "model"
    killed(target, "writing")
    recover(tmp_path / "other")
    assert list(tmp_path.iterdir()) == []
    check_writable(tmp_path / "new" / "model")
    assert list(tmp_path.iterdir()) == []


def test_the_only_copy_of_a_folder_is_not_removed_when_another_is_saved_beside_it(tmp_path):
    target = tmp_path / "model"
    target.mkdir()
    (target / "old.txt").write_text("old")
    killed(target, "between renames")
    with folder_written_whole(tmp_path / "other") as folder:
        (folder / "new.txt").write_text("new")
    recover(target)
    assert (target / "old.txt").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "other"]


def test_folders_of_others_are_left_alone(tmp_path):
    for name, inside in ((".shotfit-notes", "mine.txt"), (".shotfit-previous-x", "model.txt")):
        (tmp_path / name).mkdir()
        (tmp_path / name / inside).write_text("mine")
    (tmp_path / ".shotfit-file").write_text("mine")
    before = sorted(path.name for path in tmp_path.rglob("*"))
    recover(tmp_path / "model")
    with folder_written_whole(tmp_path / "model"):
        pass
    (tmp_path / "model").rmdir()
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


def test_a_folder_that_is_removed_before_it_is_locked_is_made_again(tmp_path, monkeypatch):
    """Another process may take it for left by a kill until it is locked."""
    make, taken = tempfile.mkdtemp, []

    def made_and_removed(**options):
        name = make(**options)
        if not taken:
            taken.append(name)
            folders._tidy(tmp_path)
            assert not os.path.exists(name)
        return name

    monkeypatch.setattr(tempfile, "mkdtemp", made_and_removed)
    with folder_written_whole(tmp_path / "model") as folder:
        (folder / "new.txt").write_text("new")
    assert taken and [path.name for path in (tmp_path / "model").iterdir()] == ["new.txt"]


def test_without_locks_it_is_saved_all_the_same_and_nothing_is_taken_for_left(
    tmp_path, monkeypatch
):
    killed(tmp_path / "model", "writing")

    def none(self):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(folders.FileLock, "acquire", lambda self, *_, **__: none(self))
    with folder_written_whole(tmp_path / "model") as folder:
        (folder / "new.txt").write_text("new")
    assert [path.name for path in (tmp_path / "model").iterdir()] == ["new.txt"]
    assert len(list(tmp_path.glob(".shotfit-*"))) == 1


def test_what_another_process_is_writing_is_not_taken_for_abandoned(tmp_path):
    target = tmp_path / "model"
    with folder_written_whole(target) as folder:
        (folder / "mine.txt").write_text("mine")
        with folder_written_whole(tmp_path / "other") as other:
            (other / "its.txt").write_text("its")
        assert (folder / "mine.txt").exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model", "other"]


def test_a_place_that_cannot_be_written_is_told_before_and_nothing_is_left(tmp_path, monkeypatch):
    check_writable(tmp_path / "new" / "model")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(OSError):
        check_writable(tmp_path / "file" / "model")

    def full(self, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space"):
        check_writable(tmp_path / "model")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such limits")
def test_tensors_for_which_there_is_no_room_are_an_error_of_the_system(tmp_path):
    """safetensors has its own, which nobody who saves looks for."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        with pytest.raises(OSError) as raised, folder_written_whole(tmp_path / "model") as folder:
            save_file({"a": torch.zeros(1 << 19)}, folder / "model.safetensors")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert raised.value.errno == errno.EFBIG
    assert list(tmp_path.iterdir()) == []
