"""What an evaluation looks like on the terminal, as CSV, and as a file of predictions."""

import csv
import io
import json
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from shotfit.averages import Proportion
from shotfit.evaluation.evaluation import Evaluation
from shotfit.system.files import write_atomically
from shotfit.system.terminal import printable

MOST_CLASSES = 12
"""Classes up to which the terminal shows all of them, and the confusion matrix."""
WORST = 8
PARTS = {
    "base": "base classes, among base names",
    "novel": "novel classes, among novel names",
    "base_in_joint": "base images, all names",
    "novel_in_joint": "novel images, all names",
}


def show_evaluation(evaluation: Evaluation) -> None:
    """Prints the tables, and what was left out and why."""
    console = Console()
    for line in notes(evaluation):
        console.print(printable(line), highlight=False, markup=False)
    count = len(evaluation.labels)
    title = f"{evaluation.scored}, {count:,} of them, among {len(evaluation.names)} names"
    table = Table(title, "%", "95 % interval", show_edge=False)
    table.columns[1].justify = "right"
    for name, part in _accuracies(evaluation):
        table.add_row(name, f"{part.percent:.2f}", _interval(part))
    for name, value in _scores(evaluation):
        table.add_row(name, value, "")
    console.print(table)
    console.print(_classes(evaluation))
    if len(evaluation.names) <= MOST_CLASSES:
        console.print(_confusion(evaluation))
    else:
        for line in confused(evaluation):
            console.print(printable(line), highlight=False, markup=False)


def notes(evaluation: Evaluation) -> list[str]:
    """What a reader must know before the numbers."""
    found = []
    if evaluation.rule == "fitted":
        found.append("Scores: levels and temperatures fitted on the shots.")
    if evaluation.trained_on:
        found.append(
            f"{_images(evaluation.trained_on)} left out: the classifier was trained on them."
        )
    if evaluation.unknown:
        shown = ", ".join(map(str, evaluation.unknown[:MOST_CLASSES]))
        more = len(evaluation.unknown) - MOST_CLASSES
        rest = f" and {more} more" if more > 0 else ""
        found.append(f"Not among {evaluation.among}, left out: {shown}{rest}.")
    without = [one.name for one in evaluation.per_class if not one.accuracy.images]
    if without:
        shown = ", ".join(without[:MOST_CLASSES]) + (" …" if len(without) > MOST_CLASSES else "")
        found.append(f"Without test images, but among the answers: {shown}.")
    return found


def confused(evaluation: Evaluation, most: int = WORST) -> list[str]:
    """The pairs of classes that are confused most often, in words."""
    counts = evaluation.confusion.copy()
    counts[range(len(counts)), range(len(counts))] = 0
    order = counts.flatten().argsort(kind="stable")[::-1][:most]
    found = []
    for place in order:
        image, answer = divmod(int(place), len(counts))
        if not counts[image, answer]:
            break
        total = int(evaluation.confusion[image].sum())
        found.append(
            f"{counts[image, answer]} of {total} images of {evaluation.names[image]!r} were taken "
            f"for {evaluation.names[answer]!r}"
        )
    return found


def write_csv(evaluation: Evaluation, file: Path) -> None:
    """One line for all images, and one for each class, with intervals; in percent."""
    text = io.StringIO()
    columns = ("class", "kind", "images", "right", "accuracy", "low", "high", "f1", "zero_shot")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerow(
        ["", "all", *_numbers(evaluation.accuracy), f"{evaluation.macro_f1:.4f}"]
        + _percent(evaluation.zero_shot_accuracy)
    )
    for one in evaluation.per_class:
        kind = "trained" if one.trained else "novel"
        numbers = [*_numbers(one.accuracy), f"{one.f1:.4f}", *_percent(one.zero_shot)]
        writer.writerow([one.name, kind, *numbers])
    write_atomically(file, text.getvalue())


def write_predictions(evaluation: Evaluation, file: Path) -> None:
    """JSON lines: the names that the logits belong to, then an image each."""
    rows = [{"names": evaluation.names}, *evaluation.predictions()]
    write_atomically(file, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def _accuracies(evaluation: Evaluation) -> list[tuple[str, Proportion]]:
    rows = [("accuracy, all names", evaluation.accuracy)]
    rows += [
        (f"  {title}", evaluation.parts[key].accuracy)
        for key, title in PARTS.items()
        if key in evaluation.parts
    ]
    for name, part in (("top 5", evaluation.top5), ("zero-shot", evaluation.zero_shot_accuracy)):
        if part is not None:
            rows.append((name, part))
    return rows


def _scores(evaluation: Evaluation) -> list[tuple[str, str]]:
    metrics, joint = evaluation.metrics, evaluation.parts["joint"]
    names = {
        "harmonic_mean": "harmonic mean of base and novel",
        "joint_harmonic_mean": "harmonic mean, all names",
    }
    rows = [(title, f"{metrics[key]:.2f}") for key, title in names.items() if key in metrics]
    rows.append(("macro F1", f"{evaluation.macro_f1:.2f}"))
    error = f"calibration error ({joint.chance_error:.1f} by chance alone)"
    rows.append((error, f"{joint.calibration_error:.2f}"))
    return rows


def _classes(evaluation: Evaluation) -> Table:
    ranked = [one for one in evaluation.per_class if one.accuracy.images]
    title = "class"
    if len(ranked) > MOST_CLASSES:
        ranked = sorted(ranked, key=lambda one: one.accuracy.percent)[:WORST]
        title = f"the {WORST} worst classes"
    table = Table(title, "images", "%", "95 % interval", "F1", "zero-shot %", show_edge=False)
    for column in (1, 2, 4, 5):
        table.columns[column].justify = "right"
    for one in ranked:
        table.add_row(
            _shown(one.name) + ("" if one.trained else " (novel)"),
            str(one.accuracy.images),
            f"{one.accuracy.percent:.1f}",
            _interval(one.accuracy),
            f"{one.f1:.1f}",
            "" if one.zero_shot is None else f"{one.zero_shot.percent:.1f}",
        )
    return table


def _confusion(evaluation: Evaluation) -> Table:
    """Rows are the images' classes, columns the answers, by number."""
    table = Table("images of … taken for", show_edge=False)
    for number in range(len(evaluation.names)):
        table.add_column(str(number + 1), justify="right")
    for number, name in enumerate(evaluation.names):
        counts = [str(count) if count else "·" for count in evaluation.confusion[number]]
        table.add_row(f"{number + 1} {_shown(name)}", *counts)
    return table


def _shown(name: str) -> str:
    """A name as it is, whatever a terminal or a table would make of it."""
    return escape(printable(name))


def _images(count: int) -> str:
    return f"{count:,} image{'' if count == 1 else 's'}"


def _interval(part: Proportion) -> str:
    low, high = part.interval
    return f"{low:.1f}–{high:.1f}"


def _numbers(part: Proportion) -> list[str]:
    if not part.images:
        return ["0", "0", "", "", ""]
    low, high = part.interval
    return [str(part.images), str(part.right), f"{part.percent:.4f}", f"{low:.4f}", f"{high:.4f}"]


def _percent(part: Proportion | None) -> list[str]:
    return [f"{part.percent:.4f}" if part is not None and part.images else ""]
