"""The benchmark datasets as CoOp lays them out: one reader for all eleven.

Nine come with a published split file, `split_zhou_*.json` (CoOp, Zhou et al., IJCV 2022;
datasets/oxford_pets.py of its repository): an object with `train`, `val` and `test`, each a list
of [path relative to the image folder, label, class name]. FGVC Aircraft is read from its official
lists, ImageNet from its folders. `facts` has the rows, and
`making_splits` makes a split where the published file cannot be had.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from shotfit.data.benchmark.facts import Benchmark, find_benchmark
from shotfit.data.benchmark.raw_files import list_folders, list_images, read_lines
from shotfit.data.benchmark.split_files import SPLITS, Entry, classnames_of, dataset_of, read_split
from shotfit.data.dataset import Dataset
from shotfit.data.template import TEMPLATE, is_template
from shotfit.errors import DataError, UsageError


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
        classnames = classnames_of(entries, path)
    elif benchmark.key == "imagenet":
        classnames, entries = _read_imagenet(benchmark.directory(root))
    else:
        classnames, entries = _read_fgvc(benchmark.directory(root))
    dataset = dataset_of(benchmark, root, classnames, entries, prompt)
    return dataset if keep_underscores else _with_spaces(dataset)


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
    names = read_imagenet_names(directory / "classnames.txt")
    folders = sorted(names)
    for split in ("train", "val"):
        found = list_folders(directory / "images" / split)
        _check_folders(directory / "images" / split, folders, found)
    train = list(_folder_entries(directory / "images", "train", folders, names))
    test = list(_folder_entries(directory / "images", "val", folders, names))
    return tuple(names[folder] for folder in folders), {"train": train, "val": [], "test": test}


def read_imagenet_names(path: Path) -> dict[str, str]:
    """Class names by folder, from CoOp's `classnames.txt`.

    Raises:
        DataError: when the file is missing, or a line is not a new folder and its class name.
    """
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
