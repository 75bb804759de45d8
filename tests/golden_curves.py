"""Golden curves: ten losses of every method on the tiny model, as text in `tests/golden/`.

`make golden` records those that are missing or, with `NAME=maple`, that one anew. A refactor leaves
them as they are; whoever changes a number says why, with numbers, in LOG.md.
"""

import dataclasses
import sys
from pathlib import Path

import torch
from conftest import make_backbone, make_support, shapes_dataset

from shotfit.data.task import make_task
from shotfit.methods import get_method, list_methods
from shotfit.methods.linear import LinearClassifier
from shotfit.methods.published import TaskFacts
from shotfit.training.loop import train

FOLDER = Path(__file__).parent / "golden"
FACTS = TaskFacts("shapes", "base_to_novel", shots=4, classes=3, images=12)
ITERATIONS = 5


def record(name: str) -> str:
    """Trainable parameters and losses per phase, and those of a second stage where there is one."""
    method_class = get_method(name)
    support = make_support(make_task(shapes_dataset(), "base_to_novel", 4, 1))
    generator = torch.Generator().manual_seed(1)
    method = method_class(
        make_backbone(), method_class.published_config(FACTS), generator=generator
    )
    method.setup(support)
    lines = []
    for phase, training in enumerate(method_class.published_training(FACTS)):
        method.begin_round(phase)
        lines += curve(f"phase {phase + 1}", method, support, training)
    if method_class.first_fraction is not None:
        method = LinearClassifier(method)
        method.setup(support)
        (training,) = LinearClassifier.published_training(FACTS)
        lines += curve("linear", method, support, training)
    with torch.no_grad():
        method.eval()
        pixels = torch.linspace(-1, 1, 3 * 32 * 32).view(1, 3, 32, 32)
        logits = method(pixels, method.encode_classes(support.classnames))[0]
    lines.append("logits " + " ".join(f"{value:.9g}" for value in logits.tolist()))
    return "\n".join(lines) + "\n"


def curve(title, method, support, training):
    count = sum(p.numel() for p in method.parameters() if p.requires_grad)
    training = dataclasses.replace(training, iterations=ITERATIONS, epochs=None)
    losses = [f"{step.loss:.9g}" for step in train(method, support, training)]
    return [f"{title} parameters {count}", f"{title} losses " + " ".join(losses)]


if __name__ == "__main__":
    wanted = sys.argv[1:] or [n for n in list_methods() if not (FOLDER / f"{n}.txt").exists()]
    for name in wanted:
        (FOLDER / f"{name}.txt").write_text(record(name))
        print(f"recorded {name}")
