"""Files and folders that appear whole or not at all, and a file that one process writes alone."""

from pathlib import Path

import pytest

from shotfit.errors import DataError
from shotfit.system.files import folder_written_whole, write_atomically
from shotfit.system.locks import WriterLock


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "deep" / "file.txt"
    write_atomically(path, "old\n")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("no")))
    with pytest.raises(OSError, match="no"):
        write_atomically(path, "new\n")
    assert path.read_bytes() == b"old\n"
    assert list(path.parent.iterdir()) == [path]


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


def test_an_empty_folder_is_filled_not_exchanged(tmp_path):
    target = tmp_path / "mount"
    target.mkdir()
    before = target.stat().st_ino
    with folder_written_whole(target) as folder:
        (folder / "a.txt").write_text("a")
        (folder / "b").mkdir()
    assert target.stat().st_ino == before
    assert sorted(path.name for path in target.iterdir()) == ["a.txt", "b"]


def test_a_lock_keeps_others_out_until_it_is_released_and_leaves_nothing(tmp_path):
    path = tmp_path / "rows.jsonl"
    lock = WriterLock(path)
    with pytest.raises(DataError, match="being written by another process"):
        WriterLock(path)
    lock.release()
    lock.release()
    assert list(tmp_path.iterdir()) == []
    WriterLock(path).release()
