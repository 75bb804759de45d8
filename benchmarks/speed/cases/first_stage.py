"""Iterations of the first stage: time, share of the matmul peak, memory."""

from typing import Any

import torch

from shotfit.training.execution import free_memory_bytes
from speed.cases.matmul import matmul_rate
from speed.cases.task import BATCH, GB
from speed.flops import needed_flops
from speed.measuring import Case, Measured, Row, Series, Settings, alone, compared, line, speedup
from speed.ours import tokenized_prompts
from speed.shapes import SHAPES


def stage1(settings: Settings, known: dict[str, dict[str, Any]]) -> Measured:
    """Iterations at 24, 100 and 500 classes, the share of the matmul peak, and peak memory.

    The literal algorithm at 500 classes needs more memory than a machine of 24 GB has. Where it
    does not fit, its time and memory there are those of the line through 24, 100 and 150 classes:
    its text is 77 tokens a class whatever the names are, so that both are linear.
    """
    shape, batch = settings.shape("ViT-B/16"), settings.count(BATCH)
    counts = [settings.count(n) for n in (24, 100, 150, 500)]
    raw: dict[str, Any] = {"shape": shape, "batch": batch}
    rows: list[Row] = []
    theirs: dict[int, Series] = {}
    # Before and after the step that is held against it: a peak is the best of all.
    rate = matmul_rate(settings)
    for classes, goal in ((counts[0], 1.2), (counts[1], 1.5)):
        options = {"shape": shape, "batch": batch, "classes": classes}
        fast, theirs[classes] = compared(
            settings.open("ours", "stage1", **options),
            settings.open("literal_side", "stage1", **options),
            (1, 1),
            settings.rounds,
        )
        raw[f"{classes} classes"] = {"ours": fast.plain(), "literal": theirs[classes].plain()}
        note = f"{fast.seconds:.2f} s against {theirs[classes].seconds:.2f} s"
        what = f"stage-1 iteration, {classes} classes, times faster"
        rows.append(Row(what, speedup(fast, theirs[classes]), "×", goal, note=note))
        if goal == 1.2:
            rate = max(rate, matmul_rate(settings))
            rows.append(_share(settings, shape, batch, classes, fast, rate))
            raw["matmul_flops_per_second"] = rate
    options = {"shape": shape, "batch": batch}
    many = alone(settings.open("ours", "stage1", classes=counts[3], **options), 1, settings.rounds)
    raw[f"{counts[3]} classes"] = {"ours": many.plain()}
    middle = alone(settings.open("literal_side", "stage1", classes=counts[2], **options), 1, 2)
    theirs[counts[2]] = middle
    raw[f"{counts[2]} classes"] = {"literal": middle.plain()}
    seconds, peak, note = _literal_at(settings, counts[3], theirs, options, raw)
    above = peak - middle.loaded_bytes
    rows += [
        Row(
            f"stage-1 iteration, {counts[3]} classes, times faster",
            seconds / many.seconds,
            "×",
            3.0,
            note=f"{many.seconds:.2f} s against {seconds:.2f} s; {note}",
        ),
        Row(
            f"peak memory of it, {counts[3]} classes, share of the literal one's",
            100 * many.peak_bytes / peak,
            "%",
            40.0,
            at_least=False,
            note=f"{many.peak_bytes / GB:.1f} GB against {peak / GB:.1f} GB; above the loaded "
            f"model {(many.peak_bytes - many.loaded_bytes) / GB:.1f} against {above / GB:.1f}; "
            f"{note}",
        ),
    ]
    return Measured(rows, raw)


def _literal_at(
    settings: Settings,
    classes: int,
    known: dict[int, Series],
    options: dict[str, Any],
    raw: dict[str, Any],
) -> tuple[float, float, str]:
    """Seconds and peak bytes of the literal algorithm, and how they were found."""
    peak, off = line([(n, s.peak_bytes) for n, s in known.items()], classes)
    seconds, slip = line([(n, s.seconds) for n, s in known.items()], classes)
    raw["literal, line"] = {"seconds": seconds, "peak_bytes": peak, "residuals": [slip, off]}
    if 1.15 * peak < free_memory_bytes(torch.device(settings.device)):
        found = alone(settings.open("literal_side", "stage1", classes=classes, **options), 1, 1)
        raw[f"{classes} classes"]["literal"] = found.plain()
        return found.seconds, found.peak_bytes, "measured"
    points = sorted(known.items())
    ends = [
        [line(part, classes)[0] for part in (some[:2], some[1:])]
        for some in ([(n, s.seconds) for n, s in points], [(n, s.peak_bytes) for n, s in points])
    ]
    (fast, slow), (small, large) = (sorted(pair) for pair in ends)
    places = ", ".join(str(n) for n in known)
    return (
        seconds,
        peak,
        f"the literal one does not fit here: line through {places} classes; through two of them "
        f"{fast:.0f} to {slow:.0f} s, {small / GB:.0f} to {large / GB:.0f} GB",
    )


def _share(
    settings: Settings, shape: str, batch: int, classes: int, found: Series, rate: float
) -> Row:
    needed = needed_flops(SHAPES[shape], batch, tokenized_prompts(shape, classes)).total
    return Row(
        f"share of the measured matmul peak, {classes} classes, needed operations only",
        100 * needed / found.seconds / rate,
        "%",
        75.0,
        note=f"{needed / 1e12:.2f} TFLOP, peak {rate / 1e9:.0f} GFLOP/s",
    )


def thousand(settings: Settings, known: dict[str, dict[str, Any]]) -> Measured:
    """A thousand classes, ShotFit only: the literal algorithm would need some 50 GB."""
    shape, classes = settings.shape("ViT-B/16"), settings.count(1000)
    job = settings.open("ours", "stage1", shape=shape, batch=settings.count(BATCH), classes=classes)
    found = alone(job, 1, 1)
    row = Row(
        f"peak memory of a stage-1 iteration, {classes} classes",
        found.peak_bytes / GB,
        "GB",
        8.0,
        at_least=False,
        note=f"{found.seconds:.1f} s an iteration",
    )
    return Measured([row], {"ours": found.plain()})


CASES = (
    Case("stage1", "iterations of the first stage, their share of the peak, memory", stage1),
    Case("thousand", "the first stage at 1,000 classes", thousand),
)
