"""A folder of images with one sub-folder per class.

    photos/cat/1.jpg, photos/dog/1.jpg          every image is for training
    photos/train/cat/1.jpg, photos/test/cat/…   with `val` and `test` where they are

Class names are the folders' names, with underscores and hyphens read as spaces, in sorted order; a
file `classnames.json` at the top ({"folder": "class name"}) or the `classnames` option renames
them.
"""

from collections.abc import Mapping
from pathlib import Path

from shotfit.data.dataset import Dataset, Example
from shotfit.data.image_files import SUFFIXES, is_image
from shotfit.data.template import TEMPLATE
from shotfit.errors import DataError, Problem, refuse
from shotfit.system.parsing import parse_json

CLASSNAMES_FILE = "classnames.json"
SPLITS = ("train", "val", "test")


def load(
    path: str, *, classnames: str | Mapping[str, str] | None = None, template: str = TEMPLATE
) -> Dataset:
    """The images below `path`; `classnames` is a mapping or a JSON file that holds one.

    Raises:
        DataError: naming the folder or file that is missing, empty, or of the wrong form.
    """
    return survey(refuse, path, classnames=classnames, template=template)


def survey(
    problem: Problem,
    path: str,
    *,
    classnames: str | Mapping[str, str] | None = None,
    template: str = TEMPLATE,
) -> Dataset:
    """`load`, going on after each problem that it tells.

    Raises:
        DataError: when there is nothing to go on with.
    """
    top = Path(path).expanduser()
    if not top.is_dir():
        raise DataError(f"There is no folder {top}.")
    parts = {"train": top}
    if (top / "train").is_dir():
        parts = {split: top / split for split in SPLITS if (top / split).is_dir()}
    folders = _class_folders(parts["train"])
    names = _names(problem, top, folders, classnames)
    label_of = {folder: label for label, folder in enumerate(folders)}
    examples = {split: _examples(problem, top, part, label_of) for split, part in parts.items()}
    return Dataset(
        name=top.resolve().name,
        classnames=names,
        train=examples["train"],
        val=examples.get("val", ()),
        test=examples.get("test", ()),
        template=template,
    )


def has_folders(place: Path) -> bool:
    """Whether a folder has any in which images of a class may be."""
    return bool(_folders(place))


def _folders(part: Path) -> list[str]:
    return sorted(p.name for p in part.iterdir() if p.is_dir() and not p.name.startswith("."))


def _class_folders(part: Path) -> list[str]:
    folders = _folders(part)
    if not folders:
        raise DataError(f"{part} has no sub-folders; a folder of images per class is expected.")
    return folders


def _examples(
    problem: Problem, top: Path, part: Path, label_of: Mapping[str, int]
) -> tuple[Example, ...]:
    examples: list[Example] = []
    for folder in sorted(p for p in part.iterdir() if p.is_dir() and not p.name.startswith(".")):
        if folder.name not in label_of:
            problem(f"{folder} is a class that the training images do not have.")
            continue
        images = (p for p in folder.rglob("*") if is_image(p.name) and not _is_hidden(p, folder))
        # A link that leads nowhere counts: an image that is not there must not go unnoticed.
        files = sorted(p for p in images if p.is_file() or p.is_symlink() and not p.exists())
        if not files:
            problem(f"The class folder {folder} holds no images ({', '.join(SUFFIXES)}).")
        label = label_of[folder.name]
        examples += [Example(file.relative_to(top).as_posix(), label, file) for file in files]
    return tuple(examples)


def _is_hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(folder).parts)


def _names(
    problem: Problem,
    top: Path,
    folders: list[str],
    classnames: str | Mapping[str, str] | None,
) -> tuple[str, ...]:
    mapping = classnames if isinstance(classnames, Mapping) else {}
    file = Path(classnames) if isinstance(classnames, str) else top / CLASSNAMES_FILE
    if isinstance(classnames, str) or (not mapping and file.is_file()):
        try:
            mapping = parse_json(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DataError(f"Cannot read the class names in {file}: {error}") from error
        if not isinstance(mapping, dict) or not all(isinstance(v, str) for v in mapping.values()):
            raise DataError(f"{file} must hold an object of folder names and class names.")
    unknown = sorted(set(mapping) - set(folders))
    if unknown:
        problem(f"Class names are given for folders that do not exist: {unknown[:5]}.")
    return tuple(
        mapping.get(folder, folder.replace("_", " ").replace("-", " ").strip())
        for folder in folders
    )
