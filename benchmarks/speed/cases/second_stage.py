"""The second stage, and the whole fit that it completes."""

from typing import Any

from shotfit.methods.linear import LinearConfig
from speed.cases.task import BATCH, CLASSES, FIRST, SECOND, SHOTS, VIEWS
from speed.measuring import Case, Measured, Row, Settings, alone, compared


def stage2(settings: Settings, known: dict[str, dict[str, Any]]) -> Measured:
    """The second stage with cached views against encoding images anew; totals are computed.

    ShotFit: views x images at the measured seconds an image, and the iterations at the measured
    seconds of one. Literal: the iterations at the measured seconds of one.
    """
    cached = LinearConfig().views or VIEWS
    classes = settings.count(CLASSES)
    options = {
        "shape": settings.shape("ViT-B/16"),
        "batch": settings.count(BATCH),
        "classes": classes,
    }
    encode, theirs = compared(
        settings.open("ours", "views", **options),
        settings.open("literal_side", "stage2", **options),
        (1, 1),
        settings.rounds,
    )
    steps = alone(settings.open("ours", "stage2", **options), 100, settings.rounds)
    batches = cached * classes * SHOTS / options["batch"]
    ours_total = batches * encode.seconds + SECOND * steps.seconds
    theirs_total = SECOND * theirs.seconds
    note = (
        f"{cached} cached views: {batches:.0f} batches at {encode.seconds:.2f} s + {SECOND} "
        f"iterations at {1e3 * steps.seconds:.1f} ms = {ours_total:.0f} s; literal {SECOND} at "
        f"{theirs.seconds:.2f} s = {theirs_total / 3600:.1f} h; totals computed"
    )
    what = f"stage 2 of a {classes}-class, {SHOTS}-shot task, times faster"
    raw = {
        "views": cached,
        "encode": encode.plain(),
        "iteration": steps.plain(),
        "literal": theirs.plain(),
        "ours_total_seconds": ours_total,
        "literal_total_seconds": theirs_total,
    }
    rows = [
        Row(what, theirs_total / ours_total, "×", 15.0, note=note),
        Row("iteration of the classifier on cached features", 1e3 * steps.seconds, "ms"),
    ]
    return Measured(rows, raw)


def fit(settings: Settings, known: dict[str, dict[str, Any]]) -> Measured:
    """The whole fit of that task, computed from the measured parts of `stage1` and `stage2`."""
    if "stage1" not in known or "stage2" not in known:
        raise LookupError("the case fit is computed from stage1 and stage2: measure these first")
    classes = settings.count(CLASSES)
    first, second = known["stage1"]["raw"][f"{classes} classes"], known["stage2"]["raw"]
    ours = FIRST * first["ours"]["median_seconds"] + second["ours_total_seconds"]
    theirs = FIRST * first["literal"]["median_seconds"] + second["literal_total_seconds"]
    row = Row(
        f"whole fit of that task, {FIRST} + {SECOND} iterations, times faster",
        theirs / ours,
        "×",
        1.6,
        note=f"{ours / 3600:.1f} h against {theirs / 3600:.1f} h, computed from measured "
        "iterations",
    )
    return Measured([row], {"ours_seconds": ours, "literal_seconds": theirs})


CASES = (
    Case("stage2", "the second stage", stage2),
    Case("fit", "a whole fit, computed from stage1 and stage2", fit),
)
