"""The second stage, and the whole fit that it completes."""

from typing import Any

from speed.cases.task import BATCH, CLASSES, FIRST, SECOND, SHOTS, VIEWS
from speed.measuring import Case, Measured, Row, Settings, alone, compared

ANEW = "images encoded anew (the default)"


def stage2(settings: Settings, known: dict[str, dict[str, Any]]) -> Measured:
    """The second stage against encoding images anew in the literal way; totals are computed.

    With cached views: views x images at the measured seconds an image, and the iterations at the
    measured seconds of one. As published: the iterations at the measured seconds of one.
    """
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
    literal = SECOND * theirs.seconds
    what = f"stage 2 of a {classes}-class, {SHOTS}-shot task"
    totals, rows = {}, []
    for views in VIEWS:
        batches = views * classes * SHOTS / options["batch"]
        totals[_cached(views)] = cached = batches * encode.seconds + SECOND * steps.seconds
        note = (
            f"{batches:.0f} batches at {encode.seconds:.2f} s + {SECOND} iterations at "
            f"{1e3 * steps.seconds:.1f} ms = {cached:.0f} s; literal {SECOND} at "
            f"{theirs.seconds:.2f} s = {literal / 3600:.1f} h; totals computed"
        )
        name = f"{what}, {_cached(views)}, times faster"
        rows.append(Row(name, literal / cached, "×", 15.0, note=note))
    totals[ANEW] = SECOND * (encode.seconds + steps.seconds)
    rows += [
        Row(f"{what}, {ANEW}, times faster", literal / totals[ANEW], "×"),
        Row("iteration of the classifier on cached features", 1e3 * steps.seconds, "ms"),
    ]
    raw = {
        "encode": encode.plain(),
        "iteration": steps.plain(),
        "literal": theirs.plain(),
        "total_seconds": {**totals, "literal": literal},
    }
    return Measured(rows, raw)


def fit(settings: Settings, known: dict[str, dict[str, Any]]) -> Measured:
    """The whole fit of that task, computed from the measured parts of `stage1` and `stage2`."""
    if "stage1" not in known or "stage2" not in known:
        raise LookupError("the case fit is computed from stage1 and stage2: measure these first")
    classes = settings.count(CLASSES)
    first, second = known["stage1"]["raw"][f"{classes} classes"], known["stage2"]["raw"]
    seconds = {
        name: FIRST * first["literal" if name == "literal" else "ours"]["median_seconds"] + rest
        for name, rest in second["total_seconds"].items()
    }
    rows = [
        Row(
            f"whole fit of that task, {FIRST} + {SECOND} iterations, {how}, times faster",
            seconds["literal"] / seconds[how],
            "×",
            1.6,
            note=f"{seconds[how] / 3600:.1f} h against {seconds['literal'] / 3600:.1f} h, "
            "computed from measured iterations",
        )
        for how in (*map(_cached, VIEWS), ANEW)
    ]
    return Measured(rows, {"total_seconds": seconds})


def _cached(views: int) -> str:
    return f"{views} cached views"


CASES = (
    Case("stage2", "the second stage", stage2),
    Case("fit", "a whole fit, computed from stage1 and stage2", fit),
)
