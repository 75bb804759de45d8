"""An accelerator against the floors of its arithmetic and of its memory."""

from dataclasses import replace
from typing import Any

import torch

from speed.cases.matmul import matmul_rate
from speed.cases.task import BATCH, CLASSES
from speed.flops import needed_flops, packed_tokens
from speed.measuring import Case, Measured, Row, Settings, alone
from speed.ours import tokenized_prompts
from speed.shapes import SHAPES


def accelerator(settings: Settings, known: dict[str, dict[str, Any]]) -> Measured:
    """ViT-L/14 in bf16 against the two floors of its iteration: arithmetic, and bytes moved.

    The bytes are those that no arrangement saves: frozen weights read once forward and once
    backward, and what the gradient needs of every block (`Tower.token_bytes`, here at two bytes a
    number) written once and read once.
    """
    if not torch.cuda.is_available():
        raise LookupError("the case accelerator needs one; none is here")
    settings = replace(settings, device="cuda", precision="bf16")
    name, batch = settings.shape("ViT-L/14"), settings.count(BATCH)
    shape = SHAPES[name]
    options = {"shape": name, "batch": batch, "classes": CLASSES}
    found = alone(settings.open("ours", "stage1", **options), 20, settings.rounds)
    prompts = tokenized_prompts(name, CLASSES)
    needed = needed_flops(shape, batch, prompts).total
    rate = matmul_rate(settings)
    with settings.open("ours", "copy") as job:
        bandwidth = max(job.measure(1)["value"] for _ in range(5))
    weights = kept = 0
    for tower, tokens in (
        (shape.vision, batch * shape.image_tokens),
        (shape.text, packed_tokens(prompts)),
    ):
        weights += tower.blocks * (4 * tower.width**2 + 2 * tower.width * tower.hidden)
        kept += tokens * tower.blocks * (6 * tower.width + tower.hidden)
    moved = 2 * (2 * weights + 2 * kept)
    floors = needed / rate, moved / bandwidth
    share = Row(
        f"share of the bf16 matmul rate, {name}, batch {batch}, needed operations only",
        100 * floors[0] / found.seconds,
        "%",
        45.0,
        note=f"{1e3 * found.seconds:.1f} ms a step; floors: arithmetic {1e3 * floors[0]:.1f} ms "
        f"at {rate / 1e12:.0f} TFLOP/s, bytes {1e3 * floors[1]:.1f} ms at "
        f"{bandwidth / 1e12:.2f} TB/s",
    )
    raw = {"ours": found.plain(), "floors_seconds": floors, "needed_flops": needed, "bytes": moved}
    return Measured([share], raw)


CASES = (Case("accelerator", "ViT-L/14 on an accelerator against its floors", accelerator),)
