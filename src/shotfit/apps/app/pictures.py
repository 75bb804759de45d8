"""The labelled pictures of a project: files in its folder, and a manifest that says what they are.

The folder holds `pictures/`, `pictures.csv` (path and label, what `shotfit fit` reads) and
`classes.json` with all class names, also those without a picture. All are written whole.
"""

import csv
import hashlib
import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shotfit.data.image_files import SUFFIXES
from shotfit.data.images import open_image, pixels_of
from shotfit.data.names import check_names
from shotfit.errors import DataError, UsageError
from shotfit.system.files import write_atomically, write_bytes_atomically
from shotfit.system.parsing import parse_json
from shotfit.system.paths import file_inside

MANIFEST, NAMES, FOLDER = "pictures.csv", "classes.json", "pictures"
DIGITS = 10
"""Of the content's hash, in a file's name."""

Upload = tuple[str, bytes]
"""The name of a file that was given, and its content."""


@dataclass(frozen=True)
class Limits:
    """What is taken at most."""

    bytes: int = 20_000_000
    """Of a picture's file."""
    pixels: int = 50_000_000
    """Of a picture."""
    pictures: int = 5_000
    """In the project."""
    classes: int = 1_000


@dataclass(frozen=True)
class Picture:
    """A labelled picture: its path inside the project's folder, and its class."""

    path: str
    name: str


@dataclass(frozen=True)
class Added:
    """How many pictures were taken, a sentence for each that was not, and whether answers go by
    them `at_once`, before the next fit."""

    count: int
    refused: tuple[str, ...]
    at_once: bool = False


class Pictures:
    """Class names in the order in which they were given, and labelled pictures."""

    def __init__(self, folder: Path, limits: Limits | None = None) -> None:
        """What `folder` holds, which may be nothing yet.

        Raises:
            DataError: for a manifest that cannot be read.
        """
        self.folder = folder
        self.limits = limits or Limits()
        self.labelled: dict[str, Picture] = {}
        """By the hash of their content: a picture has one class."""
        self.names: list[str] = []
        if (folder / MANIFEST).is_file():
            self.labelled = _read_manifest(folder / MANIFEST)
        if (folder / NAMES).is_file():
            self.names = _read_names(folder / NAMES)
        self.names += [one.name for one in self.labelled.values() if one.name not in self.names]
        self.names = list(dict.fromkeys(self.names))

    @property
    def manifest(self) -> Path:
        """The file that lists them, for `fit` and `check`."""
        return self.folder / MANIFEST

    def of(self, name: str) -> list[Path]:
        """The files of a class."""
        return [self.folder / one.path for one in self.labelled.values() if one.name == name]

    def counts(self) -> dict[str, int]:
        """The number of pictures of every class."""
        counts = dict.fromkeys(self.names, 0)
        for picture in self.labelled.values():
            counts[picture.name] += 1
        return counts

    def label_of(self, content: bytes) -> str | None:
        """The class of a picture that is here already."""
        picture = self.labelled.get(digest_of(content))
        return None if picture is None else picture.name

    def add_name(self, name: str) -> str:
        """Adds a class, if it is new; the name as it is kept.

        Raises:
            DataError: for a name that cannot stand in a prompt, or too many.
        """
        name = " ".join(name.replace("_", " ").split())
        check_names([name])
        if name not in self.names:
            if len(self.names) >= self.limits.classes:
                raise DataError(f"A project has at most {self.limits.classes:,} classes.")
            self.names.append(name)
            self._save()
        return name

    def remove_name(self, name: str) -> None:
        """Removes a class and its pictures.

        Raises:
            UsageError: for a name that is no class.
        """
        if name not in self.names:
            raise UsageError(f"There is no class {name!r}.")
        gone = self.of(name)
        self.names.remove(name)
        self.labelled = {key: one for key, one in self.labelled.items() if one.name != name}
        self._save()
        for path in gone:
            path.unlink(missing_ok=True)

    def add(self, name: str, uploads: Sequence[Upload]) -> Added:
        """Takes pictures of a class; one that was of another class becomes one of this class.

        Raises:
            DataError: for a name that cannot stand in a prompt.
        """
        name, taken, refused = self.add_name(name), 0, []
        for given, content in uploads:
            try:
                self._check(given, content)
            except DataError as error:
                refused.append(str(error))
                continue
            digest = digest_of(content)
            known = self.labelled.get(digest)
            if known is not None and known.name == name:
                refused.append(f"{given} is there already.")
                continue
            path = f"{FOLDER}/{_file_name(given, digest)}" if known is None else known.path
            if known is None:
                write_bytes_atomically(self.folder / path, content)
            self.labelled[digest] = Picture(path, name)
            taken += 1
        self._save()
        return Added(taken, tuple(refused))

    def remove(self, path: Path) -> None:
        """Removes a picture.

        Raises:
            UsageError: for a file that is no picture of the project.
        """
        found = [k for k, one in self.labelled.items() if self.folder / one.path == path]
        if not found:
            raise UsageError(f"{path.name} is no picture of this project.")
        del self.labelled[found[0]]
        self._save()
        path.unlink(missing_ok=True)

    def _check(self, given: str, content: bytes) -> None:
        check_upload(given, content, self.limits)
        if len(self.labelled) >= self.limits.pictures:
            raise DataError(f"A project has at most {self.limits.pictures:,} pictures.")

    def _save(self) -> None:
        rows = io.StringIO()
        writer = csv.writer(rows, lineterminator="\n")
        writer.writerow(["path", "label"])
        # Classes in the order of their names, which is the order in which a fit has them.
        order = {name: place for place, name in enumerate(self.names)}
        listed = sorted(self.labelled.values(), key=lambda one: order[one.name])
        writer.writerows((one.path, one.name) for one in listed)
        try:
            write_atomically(self.manifest, rows.getvalue())
            text = json.dumps(self.names, ensure_ascii=False, indent=1)
            write_atomically(self.folder / NAMES, f"{text}\n")
        except OSError as error:
            raise DataError(f"Cannot write {self.folder}: {error}") from error


def check_upload(given: str, content: bytes, limits: Limits) -> None:
    """Refuses a file that is no picture, or one beyond the limits.

    Raises:
        DataError: with a sentence that names the file.
    """
    if len(content) > limits.bytes:
        raise DataError(f"{given} has {len(content):,} bytes; at most {limits.bytes:,}.")
    pixels = pixels_of(content, given)
    if pixels > limits.pixels:
        raise DataError(f"{given} has {pixels:,} pixels; at most {limits.pixels:,}.")
    open_image(content, given)


def digest_of(content: bytes) -> str:
    """The first hex digits of a content's hash."""
    return hashlib.sha256(content).hexdigest()[:DIGITS]


def _file_name(given: str, digest: str) -> str:
    path = Path(given)
    suffix = path.suffix.lower() if path.suffix.lower() in SUFFIXES else ".png"
    stem = re.sub(r"[^A-Za-z0-9]+", "-", path.stem).strip("-")[:40] or "picture"
    return f"{stem}-{digest}{suffix}"


def _read_manifest(manifest: Path) -> dict[str, Picture]:
    found = {}
    try:
        rows = list(csv.DictReader(manifest.read_text(encoding="utf-8").splitlines()))
        for row in rows:
            picture = Picture(row["path"], row["label"])
            content = file_inside(manifest.parent, picture.path).read_bytes()
            found[digest_of(content)] = picture
    except (OSError, UnicodeDecodeError, KeyError, csv.Error) as error:
        raise DataError(f"{manifest} is no manifest of a project: {error!r}.") from error
    return found


def _read_names(path: Path) -> list[str]:
    try:
        names = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"Cannot read {path}: {error}") from error
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DataError(f"{path} must hold a list of class names.")
    return names
