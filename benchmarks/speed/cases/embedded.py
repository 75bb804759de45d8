"""A whole fit of the embedded model, as shipped and with what may speed it up."""

from typing import Any

from speed.cases.task import VIEWS
from speed.measuring import Case, Measured, Row, Settings


def embedded(settings: Settings, known: dict[str, dict[str, Any]]) -> Measured:
    """The embedded model's whole fit, without the start of Python."""
    classes, per_shot = (6, 2) if settings.quick else (80, 300)
    variants = [(precision, views) for precision in ("fp32", "bf16") for views in (None, VIEWS[-1])]
    raw: dict[str, Any] = {}
    rows = []
    for precision, views in variants[:2] if settings.quick else variants:
        job = settings.open(
            "ours",
            "fit",
            **{"precision": precision, "views": views},
            task="animals",
            classes=classes,
            shots=4,
            iters_per_shot=per_shot,
        )
        with job:
            answer = job.measure(1)
        seconds = answer["seconds"][0]
        name = f"{precision}, {f'{views} cached views' if views else 'images encoded anew'}"
        raw[name] = answer
        default = precision == "fp32" and views is None
        what = f"embedded fit, k=4, {classes} classes, M={per_shot}: {name}"
        rows.append(Row(what, seconds, "s", 25.0 if default else None, at_least=False))
    return Measured(rows, raw)


CASES = (Case("embedded", "a whole fit of the embedded model", embedded),)
