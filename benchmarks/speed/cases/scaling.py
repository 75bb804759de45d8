"""How cost grows with classes, images, shots and model size."""

from collections.abc import Sequence
from typing import Any

from speed.cases.task import CLASSES
from speed.flops import needed_flops
from speed.measuring import Case, Measured, Row, Settings, alone, exponent
from speed.ours import tokenized_prompts
from speed.shapes import SHAPES


def scaling(settings: Settings, known: dict[str, dict[str, Any]]) -> Measured:
    """Seconds of an iteration over classes, images, model size, and of a fit over shots."""
    shape = settings.shape("ViT-B/32")
    curves = []

    def curve(name: str, axis: str, points: Sequence[tuple[float, float]]) -> None:
        slope = exponent(points)
        # Where the cost is all but constant, small sizes hide the slope of large ones.
        last = exponent(points[-2:])
        curves.append(
            {"name": name, "axis": axis, "points": points, "exponent": slope, "last": last}
        )

    def seconds(**options: Any) -> float:
        return alone(settings.open("ours", "stage1", **options), 2, 1).seconds

    counts = (4, 8, 16) if settings.quick else (10, 30, 100, 300, 1000)
    points = [(n, seconds(shape=shape, batch=settings.count(16), classes=n)) for n in counts]
    curve(f"stage-1 iteration, {shape}, 16 images", "classes", points)
    batches = (2, 4, 8) if settings.quick else (4, 8, 16, 32, 64)
    points = [(n, seconds(shape=shape, batch=n, classes=CLASSES)) for n in batches]
    curve(f"stage-1 iteration, {shape}, {CLASSES} classes", "images in a batch", points)
    points = []
    for shots in (1, 2) if settings.quick else (1, 2, 4):
        # 64 images a shot: every batch of 32 is full, so that iterations cost the same.
        classes, per_shot = (4, 2) if settings.quick else (64, 30)
        job = settings.open(
            "ours",
            "fit",
            **{"views": None, "precision": "fp32", "task": "animals"},
            classes=classes,
            shots=shots,
            iters_per_shot=per_shot,
        )
        points.append((shots, alone(job, 1, 1).seconds))
    curve("whole fit, embedded model, M=30", "shots", points)
    shapes = ("tiny", "iconclip") if settings.quick else ("iconclip", "ViT-B/32", "ViT-B/16")
    if not settings.quick:
        shapes = (*shapes, "ViT-L/14")
    points = []
    for name in shapes:
        needed = needed_flops(SHAPES[name], 4, tokenized_prompts(name, CLASSES)).total
        points.append((needed / 1e9, seconds(shape=name, batch=4, classes=CLASSES)))
    curve(f"stage-1 iteration, 4 images: {', '.join(shapes)}", "needed GFLOP", points)
    rows = [
        Row(
            f"exponent of the cost over {part['axis']} (1 is linear)",
            max(part["exponent"], part["last"]),
            "",
            1.05,
            at_least=False,
            note=f"{part['exponent']:.2f} over all, {part['last']:.2f} between the two largest",
        )
        for part in curves
    ]
    return Measured(rows, {}, curves)


CASES = (Case("scaling", "cost over classes, images, shots and model size", scaling),)
