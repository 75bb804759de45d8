"""Test images for a dataset that has none, taken from its training images."""

import random
from dataclasses import replace

from shotfit.data.dataset import Dataset, Example, group_by_label
from shotfit.data.task import sample_shots

SHARE = 0.2
FEWEST = 20
"""Images of a class from which on some can be spared: 16 stay, the most shots of the protocol."""


def hold_out(dataset: Dataset, shots: int | None, seed: int) -> Dataset:
    """The dataset with test images, where it has none and enough images for both.

    With a number of shots, all images that are not drawn by this seed. Without, a fifth of each
    class, drawn by the seed, when every class has at least `FEWEST`. Otherwise as it is: then only
    cross-validation says how good a classifier is.

    Raises:
        UsageError, DataError: as `sample_shots`.
    """
    if dataset.test or not dataset.train:
        return dataset
    if shots is not None:
        drawn = {id(example) for example in sample_shots(dataset, shots, seed)[0]}
        test = tuple(example for example in dataset.train if id(example) not in drawn)
        return replace(dataset, test=test) if _every_class(dataset, test) else dataset
    groups = group_by_label(dataset.train)
    if min(map(len, groups.values())) < FEWEST:
        return dataset
    # Its own stream: the shots that a seed draws stay what they are.
    stream = random.Random(f"hold-out {seed}")
    held = {
        id(example)
        for images in groups.values()
        for example in stream.sample(images, round(SHARE * len(images)))
    }
    return replace(
        dataset,
        train=tuple(example for example in dataset.train if id(example) not in held),
        test=tuple(example for example in dataset.train if id(example) in held),
    )


def _every_class(dataset: Dataset, test: tuple[Example, ...]) -> bool:
    labels = {example.label for example in test}
    return all(label in labels for label in {example.label for example in dataset.train})
