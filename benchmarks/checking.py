"""What the model-based and picture-based parts of `shotfit check` are worth on the embedded suite.

python benchmarks/checking.py                            # some two minutes of one core
python benchmarks/checking.py --write docs/checking.md   # and the tables of the page
"""

import argparse
import io
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from page import put
from PIL import Image
from torch import Tensor

from shotfit.backbone import Backbone
from shotfit.data.dataset import Dataset, Example
from shotfit.data.image_looks import APART, BITS, look_at, near_duplicates
from shotfit.data.images import open_image
from shotfit.data.prefetch import prepared_batches
from shotfit.data.sources import load_dataset
from shotfit.data.sources.demo import list_tasks
from shotfit.evaluation.confusable import alike_bound, everyday_prompts, pair_cosines
from shotfit.evaluation.mislabelled import MARGIN, suspects
from shotfit.methods.base import Method

SHARES = (0.0, 0.02, 0.05, 0.1, 0.2)
MARGINS = (2.0, 3.0, MARGIN, 5.0, 6.0)
SEEDS = (1, 2, 3)
CLASSES = (2, 5, 20, None)
COPIED = 40
"""Images of each task that are copied."""


@dataclass(frozen=True)
class Task:
    """An embedded task: its images' and its names' unit embeddings, and the labels."""

    name: str
    images: Tensor
    labels: tuple[int, ...]
    names: Tensor


@torch.inference_mode()
def embedded(dataset: Dataset, method: Method) -> Task:
    """All images of a task, training first."""
    examples = (*dataset.train, *dataset.test)
    batches = prepared_batches(((e.image, None) for e in examples), method.backbone.image_spec, 64)
    images = torch.cat([method.encode_images(batch.pixels) for batch in batches])
    names = method.encode_classes(dataset.classnames).weight
    return Task(dataset.name, images, tuple(e.label for e in examples), names)


def wrong_labels(labels: list[int], classes: int, share: float, seed: int) -> dict[int, int]:
    """Places whose label is to be another, drawn among all classes, with that label."""
    draw = random.Random(f"wrong {seed}")
    places = draw.sample(range(len(labels)), round(share * len(labels)))
    others = [[c for c in range(classes) if c != labels[place]] for place in places]
    return {place: draw.choice(other) for place, other in zip(places, others, strict=True)}


def mislabelled(
    tasks: list[Task], training: dict[str, int], share: float, margin: float, most: int | None
) -> list[str]:
    """Of the training images of all tasks and seeds: precision, recall, how many of those found are
    given their right class, and the share of right ones that are suspected."""
    hits = found = wrong = named = right = 0
    for task in tasks:
        classes = min(most or len(task.names), len(task.names))
        own = [p for p in range(training[task.name]) if task.labels[p] < classes]
        truth = [task.labels[place] for place in own]
        for seed in SEEDS:
            changed = wrong_labels(truth, classes, share, seed)
            labels = [changed.get(place, label) for place, label in enumerate(truth)]
            told = suspects(task.images[own], labels, task.names[:classes], margin)
            good = [one for one in told if one.place in changed]
            hits, found, wrong = hits + len(good), found + len(told), wrong + len(changed)
            named += sum(one.looks_like == truth[one.place] for one in good)
            right += len(truth) - len(changed)
    false = f"{100 * (found - hits) / right:.1f} % of {right:,}"
    if not wrong:
        return ["", "", "", false]
    return [
        f"{100 * hits / found:.0f} % of {found:,}",
        f"{100 * hits / wrong:.0f} % of {wrong:,}",
        f"{100 * named / hits:.0f} %",
        false,
    ]


def confused(tasks: list[Task], bound: float) -> tuple[list[list[str]], list[float]]:
    """By the cosine of two names: pairs, and how many images of one are nearer to the other's
    name."""
    edges = [-1.0, 0.5 * bound, bound, (1 + bound) / 2, 1.01]
    totals = [[0, 0, 0] for _ in edges[1:]]
    for task in tasks:
        scores, labels = task.images @ task.names.T, torch.tensor(task.labels)
        (firsts, seconds), cosines = pair_cosines(task.names)
        for one, other, cosine in zip(
            firsts.tolist(), seconds.tolist(), cosines.tolist(), strict=True
        ):
            row = totals[max(n for n, edge in enumerate(edges[:-1]) if cosine >= edge)]
            row[0] += 1
            for mine, theirs in ((one, other), (other, one)):
                images = scores[labels == mine]
                row[1] += len(images)
                row[2] += int((images[:, theirs] > images[:, mine]).sum())
    words = [
        f"below {edges[1]:.2f}",
        *(f"{low:.2f} to {high:.2f}" for low, high in zip(edges[1:3], edges[2:4], strict=True)),
        f"above {edges[3]:.2f}",
    ]
    rows = [
        [word, f"{pairs:,}", f"{images:,}", f"{100 * nearer / images:.1f} %"]
        for word, (pairs, images, nearer) in zip(words, totals, strict=True)
        if images
    ]
    below, above = (
        sum(t[2] for t in part) / max(1, sum(t[1] for t in part))
        for part in (totals[:2], totals[2:])
    )
    return rows, [below, above]


def jpeg(picture: Image.Image, quality: int) -> Image.Image:
    """The picture, compressed."""
    content = io.BytesIO()
    picture.save(content, "JPEG", quality=quality)
    return Image.open(io.BytesIO(content.getvalue())).convert("RGB")


def scaled(picture: Image.Image, factor: float) -> Image.Image:
    """The picture at another size."""
    size = (round(factor * picture.width), round(factor * picture.height))
    return picture.resize(size, Image.Resampling.BICUBIC)


COPIES = {
    "JPEG, quality 85": lambda picture: jpeg(picture, 85),
    "JPEG, quality 40": lambda picture: jpeg(picture, 40),
    "half the size": lambda picture: scaled(picture, 0.5),
    "twice the size": lambda picture: scaled(picture, 2),
    "half the size, then JPEG, quality 60": lambda picture: jpeg(scaled(picture, 0.5), 60),
    "4 % cut off each side": lambda picture: picture.crop(
        (
            picture.width // 25,
            picture.height // 25,
            picture.width - picture.width // 25,
            picture.height - picture.height // 25,
        )
    ),
}


def copies(datasets: list[Dataset]) -> tuple[list[list[str]], tuple[int, int, int]]:
    """How many copies of each kind are found; and of pairs of images with different names: how
    many there are, are told, and are told though their pixels differ."""
    found = dict.fromkeys(COPIES, 0)
    pairs = told = false = 0
    for dataset in datasets:
        chosen = random.Random(f"copies {dataset.name}").sample(dataset.train, COPIED)
        for example in chosen:
            picture = open_image(example.image)
            look = look_at(picture)
            for kind, change in COPIES.items():
                found[kind] += bool(near_duplicates([look, look_at(change(picture))]))
        for one, other in different(dataset.train):
            told += 1
            false += look_at(one.image).exact != look_at(other.image).exact
        count = len(dataset.train)
        pairs += count * (count - 1) // 2
    total = COPIED * len(datasets)
    rows = [[kind, f"{100 * hits / total:.0f} % of {total}"] for kind, hits in found.items()]
    return rows, (pairs, told, false)


def different(examples: tuple[Example, ...]) -> Iterator[tuple[Example, Example]]:
    """Pairs that look the same and have different labels."""
    looks = [look_at(example.image) for example in examples]
    for one, other in near_duplicates(looks):
        if examples[one].label != examples[other].label:
            yield examples[one], examples[other]


def table(head: list[str], rows: list[list[str]]) -> str:
    """A table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    """Measures, prints, and writes where it is asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backbone", default="iconclip")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    method = Method(Backbone.from_pretrained(options.backbone)).eval()
    datasets = [load_dataset("demo", name=name) for name in list_tasks()]
    tasks = [embedded(dataset, method) for dataset in datasets]
    texts = {
        "mislabelled": mislabelled_tables(tasks, {d.name: len(d.train) for d in datasets}),
        "confusable": confusable_table(tasks, method),
        "copies": copies_table(datasets),
    }
    for mark, text in texts.items():
        print(f"{mark}\n\n{text}\n")
        if options.write is not None:
            put(options.write, mark, text)


def mislabelled_tables(tasks: list[Task], training: dict[str, int]) -> str:
    """By the share of wrong labels, by the margin, and by the number of classes."""
    head = ["right suspicions", "wrong labels found", "their class told", "right labels suspected"]
    shares = [
        [f"{share:.0%}", *mislabelled(tasks, training, share, MARGIN, None)] for share in SHARES
    ]
    margins = [
        [f"{margin:g}", *mislabelled(tasks, training, 0.05, margin, None)] for margin in MARGINS
    ]
    classes = [
        [str(most or "all"), *mislabelled(tasks, training, 0.1, MARGIN, most)] for most in CLASSES
    ]
    return "\n\n".join(
        [
            table(["wrong labels", *head], shares),
            "By the margin, with 5 % of the labels wrong:",
            table(["margin", *head], margins),
            "With the first classes of each task alone, and 10 % of the labels wrong:",
            table(["classes", *head], classes),
        ]
    )


@torch.inference_mode()
def confusable_table(tasks: list[Task], method: Method) -> str:
    """By the cosine of names."""
    bound = alike_bound(method.backbone.encode_text, everyday_prompts(method.class_text))
    rows, (below, above) = confused(tasks, bound)
    return "\n\n".join(
        [
            f"The bound of this model is {bound:.2f}. Above it, {100 * above:.1f} % of images are "
            f"nearer to the other name than to their own, below it {100 * below:.1f} %: "
            f"{above / below:.1f} times as many.",
            table(["cosine", "pairs of names", "images", "nearer to the other name"], rows),
        ]
    )


def copies_table(datasets: list[Dataset]) -> str:
    """By the kind of copy."""
    rows, (pairs, told, false) = copies(datasets)
    return "\n\n".join(
        [
            table(["copy", "found"], rows),
            f"Of {pairs:,} pairs of training images, {told} with different names look the same "
            f"(at most {BITS} bits and {APART:g} grey levels apart), {told - false} of which are "
            "the same to the pixel.",
        ]
    )


if __name__ == "__main__":
    main()
