"""Make train/val/test splits from the raw downloads, for when a published split cannot be had.

With the default seed, the splits of Flowers, Pets, Cars and UCF101 equal the published ones
(`split_zhou_*.json`) image by image, as those were drawn with it from sorted lists. The others were
drawn from lists in the order of a file system or with another random state: accuracies measured on
a split made for them are not comparable with printed ones. What has been made says in its file
which of the two it is, by the hashes of `published_lists`. `make_split` is never called on the
user's behalf, and its file has another name.

Proportions, order and names follow CoOp's construction (Zhou et al., IJCV 2022; the files under
`datasets/` of its repository): either half of each class for training, a fifth for validation and
the rest for testing, or the official test list with a fifth of the official training images of
each class for validation.
"""

import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from shotfit.data.benchmark.facts import Benchmark, find_benchmark
from shotfit.data.benchmark.matfile import read_mat
from shotfit.data.benchmark.published_lists import has_published_lists
from shotfit.data.benchmark.raw_files import list_folders, list_images, read_lines
from shotfit.data.benchmark.split_files import Entry, to_dataset, write_split
from shotfit.data.dataset import Dataset
from shotfit.errors import DataError, UsageError
from shotfit.system.parsing import parse_json

VAL_FRACTION = 0.2
TRAIN_FRACTION = 0.5

# Two folders of Caltech101 hold no category of their own; four names are made singular words.
CALTECH_LEFT_OUT = frozenset({"BACKGROUND_Google", "Faces_easy"})
CALTECH_NAMES = {
    "airplanes": "airplane",
    "Faces": "face",
    "Leopards": "leopard",
    "Motorbikes": "motorbike",
}
EUROSAT_NAMES = {
    "AnnualCrop": "Annual Crop Land",
    "Forest": "Forest",
    "HerbaceousVegetation": "Herbaceous Vegetation Land",
    "Highway": "Highway or Road",
    "Industrial": "Industrial Buildings",
    "Pasture": "Pasture Land",
    "PermanentCrop": "Permanent Crop Land",
    "Residential": "Residential Buildings",
    "River": "River",
    "SeaLake": "Sea or Lake",
}

Splits = dict[str, list[Entry]]


def make_split(root: Path | str, name: str, *, seed: int = 1) -> Dataset:
    """A split of the benchmark dataset `name` from its raw files.

    The published one for four datasets with the default seed (see above), for no other.

    Write it with `write_made_split`, read it back with `sources.coop.load(..., split_file=...)`,
    which turns the underscores of class names into spaces; here they are kept, as in split files.
    FGVC Aircraft and ImageNet have none to make: they are read as they are.

    Raises:
        UsageError: for an unknown dataset, or one that needs no split.
        DataError: when a raw file is missing or is not what it should be.
    """
    benchmark = find_benchmark(name)
    if benchmark.key not in _READERS:
        raise UsageError(f"{benchmark.coop_name} has official lists; there is no split to make.")
    root = Path(root).expanduser()
    directory = benchmark.directory(root)
    if not directory.is_dir():
        raise DataError(f"The folder {directory} of {benchmark.coop_name} is missing.")
    entries = _READERS[benchmark.key](directory, random.Random(seed))
    return to_dataset(benchmark, root, entries, directory)


def write_made_split(root: Path | str, name: str, *, seed: int = 1) -> Path:
    """Make a split and write it beside the raw files, with a note whether it is the published one.

    Raises:
        UsageError, DataError: as `make_split`.
    """
    benchmark = find_benchmark(name)
    dataset = make_split(root, name, seed=seed)
    note = f"Made by shotfit from the raw files with seed {seed}. {standing(dataset)}"
    return write_split(dataset, made_split_path(root, benchmark, seed), note=note)


def standing(dataset: Dataset) -> str:
    """What a made split is to the published one, in a sentence."""
    if has_published_lists(dataset):
        return "The published split: its few-shot lists have the published hashes."
    return "Not the published split: numbers on it do not compare with printed ones."


def made_split_path(root: Path | str, benchmark: Benchmark, seed: int) -> Path:
    """Where `write_made_split` writes."""
    directory = benchmark.directory(Path(root).expanduser())
    return directory / f"split_shotfit_{benchmark.coop_name}-seed_{seed}.json"


def sun_classname(folder: str) -> str:
    """The class name of a SUN397 folder such as a/apartment_building/outdoor.

    The letter goes, the rest is reversed: "outdoor apartment_building".
    """
    return " ".join(reversed(folder.split("/")[1:]))


def ucf_classname(action: str) -> str:
    """The folder and class name of a UCF101 action: split before capitals, Apply_Eye_Makeup."""
    return "_".join(re.findall(r"[A-Z][^A-Z]*", action))


def cars_classname(model: str) -> str:
    """The class name of a Stanford Cars model, the year moved to the front: 2012 Acura TL Sedan."""
    *words, year = model.split(" ")
    return " ".join([year, *words])


def pets_classname(image: str) -> str:
    """The class name of an Oxford Pets image: the breed in lower case."""
    return image.rpartition("_")[0].lower()


def _split_in_three(
    groups: Sequence[tuple[int, str, list[str]]], stream: random.Random, origin: Path
) -> Splits:
    """(label, class name, paths) groups shuffled and cut 50/20/30."""
    splits: Splits = {"train": [], "val": [], "test": []}
    for label, classname, paths in groups:
        stream.shuffle(paths)
        train = round(len(paths) * TRAIN_FRACTION)
        val = train + round(len(paths) * VAL_FRACTION)
        if not 0 < train < val < len(paths):
            raise _too_few(classname, len(paths), origin)
        for split, part in (
            ("train", paths[:train]),
            ("val", paths[train:val]),
            ("test", paths[val:]),
        ):
            splits[split].extend((path, label, classname) for path in part)
    return splits


def _hold_out_val(
    trainval: Sequence[Entry], test: list[Entry], stream: random.Random, origin: Path
) -> Splits:
    """The official training images, a fifth of each class held out for validation."""
    groups: dict[int, list[Entry]] = {}
    for entry in trainval:
        groups.setdefault(entry[1], []).append(entry)
    splits: Splits = {"train": [], "val": [], "test": test}
    for entries in groups.values():
        val = round(len(entries) * VAL_FRACTION)
        if val == 0:
            raise _too_few(entries[0][2], len(entries), origin)
        stream.shuffle(entries)
        splits["val"].extend(entries[:val])
        splits["train"].extend(entries[val:])
    return splits


def _too_few(classname: str, images: int, origin: Path) -> DataError:
    return DataError(f"Class {classname!r} in {origin} has too few images to split: {images}.")


def _category_folders(
    images: Path,
    stream: random.Random,
    *,
    left_out: frozenset[str] = frozenset(),
    names: dict[str, str] | None = None,
) -> Splits:
    # Sorted by code point, capitals first, and by folder, not by class name: Caltech101's labels
    # begin with face, leopard, motorbike, accordion.
    folders = [folder for folder in list_folders(images) if folder not in left_out]
    groups = [
        (
            label,
            (names or {}).get(folder, folder),
            [f"{folder}/{image}" for image in list_images(images / folder)],
        )
        for label, folder in enumerate(folders)
    ]
    return _split_in_three(groups, stream, images)


def _caltech101(directory: Path, stream: random.Random) -> Splits:
    images = directory / "101_ObjectCategories"
    return _category_folders(images, stream, left_out=CALTECH_LEFT_OUT, names=CALTECH_NAMES)


def _dtd(directory: Path, stream: random.Random) -> Splits:
    return _category_folders(directory / "images", stream)


def _eurosat(directory: Path, stream: random.Random) -> Splits:
    return _category_folders(directory / "2750", stream, names=EUROSAT_NAMES)


def _food101(directory: Path, stream: random.Random) -> Splits:
    return _category_folders(directory / "images", stream)


def _oxford_flowers(directory: Path, stream: random.Random) -> Splits:
    """Image number i has the i-th label of imagelabels.mat; labels and names count from 1."""
    names_file = directory / "cat_to_name.json"
    try:
        names = parse_json(names_file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"The class names {names_file} cannot be read: {error}") from error
    labels = _variable(directory / "imagelabels.mat", "labels")
    groups: dict[int, list[str]] = {}
    for number, label in enumerate(labels, start=1):
        groups.setdefault(int(label), []).append(f"image_{number:05d}.jpg")
    for label in groups:
        if str(label) not in names:
            raise DataError(f"{names_file} has no name for the label {label}.")
    named = [(label - 1, names[str(label)], paths) for label, paths in groups.items()]
    return _split_in_three(named, stream, directory)


def _oxford_pets(directory: Path, stream: random.Random) -> Splits:
    def read(name: str) -> list[Entry]:
        path = directory / "annotations" / name
        # Image, class counted from 1, species, breed within the species.
        rows = _columns(path, 4)
        return [
            (f"{row[0]}.jpg", _number(row[1], path) - 1, pets_classname(row[0])) for row in rows
        ]

    return _hold_out_val(read("trainval.txt"), read("test.txt"), stream, directory)


def _stanford_cars(directory: Path, stream: random.Random) -> Splits:
    models = _variable(directory / "devkit" / "cars_meta.mat", "class_names")

    def read(folder: str, path: Path) -> list[Entry]:
        entries = []
        for number, row in enumerate(_variable(path, "annotations"), start=1):
            try:
                label = int(row["class"][0]) - 1
                entry = f"{folder}/{row['fname']}", label, cars_classname(models[label])
            except (KeyError, IndexError, TypeError) as error:
                raise DataError(
                    f"Annotation {number} of {path} has no usable class and fname: {error!r}"
                ) from error
            entries.append(entry)
        return entries

    trainval = read("cars_train", directory / "devkit" / "cars_train_annos.mat")
    test = read("cars_test", directory / "cars_test_annos_withlabels.mat")
    return _hold_out_val(trainval, test, stream, directory)


def _sun397(directory: Path, stream: random.Random) -> Splits:
    folders = [line.removeprefix("/") for line in read_lines(directory / "ClassName.txt")]
    labels = {folder: label for label, folder in enumerate(folders)}

    def read(name: str) -> list[Entry]:
        entries = []
        for line in read_lines(directory / name):
            image = line.removeprefix("/")
            folder = image.rpartition("/")[0]
            if folder not in labels:
                raise DataError(f"{directory / name} lists {line}, not in ClassName.txt.")
            entries.append((image, labels[folder], sun_classname(folder)))
        return entries

    return _hold_out_val(read("Training_01.txt"), read("Testing_01.txt"), stream, directory)


def _ucf101(directory: Path, stream: random.Random) -> Splits:
    lists = directory / "ucfTrainTestlist"
    index = lists / "classInd.txt"
    labels = {action: _number(number, index) - 1 for number, action in _columns(index, 2)}

    def read(name: str) -> list[Entry]:
        entries = []
        for line in read_lines(lists / name):
            # The training list has the label after the clip, the test list has not.
            action, _, clip = line.split(" ")[0].partition("/")
            if action not in labels:
                raise DataError(f"{lists / name} lists {line!r}, not an action of {index}.")
            folder = ucf_classname(action)
            frame = f"{folder}/{clip.removesuffix('.avi')}.jpg"
            entries.append((frame, labels[action], folder))
        return entries

    return _hold_out_val(read("trainlist01.txt"), read("testlist01.txt"), stream, directory)


def _columns(path: Path, width: int) -> list[list[str]]:
    rows = [line.split() for line in read_lines(path)]
    for number, row in enumerate(rows, start=1):
        if len(row) != width:
            raise DataError(f"Line {number} of {path} must have {width} columns.")
    return rows


def _number(text: str, path: Path) -> int:
    if not text.isdecimal():
        raise DataError(f"{path} has {text!r} where a class number is expected.")
    return int(text)


def _variable(path: Path, name: str) -> list:
    values = read_mat(path)
    if not isinstance(values.get(name), list):
        raise DataError(f"{path} has no variable {name!r}.")
    return values[name]


_READERS: dict[str, Callable[[Path, random.Random], Splits]] = {
    "caltech101": _caltech101,
    "dtd": _dtd,
    "eurosat": _eurosat,
    "food101": _food101,
    "oxford_flowers": _oxford_flowers,
    "oxford_pets": _oxford_pets,
    "stanford_cars": _stanford_cars,
    "sun397": _sun397,
    "ucf101": _ucf101,
}
