"""The folder of an export: whether it may be written, and what of an earlier one it replaces."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shotfit import __version__
from shotfit.errors import DataError
from shotfit.runtime.manifest import CLASSES, MANIFEST, sha256
from shotfit.system.folders import folder_written_whole, is_empty, keep_other_files, recover
from shotfit.system.parsing import parse_json

MARK = "shotfit-export.json"
"""By what a folder for other programs is known as an export, as others are by their manifest."""


@contextmanager
def exported_folder(folder: Path, *, overwrite: bool) -> Iterator[Path]:
    """A new folder to write an export into, which is at `folder` when the block has ended well. It
    takes the place of an earlier export; what somebody else has put into that stays in it.

    Raises:
        DataError: as `check_place`, or when it cannot be written.
    """
    check_place(folder, overwrite=overwrite)
    try:
        with folder_written_whole(folder) as made:
            yield made
            if not (made / MANIFEST).exists():
                _mark(made)
            keep_other_files(folder, made, _own_files(folder))
    except OSError as error:
        raise DataError(f"Cannot write {folder}: {error}") from error


def check_place(folder: Path, *, overwrite: bool) -> None:
    """Refuses to export where something else is; worth asking before the work.

    Raises:
        DataError: for a file, a folder that holds something else than an export as it was written,
            or one and not `overwrite`; or when what a kill left there cannot be put back.
    """
    try:
        recover(folder)
    except OSError as error:
        raise DataError(f"Cannot write {folder}: {error}") from error
    if not folder.exists() or (folder.is_dir() and is_empty(folder)):
        return
    if not (folder.is_dir() and _own_files(folder)):
        raise DataError(
            f"{folder} exists and is not an export as it was written; it is left as it is."
        )
    if not overwrite:
        raise DataError(f"{folder} holds an export already: --overwrite replaces it.")


def _own_files(folder: Path) -> frozenset[str]:
    """The names of what an export wrote here, as long as all of it is as it was; else none."""
    for manifest in (MANIFEST, MARK):
        try:
            hashes = parse_json((folder / manifest).read_text(encoding="utf-8"))["files"]
            same = [sha256(folder / Path(name).name) == hashes[name] for name in hashes]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if same and all(same):
            # The class matrix changes with the classes, and is not among the hashes.
            return frozenset({manifest, CLASSES, *hashes})
    return frozenset()


def _mark(made: Path) -> None:
    hashes = {path.name: sha256(path) for path in sorted(made.iterdir())}
    facts = {"shotfit": __version__, "files": hashes}
    (made / MARK).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
