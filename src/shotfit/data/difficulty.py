"""Support sets that are harder than the protocol's: unbalanced, or wrongly labelled in part.

Test images are left as they are. Both are seeded, so that every method of a run sees the same.
"""

import dataclasses
import random

from shotfit.data.dataset import Split, group_by_label
from shotfit.errors import UsageError


def unbalanced(split: Split, ratio: float, seed: int) -> Split:
    """Shots that fall from class to class, the first class keeping `ratio` times as many as the
    last (long tail: Cao et al., Learning Imbalanced Datasets with LDAM, NeurIPS 2019, section 4).

    Which classes are frequent is drawn; of K classes the one at place r keeps its first
    round(k ratio^(-r / (K - 1))) images, at least one.

    Raises:
        UsageError: for a ratio below 1.
    """
    if not ratio >= 1:
        raise UsageError(f"The imbalance is a ratio of at least 1, got {ratio:g}.")
    groups = group_by_label(split.examples)
    order = sorted(groups)
    random.Random(f"imbalance {seed}").shuffle(order)
    last = max(len(order) - 1, 1)
    kept = {
        id(example)
        for place, label in enumerate(order)
        for example in groups[label][: max(1, round(len(groups[label]) * ratio ** (-place / last)))]
    }
    examples = tuple(example for example in split.examples if id(example) in kept)
    return dataclasses.replace(split, examples=examples)


def wrongly_labelled(split: Split, share: float, seed: int) -> Split:
    """round(share n) of the n images with the label of another class, drawn uniformly (symmetric
    label noise).

    Raises:
        UsageError: for a share that is not in 0 to 1, or a single class.
    """
    if not 0 <= share <= 1:
        raise UsageError(f"The share of wrong labels is between 0 and 1, got {share:g}.")
    classes = len(split.classnames)
    if share and classes < 2:
        raise UsageError("Wrong labels need a second class.")
    stream = random.Random(f"wrong labels {seed}")
    examples = list(split.examples)
    for number in stream.sample(range(len(examples)), round(share * len(examples))):
        example = examples[number]
        others = [label for label in range(classes) if label != example.label]
        examples[number] = dataclasses.replace(example, label=stream.choice(others))
    return dataclasses.replace(split, examples=tuple(examples))
