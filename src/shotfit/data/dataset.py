"""Datasets: lists of labelled images, as values.

A class is an index with a name, never a name alone: two classes may share a name and keep their
own labels. Everything here is a frozen value; no file is opened.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shotfit.data.template import TEMPLATE, Words

if TYPE_CHECKING:  # its module loads numpy, which lists of images do without
    from shotfit.data.images import ImageSource


@dataclass(frozen=True)
class Example:
    """One labelled image.

    `key` names the image within its dataset (a relative path) and is what split files list;
    `image` is where the pixels are, such as a file, its bytes, or a decoded picture.
    """

    key: str
    label: int
    image: "ImageSource" = field(compare=False, repr=False)


@dataclass(frozen=True)
class Split:
    """Labelled images with the names of their classes: `classnames[example.label]`.

    The support set of a run and its test sets are splits. `template` turns a class name into a
    prompt, or several (`Words`). `reduced` images are learned from at the nearest sufficient
    reduction of their size (`DecodedImages`); the test-time transform always sees all of them.
    """

    classnames: tuple[str, ...]
    examples: tuple[Example, ...]
    template: str | Words = TEMPLATE
    reduced: bool = field(default=False, kw_only=True)

    @property
    def labels(self) -> tuple[int, ...]:
        """The label of every example, in order."""
        return tuple(example.label for example in self.examples)


@dataclass(frozen=True)
class Dataset:
    """A named dataset with its three lists of examples; `val` and `test` may be empty."""

    name: str
    classnames: tuple[str, ...]
    train: tuple[Example, ...]
    val: tuple[Example, ...] = ()
    test: tuple[Example, ...] = ()
    template: str | Words = TEMPLATE
    reduced: bool = field(default=False, kw_only=True)


def split_hash(*splits: Split) -> str:
    """Twelve hex digits of the SHA-256 over names, keys and labels of the splits, in order."""
    lines = [
        [list(split.classnames), [[example.key, example.label] for example in split.examples]]
        for split in splits
    ]
    return hashlib.sha256(json.dumps(lines, ensure_ascii=True).encode()).hexdigest()[:12]


def list_hash(examples: Sequence[Example]) -> str:
    """SHA-256 in hex over the newline-joined keys: equal for equal images in equal order."""
    return hashlib.sha256("\n".join(example.key for example in examples).encode()).hexdigest()


def group_by_label(examples: Sequence[Example]) -> dict[int, list[Example]]:
    """The examples of each label, the labels in order of their first appearance."""
    groups: dict[int, list[Example]] = {}
    for example in examples:
        groups.setdefault(example.label, []).append(example)
    return groups


def select_classes(
    examples: Sequence[Example], source: Dataset | Split, labels: Sequence[int]
) -> Split:
    """The examples whose label is among `labels`, relabelled in their order, with their names."""
    position = {label: index for index, label in enumerate(labels)}
    return Split(
        classnames=tuple(source.classnames[label] for label in labels),
        examples=tuple(
            Example(example.key, position[example.label], example.image)
            for example in examples
            if example.label in position
        ),
        template=source.template,
        reduced=source.reduced,
    )
