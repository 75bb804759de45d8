"""Whether torch.compile is worth its start-up."""

from typing import Any

from speed.cases.task import CLASSES
from speed.measuring import Case, Measured, Row, Series, Settings, alone


def compiling(settings: Settings, known: dict[str, dict[str, Any]]) -> Measured:
    """What torch.compile costs at the start and gains in every iteration after it."""
    rows, raw = [], {}
    for shape, batch in (("tiny", 4),) if settings.quick else (("iconclip", 32), ("ViT-B/16", 8)):
        options = {"shape": shape, "batch": batch, "classes": CLASSES}
        eager = alone(settings.open("ours", "stage1", **options), 4, 1)
        with settings.open("ours", "stage1", compile=True, **options) as job:
            answer = job.measure(10)
        compiled = Series()
        compiled.add({**answer, "seconds": answer["seconds"][5:]})
        start = sum(second - compiled.seconds for second in answer["seconds"][:5])
        gain = eager.seconds - compiled.seconds
        raw[shape] = {"eager": eager.plain(), "compiled": answer}
        note = f"start-up {start:.0f} s; {eager.seconds:.3f} s eager, {compiled.seconds:.3f} s"
        if gain > 0:
            note += f"; worth it after {start / gain:.0f} iterations"
        else:
            note += "; never worth it here"
        what = f"torch.compile, {shape}, batch {batch}: times faster once compiled"
        rows.append(Row(what, eager.seconds / compiled.seconds, "×", note=note))
    return Measured(rows, raw)


CASES = (Case("compile", "torch.compile: start-up against gain", compiling),)
