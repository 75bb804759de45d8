"""What the fitted level is worth to methods of one stage, beside their published scores.

    python benchmarks/one_stage.py --methods layernorm --tasks food people
    python benchmarks/one_stage.py --methods instant --tasks all --seeds 1 2 3 --means

Four shots of the base classes of a task, 20 iterations a shot where there is training; test images
of both halves are answered among all names, those of base classes also among these alone, and with
100 names of other tasks. `--means` prints one row for each method and rule, over tasks and seeds.
"""

import argparse
import random
from collections.abc import Sequence

import torch
from torch import Tensor

from shotfit.averages import harmonic_mean, mean
from shotfit.classifier import FewShotClassifier
from shotfit.data.dataset import Dataset, Split
from shotfit.data.sources import load_dataset
from shotfit.data.sources.demo import list_tasks
from shotfit.data.task import make_task
from shotfit.presets import PRESETS
from shotfit.recipe import named_recipe

UNRELATED = 100
HEAD = (
    "method",
    "task",
    "rule",
    "base",
    "novel",
    "joint",
    "HM",
    "best constant",
    "base alone",
    "lost",
)


def main() -> None:
    """Parses the command line; prints a row for each method, task and rule."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--methods", nargs="+", default=["layernorm"])
    parser.add_argument("--tasks", nargs="+", default=["food", "people"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--means", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    tasks = list_tasks() if options.tasks == ["all"] else options.tasks
    print(f"| {' | '.join(HEAD)} |\n{'|---' * len(HEAD)}|")
    for method in options.methods:
        rows: dict[str, list[tuple[float, ...]]] = {}
        for name, seed in ((name, seed) for name in tasks for seed in options.seeds):
            for rule, figures in compared(method, name, seed).items():
                rows.setdefault(rule, []).append(figures)
                if not options.means:
                    show(method, f"{name}, seed {seed}", rule, figures)
        for rule, figures in rows.items():
            show(
                method,
                f"mean of {len(figures)}",
                rule,
                [mean(part) for part in zip(*figures, strict=True)],
            )


def show(method: str, task: str, rule: str, figures: Sequence[float]) -> None:
    """A row."""
    cells = (method, task, rule, *(f"{value:.1f}" for value in figures))
    print(f"| {' | '.join(cells)} |", flush=True)


def compared(method: str, name: str, seed: int) -> dict[str, tuple[float, ...]]:
    """The figures of a method on a task, as published and fitted."""
    dataset = load_dataset("demo", name=name)
    task = make_task(dataset, "base_to_novel", 4, seed)
    if method in PRESETS:
        recipe = PRESETS[method].recipe
    else:
        recipe = named_recipe(method, iters_per_shot=20, budget="shared")
    shots = Dataset(name, task.support.classnames, task.support.examples)
    classifier = FewShotClassifier(method=recipe, seed=seed).fit(shots, verbose=False)
    base, novel = task.tests["base"], task.tests["novel"]
    names, known = [*base.classnames, *novel.classnames], len(base.classnames)
    rows = {}
    for rule in ("published", "fitted"):
        classifier.published_scores = rule == "published"
        of_base, of_novel = (logits(classifier, part, names) for part in (base, novel))
        pair = shares(of_base, of_novel, base, novel, known, 0.0)
        best = max(
            harmonic_mean(*shares(of_base, of_novel, base, novel, known, constant / 10))
            for constant in range(-60, 61)
        )
        alone = right(logits(classifier, base, names[:known]), base.labels)
        among = [*names[:known], *unrelated(name, dataset.classnames)]
        lost = alone - right(logits(classifier, base, among), base.labels)
        counts = len(base.labels), len(novel.labels)
        joint = sum(share * count for share, count in zip(pair, counts, strict=True)) / sum(counts)
        rows[classifier.rule] = (*pair, joint, harmonic_mean(*pair), best, alone, lost)
    return rows


def logits(classifier: FewShotClassifier, split: Split, names: list[str]) -> Tensor:
    """Of a split's images, among these names."""
    return torch.cat(list(classifier.iter_logits([e.image for e in split.examples], names)))


def shares(
    of_base: Tensor, of_novel: Tensor, base: Split, novel: Split, known: int, constant: float
) -> tuple[float, float]:
    """Percent right of base and of novel images, with a constant added to trained classes."""
    level = torch.zeros(of_base.shape[1])
    level[:known] = constant
    labels = [known + label for label in novel.labels]
    return right(of_base + level, base.labels), right(of_novel + level, labels)


def right(scores: Tensor, labels: list[int] | tuple[int, ...]) -> float:
    """Percent."""
    return 100 * (scores.argmax(dim=1) == torch.tensor(labels)).float().mean().item()


def unrelated(task: str, own: tuple[str, ...]) -> list[str]:
    """Names of the other tasks, in an order of their own."""
    others = [name for other in list_tasks() if other != task for name in names_of(other)]
    random.Random(1).shuffle(others)
    return [name for name in others if name not in own][:UNRELATED]


def names_of(task: str) -> tuple[str, ...]:
    """The classes of an embedded task."""
    return load_dataset("demo", name=task).classnames


if __name__ == "__main__":
    main()
