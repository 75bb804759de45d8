"""Files that appear whole or not at all, and a file that one process writes alone."""

import os
import sys

import pytest

from shotfit.errors import DataError
from shotfit.system import files
from shotfit.system.files import remove_unfinished, write_atomically
from shotfit.system.locks import WriterLock

on_posix = pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks")


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "deep" / "file.txt"
    write_atomically(path, "old\n")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("no")))
    with pytest.raises(OSError, match="no"):
        write_atomically(path, "new\n")
    assert path.read_bytes() == b"old\n"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_a_file_has_the_rights_of_any_file(tmp_path, umask):
    before = os.umask(umask)
    try:
        write_atomically(tmp_path / "file.txt", "x")
    finally:
        os.umask(before)
    assert (tmp_path / "file.txt").stat().st_mode & 0o777 == 0o666 & ~umask


@on_posix
def test_what_a_kill_has_left_beside_a_file_is_gone_when_it_was_written_again(tmp_path):
    path = tmp_path / "file.txt"
    files._usual_place(path).write_text("half of what was to be written, and longer")
    write_atomically(path, "whole")
    assert path.read_text() == "whole"
    assert list(tmp_path.iterdir()) == [path]
    left = files._usual_place(tmp_path / "never written again")
    left.write_text("half")
    remove_unfinished(tmp_path / "never written again")
    assert list(tmp_path.iterdir()) == [path]


@on_posix
def test_two_that_write_one_file_do_not_write_into_each_other(tmp_path):
    path = tmp_path / "file.txt"
    with files._place_beside(path) as first, files._place_beside(path) as second:
        first.write_text("first")
        assert second != first
        remove_unfinished(path)
        write_atomically(path, "second")
        assert (first.read_text(), path.read_text()) == ("first", "second")
        os.replace(first, path)
    assert path.read_text() == "first" and list(tmp_path.iterdir()) == [path]


@on_posix
@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_nobody_makes_us_write_through_a_link(tmp_path, link):
    """The place is known beforehand."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    link(victim, files._usual_place(tmp_path / "file.txt"))
    write_atomically(tmp_path / "file.txt", "x")
    assert victim.read_text() == "precious" and (tmp_path / "file.txt").read_text() == "x"


def test_a_lock_keeps_others_out_until_it_is_released_and_leaves_nothing(tmp_path):
    path = tmp_path / "rows.jsonl"
    lock = WriterLock(path)
    with pytest.raises(DataError, match="being written by another process"):
        WriterLock(path)
    lock.release()
    lock.release()
    assert list(tmp_path.iterdir()) == []
    WriterLock(path).release()
