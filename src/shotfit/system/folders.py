"""Folders that appear whole or not at all, and what a kill leaves of them.

A folder is made in a hidden one beside its place, which is locked while somebody writes it: one
whose lock is free was left by a kill, and goes when a folder there is next used (`recover`).
"""

import ctypes
import errno
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from shotfit.system.locks import NO_LOCKS

SCRATCH, PREVIOUS = ".shotfit-", ".shotfit-previous-"
LOCK, MADE, PROBE, WHOLE = "lock", "made", "probe", "whole"
"""All that lies in a hidden folder of ours."""
PROBE_BYTES = 1 << 20
TRIES = 8
# As safetensors writes it from version 0.6 on, and before.
OS_ERROR = re.compile(r"\(os error (\d+)\)|\bOs \{ code: (\d+)")
# What is answered where two names cannot be exchanged in one step.
NO_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP)


@contextmanager
def folder_written_whole(target: Path) -> Iterator[Path]:
    """A new folder to write into, which is at `target` when the block has ended well.

    It takes the place of a folder that was there, in one step where the system has one. When the
    block fails, or the exchange does, that one is still there. A folder that cannot be renamed (see
    `is_fixed`) is filled, if it is empty.

    Raises:
        OSError: when nothing can be written there, or such a folder is not empty.
    """
    target = Path(os.path.realpath(target))
    recover(target)
    fixed = is_fixed(target)
    if fixed and not is_empty(target):
        raise OSError(errno.EBUSY, "what it holds cannot be exchanged", str(target))
    beside = target if fixed else target.parent
    beside.mkdir(parents=True, exist_ok=True)
    with _scratch(beside) as scratch:
        made = scratch / MADE
        made.mkdir()
        with _errors_of_the_system(target):
            yield made
        _to_disk(made)
        if fixed:
            # From here on a kill leaves what the next start can finish.
            (scratch / WHOLE).touch()
            _move_inside(made, target)
        else:
            _put(made, target)


def is_fixed(target: Path) -> bool:
    """Whether a folder is there and cannot be renamed: a mount, or one in a folder that belongs to
    others."""
    if not target.is_dir():
        return False
    return os.path.ismount(target) or not os.access(target.parent, os.W_OK | os.X_OK)


def is_empty(folder: Path) -> bool:
    """Whether a folder holds nothing but what a kill has left of writing into it."""
    return all(_abandoned(entry) for entry in folder.iterdir())


def recover(target: Path) -> None:
    """Puts back or finishes what a kill left, a folder that was out of its place while another took
    it, and one that was being filled; and removes what it left beside them.

    Raises:
        OSError: when it cannot.
    """
    if target.is_dir():
        for scratch in filter(_abandoned, target.glob(f"{SCRATCH}*")):
            if (scratch / WHOLE).exists():
                _move_inside(scratch / MADE, target)
        _tidy(target)
    else:
        places = (place / target.name for place in target.parent.glob(f"{PREVIOUS}*"))
        hidden = [place for place in places if place.is_dir()]
        if hidden:
            newest = max(hidden, key=lambda place: place.stat().st_mtime_ns)
            newest.rename(target)
            newest.parent.rmdir()
    _tidy(target.parent)


def check_writable(target: Path) -> None:
    """Tries what `folder_written_whole` will do: to make a folder beside `target`, or in it where
    that is filled, and to write a megabyte there.

    Raises:
        OSError: when that fails: no permission, a full disk, a file in the way.
    """
    target = Path(os.path.realpath(target))
    place = target if is_fixed(target) else target.parent
    while not place.exists():
        place = place.parent
    _tidy(place)
    with _scratch(place) as scratch:
        (scratch / PROBE).write_bytes(bytes(PROBE_BYTES))


def keep_other_files(before: Path, made: Path, own: Collection[str]) -> None:
    """Copies what a user has put into a folder, beside the files of our `own`, into the one that
    takes its place."""
    for entry in before.iterdir() if before.is_dir() and not is_empty(before) else ():
        if entry.name not in own and entry.is_dir() and not entry.is_symlink():
            shutil.copytree(entry, made / entry.name, symlinks=True)
        elif entry.name not in own:
            shutil.copy2(entry, made / entry.name, follow_symlinks=False)


def readable_as_its_folder(path: Path) -> None:
    """Gives a file of a folder that was just made the rights that the folder has: some libraries
    write files that only their owner can read."""
    path.chmod(path.parent.stat().st_mode & 0o666)


@contextmanager
def _errors_of_the_system(target: Path) -> Iterator[None]:
    """What the system answers, as `OSError`: libraries in Rust, which write tensors and tokenizers,
    have errors of their own for it and say its number at the end."""
    try:
        yield
    except Exception as error:
        number = OS_ERROR.search(str(error))
        if isinstance(error, OSError) or number is None:
            raise
        code = int(number[1] or number[2])
        raise OSError(code, os.strerror(code), str(target)) from error


@contextmanager
def _scratch(beside: Path) -> Iterator[Path]:
    scratch, lock = _locked_folder(beside)
    try:
        yield scratch
    finally:
        # While it is locked, nobody else removes it; Windows removes no file that is open.
        shutil.rmtree(scratch, ignore_errors=True)
        lock.release()
        shutil.rmtree(scratch, ignore_errors=True)


def _locked_folder(beside: Path) -> tuple[Path, BaseFileLock]:
    """A new hidden folder and its lock. Before it is locked, it may be taken for one that a kill
    has left (see `_tidy`): then another is made."""
    for _ in range(TRIES):
        scratch = Path(tempfile.mkdtemp(dir=beside, prefix=SCRATCH))
        lock = FileLock(scratch / LOCK, blocking=False)
        try:
            lock.acquire()
        except (Timeout, FileNotFoundError):
            continue
        except OSError as error:
            if error.errno not in NO_LOCKS:
                shutil.rmtree(scratch, ignore_errors=True)
                raise
            # Nobody can have it then, and nobody would take it for left.
        return scratch, lock
    raise OSError(errno.EBUSY, "others remove what is made there", str(beside))


def _abandoned(entry: Path) -> bool:
    """Whether a kill has left this hidden folder: nobody holds its lock."""
    if not _is_scratch(entry):
        return False
    try:
        with FileLock(entry / LOCK, blocking=False):
            return True
    except (Timeout, OSError):
        return False


def _is_scratch(entry: Path) -> bool:
    """Whether this is a hidden folder of ours; one with a folder that was out of its place is not:
    it may be the only copy."""
    if not entry.name.startswith(SCRATCH) or entry.name.startswith(PREVIOUS):
        return False
    try:
        found = {inside.name for inside in entry.iterdir()}
    except OSError:  # no folder, or it has just been removed
        return False
    return found <= {LOCK, MADE, PROBE, WHOLE} and not entry.is_symlink()


def _tidy(beside: Path) -> None:
    """Removes what kills have left in a folder."""
    for scratch in filter(_is_scratch, beside.glob(f"{SCRATCH}*")):
        with suppress(Timeout, OSError):
            with FileLock(scratch / LOCK, blocking=False):
                shutil.rmtree(scratch, ignore_errors=True)
            shutil.rmtree(scratch, ignore_errors=True)  # on Windows, its lock is left


def _to_disk(folder: Path) -> None:
    """What is renamed must be there after a power cut too, not its name alone."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                os.fsync(file.fileno())


def _move_inside(made: Path, target: Path) -> None:
    for entry in sorted(made.iterdir()):
        entry.rename(target / entry.name)


def _put(made: Path, target: Path) -> None:
    if not target.exists():
        made.rename(target)
    elif not _exchanged(made, target):
        _exchange_in_two_steps(made, target)


def _exchanged(one: Path, other: Path) -> bool:
    """Exchanges two folders in one step where the system has one (renameat2 of Linux, renamex_np
    of macOS); whether it did."""
    here, swap = -100, 2  # AT_FDCWD; RENAME_EXCHANGE and RENAME_SWAP
    names = [os.fsencode(one), os.fsencode(other)]
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if sys.platform == "linux":
            failed = libc.renameat2(here, names[0], here, names[1], swap)
        else:
            failed = libc.renamex_np(names[0], names[1], swap)
    except (AttributeError, TypeError, OSError):  # a C library without it, or none to ask
        return False
    code = ctypes.get_errno()
    if failed and code not in NO_EXCHANGE:
        raise OSError(code, os.strerror(code), str(other))
    return not failed


def _exchange_in_two_steps(made: Path, target: Path) -> None:
    # Not inside what is removed in any case: if it cannot be put back, it is at least there.
    beside = Path(tempfile.mkdtemp(dir=target.parent, prefix=PREVIOUS))
    previous = beside / target.name
    try:
        target.rename(previous)
        made.rename(target)
    except BaseException:
        if previous.exists():
            previous.rename(target)
        beside.rmdir()
        raise
    # From here on it may be removed by whoever comes to it.
    previous.rename(beside / MADE)
    replaced = beside.rename(beside.with_name(beside.name.replace(PREVIOUS, SCRATCH)))
    shutil.rmtree(replaced, ignore_errors=True)
