"""By which lists a published split is recognised, wherever a split comes from.

Source: CoOp's few-shot lists (Zhou et al., IJCV 2022), drawn from its split files, as published in
`indices/` of https://github.com/linzhiqiu/cross_modal_adaptation. A list of 16 shots depends on
which training images a class has and on their order, so that three of them leave no other split.
"""

from shotfit.data.dataset import Dataset, list_hash
from shotfit.data.task import sample_shots

SHOTS, SEEDS = 16, (1, 2, 3)
DIGITS = 12
LISTS = {
    "caltech101": "e60a836bd33c 62be9f804c23 8c465c68bff4",
    "dtd": "daf3b28e531f a34259006a2a d4a9dc52a372",
    "eurosat": "ad260707da91 212e6c881322 9dad8ac01841",
    "oxford_flowers": "ea366f552e24 3966d8c77019 d027071e2f77",
    "oxford_pets": "711e62ca7ba4 3ecc09fd23ef 45933e694768",
    "stanford_cars": "f7d56096c792 c8392ec0f0d4 d5d533f8b5c5",
    "ucf101": "b88bd6d2db74 a510bb0001f0 6bfebd6fbe08",
}
"""First digits of `list_hash` of the training lists with `SHOTS` images of a class, by seed."""


def has_published_lists(dataset: Dataset) -> bool | None:
    """Whether the published lists are drawn from this split; None where none are known."""
    expected = LISTS.get(dataset.name)
    if expected is None:
        return None
    found = (sample_shots(dataset, SHOTS, seed, allow_fewer=True)[0] for seed in SEEDS)
    return [list_hash(examples)[:DIGITS] for examples in found] == expected.split()
