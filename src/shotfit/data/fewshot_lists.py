"""Few-shot lists as files: which images each class contributes for given shots and seed.

Two forms are read, both one JSON object a line in `shot_{shots}-seed_{seed}_{train|val}.jsonl`:

- the published lists of 2SFS (Farina et al., CVPR 2025; `split_fewshot/` of the released code),
  with the keys `_impath` (relative to the data root), `_label`, `_domain` and `_classname`;
- ours: a header with dataset, shots, seed and the SHA-256 of the lines below it, then `path` (the
  image's key, relative to the dataset's image folder), `label` and `classname`.

Ours follow CoOp's sampling rule (`sample_shots`). ImageNet's published lists cannot be drawn again
from a seed: they depend on the order in which a file system listed the images.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from shotfit.data.benchmark.facts import find_benchmark
from shotfit.data.dataset import Dataset, Example
from shotfit.data.task import sample_shots
from shotfit.errors import DataError, UsageError
from shotfit.system.files import write_atomically
from shotfit.system.parsing import parse_json

SHOTS = (1, 2, 4, 8, 16)
SEEDS = (1, 2, 3)
FORMAT = "shotfit-fewshot-1"

Part = Literal["train", "val"]
PARTS: tuple[Part, ...] = ("train", "val")

FewShot = tuple[tuple[Example, ...], tuple[Example, ...]]
"""Training and validation images, as `make_task(fewshot=...)` takes them."""


@dataclass(frozen=True)
class FewShotCheck:
    """What `verify` found in one file."""

    path: Path
    status: Literal["ok", "missing", "damaged", "differs"]
    detail: str = ""


def fewshot_path(folder: Path | str, shots: int, seed: int, part: Part) -> Path:
    """The file of one list, named as 2SFS names it."""
    return Path(folder) / f"shot_{shots}-seed_{seed}_{part}.jsonl"


def read_fewshot(dataset: Dataset, folder: Path | str, shots: int, seed: int) -> FewShot:
    """The training and validation lists of `dataset` for `shots` and `seed`, of either form.

    Every listed image must be one of `dataset.train` (or `dataset.val`) with the same label: a
    list made for another split would bring test images into training. Validation is empty when it
    has no file (2SFS's ImageNet), or when the dataset has no validation images.

    Raises:
        DataError: when the training list is missing, or a list is damaged or does not fit.
    """
    path = fewshot_path(folder, shots, seed, "train")
    if not path.is_file():
        raise DataError(
            f"The few-shot list {path} is missing. `shotfit splits make` writes lists by the "
            "published sampling rule; 2SFS's own lists go there under the same name."
        )
    train = _read_list(dataset, path, "train", shots, seed)
    path = fewshot_path(folder, shots, seed, "val")
    val = _read_list(dataset, path, "val", shots, seed) if path.is_file() and dataset.val else ()
    return train, val


def write_fewshot(
    dataset: Dataset,
    folder: Path | str,
    shots: int,
    seed: int,
    fewshot: FewShot,
    *,
    overwrite: bool = False,
) -> tuple[Path, Path]:
    """Write the two lists in our form; returns their paths. An equal file is left as it is.

    Raises:
        DataError: when a file with other content is there and not `overwrite`. It may be a
            published list.
    """
    paths = tuple(fewshot_path(folder, shots, seed, part) for part in PARTS)
    texts = [
        _to_text(dataset, shots, seed, part, examples)
        for part, examples in zip(PARTS, fewshot, strict=True)
    ]
    # Both are looked at before one is written: no pair of lists from two sources.
    changed = [
        (path, text)
        for path, text in zip(paths, texts, strict=True)
        if not path.is_file() or path.read_bytes() != text.encode()
    ]
    for path, _ in changed:
        if path.is_file() and not overwrite:
            raise DataError(
                f"{path} is there with other content. Choose another folder, or overwrite it."
            )
    for path, text in changed:
        write_atomically(path, text)
    return paths[0], paths[1]


def make(
    dataset: Dataset,
    folder: Path | str,
    *,
    shots: Sequence[int] = SHOTS,
    seeds: Sequence[int] = SEEDS,
    allow_fewer: bool = False,
    overwrite: bool = False,
) -> tuple[Path, ...]:
    """Draw and write the lists for every number of shots and seed; returns the files' paths.

    Raises:
        UsageError: for a number of shots below 1.
        DataError: when a class has too few images and not `allow_fewer`, or as `write_fewshot`.
    """
    paths: list[Path] = []
    for count in shots:
        for seed in seeds:
            drawn = sample_shots(dataset, count, seed, allow_fewer=allow_fewer)
            paths += write_fewshot(dataset, folder, count, seed, drawn, overwrite=overwrite)
    return tuple(paths)


def verify(
    dataset: Dataset,
    folder: Path | str,
    *,
    shots: Sequence[int] = SHOTS,
    seeds: Sequence[int] = SEEDS,
    allow_fewer: bool = False,
) -> tuple[FewShotCheck, ...]:
    """Draw every list again and compare it with its file, of either form.

    `damaged`: the file does not match its own hash, cannot be read, or lists images or labels that
    the dataset does not have. `differs`: a sound list of other images than the rule draws, which
    for a published list is a fact worth knowing, not a fault.

    Raises:
        UsageError, DataError: as `sample_shots`.
    """
    return tuple(
        _compare(dataset, fewshot_path(folder, count, seed, part), part, count, seed, expected)
        for count in shots
        for seed in seeds
        for part, expected in zip(
            PARTS, sample_shots(dataset, count, seed, allow_fewer=allow_fewer), strict=True
        )
    )


def _compare(
    dataset: Dataset,
    path: Path,
    part: Part,
    shots: int,
    seed: int,
    expected: tuple[Example, ...],
) -> FewShotCheck:
    if not path.is_file():
        # An empty list needs no file: 2SFS has none for ImageNet's validation.
        return FewShotCheck(path, "missing" if expected else "ok")
    try:
        found = _read_list(dataset, path, part, shots, seed)
    except DataError as error:
        return FewShotCheck(path, "damaged", str(error))
    if found == expected:
        return FewShotCheck(path, "ok")
    keys = {example.key for example in expected}
    shared = sum(example.key in keys for example in found)
    if shared == len(expected) == len(found):
        return FewShotCheck(path, "differs", "the same images in another order")
    return FewShotCheck(
        path,
        "differs",
        f"{shared} of its {len(found)} images are among the {len(expected)} that the rule draws",
    )


def _to_text(
    dataset: Dataset, shots: int, seed: int, part: Part, examples: Sequence[Example]
) -> str:
    body = "".join(
        _json_line(
            {
                "path": example.key,
                "label": example.label,
                "classname": dataset.classnames[example.label],
            }
        )
        for example in examples
    )
    header = {
        "format": FORMAT,
        "dataset": dataset.name,
        "shots": shots,
        "seed": seed,
        "part": part,
        "sha256": hashlib.sha256(body.encode()).hexdigest(),
    }
    return _json_line(header) + body


def _json_line(values: dict[str, Any]) -> str:
    return json.dumps(values, ensure_ascii=False) + "\n"


def _read_list(
    dataset: Dataset, path: Path, part: Part, shots: int, seed: int
) -> tuple[Example, ...]:
    try:
        text = path.read_text(encoding="utf-8")
        # Not splitlines: it also breaks at characters that JSON allows within text.
        lines = [parse_json(line) for line in text.split("\n") if line.strip()]
    except (OSError, ValueError) as error:
        raise DataError(f"The few-shot list {path} cannot be read: {error}") from error
    if not all(isinstance(line, dict) for line in lines):
        raise DataError(f"The few-shot list {path} must hold one JSON object a line.")
    if lines and "format" in lines[0]:
        _check_header(lines[0], text, path, dataset, part, shots, seed)
        records = [
            (line.get("path"), line.get("label"), line.get("classname")) for line in lines[1:]
        ]
    else:
        records = [
            (_key_of(dataset, line.get("_impath")), line.get("_label"), line.get("_classname"))
            for line in lines
        ]
    known = {example.key: example for example in getattr(dataset, part)}
    examples = tuple(_find(dataset, path, part, known, record) for record in records)
    if len({example.key for example in examples}) != len(examples):
        raise DataError(f"The few-shot list {path} names an image twice.")
    if part == "train" and not examples:
        raise DataError(f"The few-shot list {path} is empty.")
    return examples


def _check_header(
    header: dict[str, Any],
    text: str,
    path: Path,
    dataset: Dataset,
    part: Part,
    shots: int,
    seed: int,
) -> None:
    expected = {
        "format": FORMAT,
        "dataset": dataset.name,
        "shots": shots,
        "seed": seed,
        "part": part,
    }
    for key, value in expected.items():
        if header.get(key) != value:
            raise DataError(
                f"The few-shot list {path} is for {key} {header.get(key)!r}, not {value!r}."
            )
    body = text.partition("\n")[2]
    if hashlib.sha256(body.encode()).hexdigest() != header.get("sha256"):
        raise DataError(
            f"The few-shot list {path} does not match its own hash: it was edited or cut off. "
            "Make it again."
        )


def _key_of(dataset: Dataset, impath: Any) -> Any:
    """The image's key from a path relative to the data root, as the published lists have it."""
    try:
        benchmark = find_benchmark(dataset.name)
    except UsageError:
        return impath
    if not isinstance(impath, str):
        return impath
    prefix = "/".join(part for part in (benchmark.folder, benchmark.images) if part) + "/"
    # Some dumps have the author's data root in front: what counts is what follows our folder.
    _, found, key = f"/{impath}".partition(f"/{prefix}")
    return key if found else impath


def _find(
    dataset: Dataset,
    path: Path,
    part: Part,
    known: dict[str, Example],
    record: tuple[Any, Any, Any],
) -> Example:
    """The dataset's own example of a record, which must agree on label and class name."""
    key, label, classname = record
    example = known.get(key) if isinstance(key, str) else None
    if example is None:
        raise DataError(
            f"The few-shot list {path} names {key!r}, which is not among the {part} images of "
            f"{dataset.name}. Was it made for another split?"
        )
    name = dataset.classnames[example.label]
    same_name = isinstance(classname, str) and (
        classname.replace("_", " ") == name.replace("_", " ")
    )
    if label != example.label or not same_name:
        raise DataError(
            f"The few-shot list {path} gives {key} the label {label!r} ({classname!r}); "
            f"{dataset.name} has {example.label} ({name!r})."
        )
    return example
