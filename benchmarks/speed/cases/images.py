"""Images: how fast they come out of files, and what a folder of very many takes."""

from typing import Any

from shotfit.data.transforms import CROP_SCALE
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


# Photographs of one, two and four megapixels.
MEGAPIXELS = ((1224, 816), (1632, 1224), (2309, 1732))


def photographs(settings: Settings, known: dict[str, dict[str, Any]]) -> Measured:
    """What the loader takes of a step, of photographs of 1 to 4 megapixels.

    A batch of the loader alone, on all threads, over a first-stage iteration on as many: decoded
    once at the nearest reduction that the crops need and kept in memory, or in a file; decoded once
    at full size; and decoded anew each time at full size.
    """
    rows: list[Row] = []
    raw: dict[str, Any] = {}
    photos = {"task": None, "photos": settings.count(60), "sizes": MEGAPIXELS}
    goals = {"iconclip": 10.0, "ViT-B/16": 1.0}
    kinds = {
        "decoded once, reduced": {"reduced": True, "memory": 4 << 30},
        "decoded once, reduced, in a file": {"reduced": True, "memory": 0, "disk": 4 << 30},
        "decoded once, full size": {"memory": 4 << 30},
        "decoded each time, full size": {"memory": 0},
    }
    for name, smallest in (("iconclip", 0.5), ("ViT-B/16", CROP_SCALE[0])):
        options = {"shape": settings.shape(name), "batch": settings.count(BATCH)}
        job = settings.open("ours", "stage1", classes=CLASSES, **options)
        step = alone(job, settings.count(10) // 4, settings.rounds)
        for kind, how in kinds.items():
            request = {**options, **photos, **how, "smallest_crop": smallest}
            found = alone(settings.open("ours", "loader", **request), 4, settings.rounds)
            raw[f"{name}, {kind}"] = {"loader": found.plain(), "step": step.plain()}
            share = 100 * found.seconds / step.seconds
            note = f"{1000 * found.seconds:.1f} ms a batch, of {1000 * step.seconds:.0f} a step"
            what = f"loader alone, photographs of 1 to 4 MP, {name}, {kind}, share of a step"
            goal = goals[name] if how.get("reduced") else None
            rows.append(Row(what, share, "%", goal, at_least=False, note=note))
        request = {**options, **photos, "reduced": True, "smallest_crop": smallest}
        found = alone(settings.open("ours", "decoding", **request), 1, settings.rounds)
        raw[f"{name}, decoding"] = found.plain()
        rate = request["photos"] / found.seconds
        what = f"decoding photographs of 1 to 4 MP, reduced for {name}, once a fit"
        rows.append(Row(what, rate, "images/s"))
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
    Case("photographs", "what the loader takes of a step, photographs of 1-4 MP", photographs),
    Case("folder", "predicting a folder of 100,000 images", folder),
)
