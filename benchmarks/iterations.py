"""What an iteration of every method costs, as a multiple of LayerNorm's at the same batch size.

    python benchmarks/iterations.py [--write docs/comparison.md]

The page names the command that was given, so that it is the one of the numbers beside it.

On the embedded model, fp32, one thread. Every round measures all methods one after the other, each
beside LayerNorm in the same round; the ratio is the median over rounds of the ratio within a round,
so that a machine that slows down in between does not count. Times are of the processor, not of the
wall: other work on the machine hardly adds to them.
"""

import argparse
import dataclasses
import os
import shlex
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from page import put

from shotfit.backbone import Backbone
from shotfit.data.sources import load_dataset
from shotfit.data.task import make_task
from shotfit.experiment import support_set, task_facts
from shotfit.methods import get_method, list_methods
from shotfit.plan import plan
from shotfit.recipe import named_recipe
from shotfit.system.memory import reused_memory
from shotfit.training.loop import train


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--task", default="activities")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=6, help="of a round, the first left out")
    parser.add_argument("--write", type=Path, help="page to put the table into")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with reused_memory():
        text = table(measure(options), options, sys.argv[1:])
    if options.write is None:
        print(text)
        return
    put(options.write, "iterations", text)


def measure(options: argparse.Namespace) -> dict[str, list[float]]:
    """Seconds of an iteration by method (and phase), one number a round."""
    seconds: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        for name in list_methods():
            # With trained keys, tip_adapter has iterations and its published name.
            shown = "tip_adapter_f" if name == "tip_adapter" else name
            for label, value in one_round(shown, options).items():
                seconds.setdefault(label, []).append(value)
    return seconds


def one_round(name: str, options: argparse.Namespace) -> dict[str, float]:
    """The median iteration of each phase; nothing for methods that take no training step."""
    task = make_task(load_dataset("demo", name=options.task), "base_to_novel", 4, 1)
    backbone = Backbone.from_pretrained("iconclip")
    recipe = named_recipe(name)
    (_, config, trainings) = plan(recipe, task_facts(task))[0]
    support = support_set(task.support, backbone, 1)
    method = get_method(recipe.stages[0].method)(backbone, config, task.support.template)
    if trainings:
        method.setup(support)
    found = {}
    for phase, training in enumerate(trainings):
        method.begin_round(phase)
        few = dataclasses.replace(
            training, iterations=options.iterations, epochs=None, batch_size=options.batch_size
        )
        times = [time.process_time()]
        for _ in train(method, support, few):
            times.append(time.process_time())
        steps = [after - before for before, after in zip(times[1:], times[2:], strict=False)]
        label = name if len(trainings) == 1 else f"{name}, phase {phase + 1}"
        found[label] = statistics.median(steps)
    return found


def table(
    seconds: dict[str, list[float]], options: argparse.Namespace, arguments: Sequence[str]
) -> str:
    """Markdown: milliseconds, and the ratio to LayerNorm, cheapest first.

    `arguments` are those of the command that measured, which stands above the table.
    """
    base = seconds["layernorm"]
    ratios = {
        label: statistics.median(a / b for a, b in zip(values, base, strict=True))
        for label, values in seconds.items()
    }
    lines = [
        f"`{shlex.join(['python', 'benchmarks/iterations.py', *arguments])}`:",
        "",
        f"An iteration with {options.batch_size} images and the base classes of {options.task},",
        f"fp32, one thread of {processor()}, PyTorch {torch.__version__}; median of "
        f"{options.rounds} rounds.",
        "A ratio is the median of the rounds' own ratios: not the quotient of the times beside it.",
        "",
        "| method | ms of processor time | times LayerNorm |",
        "| --- | ---: | ---: |",
    ]
    for label in sorted(ratios, key=lambda label: ratios[label]):
        milliseconds = 1000 * statistics.median(seconds[label])
        lines.append(f"| {label} | {milliseconds:.1f} | {ratios[label]:.2f} |")
    return "\n".join(lines)


def processor() -> str:
    """The processor's name, as far as the system tells."""
    path = Path("/proc/cpuinfo")
    names = [line for line in path.read_text().splitlines() if line.startswith("model name")]
    return f"{names[0].partition(':')[2].strip()} ({os.cpu_count()} cores)" if names else "this CPU"


if __name__ == "__main__":
    main()
