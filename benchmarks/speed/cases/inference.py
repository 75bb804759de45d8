"""What follows training: embedding new class names, and predicting."""

from typing import Any

from speed.cases.task import BATCH, CLASSES
from speed.measuring import Case, Measured, Row, Settings, compared, speedup


def names(settings: Settings, known: dict[str, dict[str, Any]]) -> Measured:
    """Embedding 1,000 class names that were never seen, tokenising included."""
    count = settings.count(1000)
    options = {"shape": settings.shape("ViT-B/16"), "batch": 1, "classes": count}
    fast, slow = compared(
        settings.open("ours", "names", **options),
        settings.open("literal_side", "names", **options),
        (2, 1),
        settings.rounds,
    )
    note = f"{fast.seconds:.2f} s against {slow.seconds:.2f} s"
    row = Row(
        f"embedding {count} class names, times faster", speedup(fast, slow), "×", 8, note=note
    )
    return Measured([row], {"ours": fast.plain(), "literal": slow.plain()})


def predict(settings: Settings, known: dict[str, dict[str, Any]]) -> Measured:
    """Scoring a batch of pixels, against plain `get_image_features` of the same batch."""
    batch = settings.count(BATCH)
    options = {
        "shape": settings.shape("ViT-B/16"),
        "batch": batch,
        "classes": settings.count(CLASSES),
    }
    fast, slow = compared(
        settings.open("ours", "predict", **options),
        settings.open("literal_side", "predict", **options),
        (2, 2),
        settings.rounds + 2,
    )
    row = Row(
        f"predicting images, batch {batch}, times the images a second of get_image_features",
        speedup(fast, slow),
        "×",
        1.05,
        note=f"{batch / fast.seconds:.1f} against {batch / slow.seconds:.1f} images/s",
    )
    return Measured([row], {"ours": fast.plain(), "literal": slow.plain()})


CASES = (
    Case("names", "embedding new class names", names),
    Case("predict", "predicting", predict),
)
