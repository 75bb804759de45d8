"""Tasks: what one few-shot run sees of a dataset, by setting, shots and seed."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from shotfit.data.dataset import Dataset, Example, Split, group_by_label, select_classes, split_hash
from shotfit.errors import DataError, UsageError

Setting = Literal["base_to_novel", "all_to_all"]


SETTINGS: tuple[Setting, ...] = ("base_to_novel", "all_to_all")


@dataclass(frozen=True)
class Task:
    """What one run may see (`support`, `validation`) and what it is measured on (`tests`).

    `tests` has the key "all", or the keys "base" and "novel"; each split has its own class names
    and labels counted from 0.
    """

    name: str
    setting: Setting
    shots: int | None
    seed: int
    support: Split
    validation: Split
    tests: Mapping[str, Split]

    @property
    def split_hash(self) -> str:
        """Twelve hex digits that change when a support or test image, label or name does."""
        return split_hash(self.support, *(self.tests[key] for key in sorted(self.tests)))


def fewer_than_shots(dataset: Dataset, label: int, count: int, shots: int) -> str:
    """What is said of a class with fewer training images than are asked for."""
    return (
        f"Class {dataset.classnames[label]!r} of {dataset.name} has {count} training "
        f"image{'s' if count != 1 else ''}, fewer than the {shots} shots asked for."
    )


def sample_shots(
    dataset: Dataset, shots: int, seed: int, *, allow_fewer: bool = False
) -> tuple[tuple[Example, ...], tuple[Example, ...]]:
    """`shots` training and min(shots, 4) validation images of every class of `dataset`.

    The rule of CoOp (Dassl `generate_fewshot_dataset`): one Python random stream seeded with
    `seed`; classes in the order of their first appearance; training before validation. It
    reproduces the published lists of the datasets whose split file is fixed.

    Raises:
        UsageError: when `shots` is not positive.
        DataError: when a class has fewer training images than `shots` and not `allow_fewer`.
    """
    if shots < 1:
        raise UsageError(f"The number of shots must be at least 1, got {shots}.")
    stream = random.Random(seed)
    groups = group_by_label(dataset.train)
    for label, items in groups.items():
        if len(items) < shots and not allow_fewer:
            raise DataError(fewer_than_shots(dataset, label, len(items), shots))
    train = _draw(groups, shots, stream)
    # Validation is never a reason to refuse a run: what is there is taken.
    val = _draw(group_by_label(dataset.val), min(shots, 4), stream)
    return train, val


def _draw(groups: dict[int, list[Example]], shots: int, stream: random.Random) -> tuple:
    drawn: list[Example] = []
    for items in groups.values():
        drawn.extend(stream.sample(items, shots) if len(items) >= shots else items)
    return tuple(drawn)


def split_base_novel(classes: int) -> tuple[range, range]:
    """The labels of the base half, the first ceil(K/2), and of the novel half (CoCoOp's rule)."""
    base = (classes + 1) // 2
    return range(base), range(base, classes)


def make_task(
    dataset: Dataset,
    setting: Setting,
    shots: int | None,
    seed: int,
    *,
    fewshot: tuple[tuple[Example, ...], tuple[Example, ...]] | None = None,
    allow_fewer: bool = False,
) -> Task:
    """The few-shot task of a dataset in a setting. No code after this line asks for the setting.

    Shots are drawn from all classes before the base half is taken, so both settings train on the
    same images. `shots=None` takes every training image; `fewshot` gives published training and
    validation lists instead of drawing.

    Raises:
        UsageError: for an unknown setting, or fewer than two classes in base-to-novel.
        DataError: when a class has too few images, or there are test images of one half only.
            Without any test images a task can be trained on, not measured.
    """
    if setting not in SETTINGS:
        raise UsageError(f"Unknown setting {setting!r}. Known: {', '.join(SETTINGS)}.")
    if fewshot is not None:
        train, val = fewshot
    elif shots is None:
        train, val = dataset.train, dataset.val
    else:
        train, val = sample_shots(dataset, shots, seed, allow_fewer=allow_fewer)
    classes = len(dataset.classnames)
    if setting == "all_to_all":
        halves = {"all": range(classes)}
    else:
        if classes < 2:
            raise UsageError(f"{dataset.name} has {classes} class; base-to-novel needs two.")
        base, novel = split_base_novel(classes)
        halves = {"base": base, "novel": novel}
    trained = next(iter(halves.values()))
    tests = {key: select_classes(dataset.test, dataset, half) for key, half in halves.items()}
    for key, split in tests.items():
        if dataset.test and not split.examples:
            raise DataError(f"{dataset.name} has no test images of the {key} classes.")
    return Task(
        name=dataset.name,
        setting=setting,
        shots=shots,
        seed=seed,
        support=select_classes(train, dataset, trained),
        validation=select_classes(val, dataset, trained),
        tests=tests,
    )
