"""The benchmark datasets as CoOp lays them out: one reader for all eleven.

Nine come with a published split file, `split_zhou_*.json` (CoOp, Zhou et al., IJCV 2022;
datasets/oxford_pets.py of its repository): an object with `train`, `val` and `test`, each a list
of [path relative to the image folder, label, class name]. FGVC Aircraft is read from its official
lists, ImageNet from its folders. `shotfit.data.benchmark.facts` has the rows, and
`shotfit.data.benchmark.making_splits` makes a split where the published file cannot be had.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

from shotfit.data.benchmark.facts import Benchmark, find_benchmark
from shotfit.data.dataset import TEMPLATE, Dataset, Example
from shotfit.data.template import is_template
from shotfit.errors import DataError, UsageError

SPLITS = ("train", "val", "test")
IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".gif"})

Entry = tuple[str, int, str]
"""Path relative to the image folder, label, class name: an entry of a split file."""


def load(
    root: Path | str,
    name: str,
    *,
    template: str = "generic",
    split_file: Path | str | None = None,
    keep_underscores: bool = False,
) -> Dataset:
    """The benchmark dataset `name` from its folder under the data root `root`.

    Args:
        root: the folder that holds the datasets' folders.
        name: a key, CoOp name or alias of `shotfit.data.benchmark.facts`.
        template: "generic" ("a photo of a {}.", what the paper's code uses everywhere),
            "specific" (CoOp's zero-shot prompt of this dataset), or a prompt with "{}" in it.
        split_file: another split file than the published one, such as one of `make_split`;
            relative to the dataset's folder.
        keep_underscores: leave "_" in class names. Split files keep the underscores of folder
            names; every reference code turns them into spaces before it fills the prompt, because
            CLIP's tokenizer makes a token of each. Only TaskRes's code does not, hence the option.

    Image files are not looked for, one by one, here: see `catalogue.missing_files`. ImageNet's
    images are found by listing its folders, in sorted order. Its `val` is empty: the published
    codes use the test images as validation images too, which this package does not.

    Raises:
        UsageError: for an unknown dataset or template.
        DataError: when a file is missing or is not what it should be.
    """
    benchmark = find_benchmark(name)
    prompt = _prompt(benchmark, template)
    root = Path(root).expanduser()
    if not root.is_dir():
        raise DataError(f"The data root {root} is not a folder.")
    if split_file is not None or benchmark.split_file:
        path = benchmark.directory(root) / (split_file or benchmark.split_file)
        if not path.is_file():
            _raise_no_split(benchmark, path)
        entries = read_split(path)
        classnames = _classnames_of(entries, path)
    elif benchmark.key == "imagenet":
        classnames, entries = _read_imagenet(benchmark.directory(root))
    else:
        classnames, entries = _read_fgvc(benchmark.directory(root))
    dataset = _dataset(benchmark, root, classnames, entries, prompt)
    return dataset if keep_underscores else _with_spaces(dataset)


def read_split(path: Path) -> dict[str, list[Entry]]:
    """The entries of a `split_zhou_*.json`, in file order: few-shot sampling depends on it.

    Raises:
        DataError: when the file is no such split, naming the first entry that is wrong.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DataError(
            f"The split file {path} cannot be read ({error}). Download it again."
        ) from error
    if not isinstance(values, dict) or not all(isinstance(values.get(s), list) for s in SPLITS):
        raise DataError(f"The split file {path} must hold the lists train, val and test.")
    return {
        split: [
            _entry(value, f"{split}[{position}] of the split file {path}")
            for position, value in enumerate(values[split])
        ]
        for split in SPLITS
    }


def write_split(dataset: Dataset, path: Path, *, note: str = "") -> Path:
    """Write `dataset` as a split file in the published form; returns `path`.

    `note` says where the split comes from, under a key that readers of the form ignore. The file
    appears at once or not at all.
    """
    values: dict[str, Any] = {"note": note} if note else {}
    for split in SPLITS:
        examples: Sequence[Example] = getattr(dataset, split)
        values[split] = [
            [example.key, example.label, dataset.classnames[example.label]] for example in examples
        ]
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(values, indent=1, ensure_ascii=False), encoding="utf-8")
    os.replace(partial, path)
    return path


def read_lines(path: Path) -> list[str]:
    """The lines of a text file that are not blank, without surrounding white space.

    Raises:
        DataError: when the file is missing, cannot be read, or holds nothing.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise DataError(
            f"{path} is missing. It belongs to the dataset's download; "
            "`shotfit datasets` shows the layout."
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise DataError(f"{path} is empty. Download it again.")
    return lines


def list_folders(directory: Path) -> list[str]:
    """The names of the sub-folders of `directory`, hidden ones left out, sorted by code point.

    Raises:
        DataError: when `directory` is missing or has no sub-folder.
    """
    if not directory.is_dir():
        raise DataError(f"The folder {directory} is missing; `shotfit datasets` shows the layout.")
    with os.scandir(directory) as entries:
        names = [entry.name for entry in entries if entry.is_dir()]
    names = sorted(name for name in names if not name.startswith("."))
    if not names:
        raise DataError(f"{directory} holds no class folders: one folder per class is expected.")
    return names


def list_images(directory: Path) -> list[str]:
    """The names of the image files in `directory`, hidden ones left out, sorted by code point."""
    return sorted(
        name
        for name in os.listdir(directory)
        if not name.startswith(".") and os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES
    )


def to_dataset(
    benchmark: Benchmark, root: Path, entries: Mapping[str, Sequence[Entry]], origin: Path
) -> Dataset:
    """The dataset of split `entries`, class names as they are; `origin` is named in errors.

    Raises:
        DataError: when the labels are not 0 to K-1 with one name each.
    """
    classnames = _classnames_of(entries, origin)
    return _dataset(benchmark, root, classnames, entries, TEMPLATE)


def _prompt(benchmark: Benchmark, template: str) -> str:
    named = {"generic": TEMPLATE, "specific": benchmark.template}
    if template in named:
        return named[template]
    if not is_template(template):
        raise UsageError(
            f"The template {template!r} must be generic, specific, or a prompt with one {{}} "
            "for the class name."
        )
    return template


def _raise_no_split(benchmark: Benchmark, path: Path) -> NoReturn:
    if not path.parent.is_dir():
        raise DataError(
            f"{benchmark.coop_name} is not there: the folder {path.parent} is missing. "
            "`shotfit datasets` says where it comes from and how to lay it out."
        )
    message = f"The split file {path} is missing."
    if path.name == benchmark.split_file:
        message += f" Get it from {benchmark.split_source}."
        ours = sorted(path.parent.glob("split_shotfit*.json"))
        if ours:
            message += f" (Or name {ours[0].name} as the split file; it is not the published one.)"
    raise DataError(message)


def _entry(value: Any, where: str) -> Entry:
    if not isinstance(value, list) or len(value) != 3:
        raise DataError(f"{where} must be [path, label, class name], got {value!r}.")
    path, label, classname = value
    # Some tools write the label as text; CoOp's own reader converts it.
    if isinstance(label, str) and label.isdecimal():
        label = int(label)
    fits = isinstance(path, str) and isinstance(classname, str) and classname.strip()
    if not fits or not isinstance(label, int) or isinstance(label, bool) or label < 0:
        raise DataError(f"{where} must be [path, label, class name], got {value!r}.")
    # A split file is fetched from elsewhere: it must not reach out of the image folder.
    pure = PurePosixPath(path)
    if not path or pure.is_absolute() or ".." in pure.parts or "\\" in path:
        raise DataError(f"{where} must have a path relative to the image folder, got {path!r}.")
    return path, label, classname


def _classnames_of(entries: Mapping[str, Sequence[Entry]], origin: Path) -> tuple[str, ...]:
    names: dict[int, str] = {}
    for split in SPLITS:
        for _, label, classname in entries[split]:
            if names.setdefault(label, classname) != classname:
                raise DataError(
                    f"{origin} gives label {label} two class names: "
                    f"{names[label]!r} and {classname!r}."
                )
    if not entries["train"]:
        raise DataError(f"{origin} has no training images.")
    absent = sorted(set(range(max(names) + 1)) - set(names))
    if absent:
        raise DataError(
            f"{origin} has labels up to {max(names)} but no image of label {absent[0]}."
        )
    return tuple(names[label] for label in range(len(names)))


def _dataset(
    benchmark: Benchmark,
    root: Path,
    classnames: tuple[str, ...],
    entries: Mapping[str, Sequence[Entry]],
    template: str,
) -> Dataset:
    images = benchmark.image_directory(root)

    def examples(split: str) -> tuple[Example, ...]:
        return tuple(Example(path, label, images / path) for path, label, _ in entries[split])

    return Dataset(
        name=benchmark.key,
        classnames=classnames,
        train=examples("train"),
        val=examples("val"),
        test=examples("test"),
        template=template,
    )


def _with_spaces(dataset: Dataset) -> Dataset:
    return Dataset(
        name=dataset.name,
        classnames=tuple(name.replace("_", " ") for name in dataset.classnames),
        train=dataset.train,
        val=dataset.val,
        test=dataset.test,
        template=dataset.template,
    )


def _read_fgvc(directory: Path) -> tuple[tuple[str, ...], dict[str, list[Entry]]]:
    """FGVC Aircraft: labels by order of `variants.txt`, the official list for each split."""
    classnames = tuple(read_lines(directory / "variants.txt"))
    labels = {name: label for label, name in enumerate(classnames)}
    entries: dict[str, list[Entry]] = {}
    for split in SPLITS:
        path = directory / f"images_variant_{split}.txt"
        entries[split] = []
        for number, line in enumerate(read_lines(path), start=1):
            # The image's number, one space, the variant: variants have spaces ("Boeing 717").
            image, _, variant = line.partition(" ")
            if variant not in labels:
                raise DataError(
                    f"Line {number} of {path} names the variant {variant!r}, "
                    "which is not in variants.txt."
                )
            entries[split].append((f"{image}.jpg", labels[variant], variant))
    return classnames, entries


def _read_imagenet(directory: Path) -> tuple[tuple[str, ...], dict[str, list[Entry]]]:
    """ImageNet: labels by order of the sorted folder names, names from `classnames.txt`.

    Two pairs of classes share a name ("missile", "sunglasses"); each keeps its own label.
    """
    names = _read_imagenet_names(directory / "classnames.txt")
    folders = sorted(names)
    for split in ("train", "val"):
        found = list_folders(directory / "images" / split)
        _check_folders(directory / "images" / split, folders, found)
    train = list(_folder_entries(directory / "images", "train", folders, names))
    test = list(_folder_entries(directory / "images", "val", folders, names))
    return tuple(names[folder] for folder in folders), {"train": train, "val": [], "test": test}


def _read_imagenet_names(path: Path) -> dict[str, str]:
    names: dict[str, str] = {}
    for number, line in enumerate(read_lines(path), start=1):
        folder, _, classname = line.partition(" ")
        if not classname.strip() or folder in names:
            raise DataError(
                f"Line {number} of {path} must be a new folder name and its class name, "
                f"got {line!r}."
            )
        names[folder] = classname.strip()
    return names


def _check_folders(directory: Path, expected: Sequence[str], found: Sequence[str]) -> None:
    # A class left out would shift the labels of all that follow.
    absent, unlisted = set(expected) - set(found), set(found) - set(expected)
    if absent or unlisted:
        kind = "no folder" if absent else "the unlisted folder"
        raise DataError(
            f"{directory} has {kind} {min(absent or unlisted)} ({len(absent or unlisted)} such in "
            "all); its folders must be exactly those of classnames.txt."
        )


def _folder_entries(
    images: Path, split: str, folders: Sequence[str], names: Mapping[str, str]
) -> Iterable[Entry]:
    for label, folder in enumerate(folders):
        # Sorted, where the published code takes the file system's order and so cannot be
        # reproduced.
        for image in list_images(images / split / folder):
            yield f"{split}/{folder}/{image}", label, names[folder]
