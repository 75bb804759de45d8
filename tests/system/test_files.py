"""Files that appear whole or not at all, and a file that one process writes alone."""

import os

import pytest

from shotfit.errors import DataError
from shotfit.system.files import write_atomically
from shotfit.system.locks import WriterLock


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


def test_a_lock_keeps_others_out_until_it_is_released_and_leaves_nothing(tmp_path):
    path = tmp_path / "rows.jsonl"
    lock = WriterLock(path)
    with pytest.raises(DataError, match="being written by another process"):
        WriterLock(path)
    lock.release()
    lock.release()
    assert list(tmp_path.iterdir()) == []
    WriterLock(path).release()
