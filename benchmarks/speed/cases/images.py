"""Images: how fast they come out of files, and what a folder of very many takes."""

from typing import Any

from speed.cases.task import BATCH, CLASSES, GB
from speed.measuring import Case, Measured, Row, Settings, alone

MB = 1e6


def loader(settings: Settings, known: dict[str, dict[str, Any]]) -> Measured:
    """Augmented images a second of the loader alone, against those a first-stage iteration takes.

    Photographs of 500 x 375 for ViT-B/16 and ViT-B/32: decoded once and kept, and decoded anew
    each time, as where they do not fit in memory. The embedded task for the embedded model.
    """
    rows: list[Row] = []
    raw: dict[str, Any] = {}
    photos = {"task": None, "photos": settings.count(160)}
    embedded = {"task": "animals", "photos": 0}
    cases = (
        (settings.shape("ViT-B/16"), "decoded once", 2 << 30, photos),
        (settings.shape("ViT-B/16"), "decoded each time", 0, photos),
        (settings.shape("ViT-B/32"), "decoded each time", 0, photos),
        (settings.shape("iconclip"), "decoded once", 2 << 30, embedded),
    )
    steps: dict[str, float] = {}
    for shape, how, memory, source in cases:
        options = {"shape": shape, "batch": settings.count(BATCH)}
        if shape not in steps:
            job = settings.open("ours", "stage1", classes=CLASSES, **options)
            steps[shape] = alone(job, settings.count(10) // 4, 1).seconds
        found = alone(settings.open("ours", "loader", memory=memory, **source, **options), 10, 1)
        taken, given = (options["batch"] / seconds for seconds in (steps[shape], found.seconds))
        raw[f"{shape}, {how}"] = {"loader": found.plain(), "step_seconds": steps[shape]}
        note = f"{given:.0f} images/s, of which an iteration takes {taken:.1f}"
        what = f"loader alone, {shape}, {how}, times the images of a stage-1 iteration"
        rows.append(Row(what, given / taken, "", 2.0, note=note))
    return Measured(rows, raw)


def folder(settings: Settings, known: dict[str, dict[str, Any]]) -> Measured:
    """`shotfit predict` on a folder of 1,000 and one of 100,000 images: memory must not grow."""
    counts = (20, 60) if settings.quick else (1_000, 100_000)
    raw: dict[str, Any] = {}
    found = []
    for count in counts:
        job = settings.open(
            "ours", "folder", task="animals", images=count, photos=settings.count(160)
        )
        with job:
            answer = job.measure(1)
        found.append(answer)
        raw[f"{count} images"] = answer
    small, large = found
    peaks = [answer["peak_bytes"] for answer in found]
    rate = counts[1] / large["seconds"][0]
    note = f"{peaks[0] / MB:.0f} MB for {counts[0]:,}, {peaks[1] / GB:.2f} GB for {counts[1]:,}"
    rows = [
        Row(
            f"peak memory of predict, {counts[1]:,} images over that of {counts[0]:,}",
            peaks[1] / peaks[0],
            "",
            1.1,
            at_least=False,
            note=note,
        ),
        Row(f"predict, embedded model, a folder of {counts[1]:,} photographs", rate, "images/s"),
    ]
    return Measured(rows, raw)


CASES = (
    Case("loader", "images a second of the loader against those of the step", loader),
    Case("folder", "predicting a folder of 100,000 images", folder),
)
