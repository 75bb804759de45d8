"""What a thousand predictions and some fits leave behind in the process that made them."""

import gc
import os
import threading
from pathlib import Path
from typing import Any

from PIL import Image

from shotfit.classifier import FewShotClassifier
from shotfit.recipe import Recipe, Stage
from torture.inputs import FORMATS_SO_FAR

RECIPE = Recipe(
    (Stage("layernorm", training={"iterations": 1}), Stage("linear", training={"iterations": 1}))
)


def leaks(name: str, count: int) -> dict[str, Any]:
    """Memory, open files and threads before and after so many predictions or fits; a tenth more
    are to warm up."""
    backbone = str(FORMATS_SO_FAR / "backbone")
    pictures = [Image.new("RGB", (40, 30), color) for color in ("red", "blue")]
    classifier = FewShotClassifier.from_pretrained(FORMATS_SO_FAR / "saved", backbone=backbone)

    def predict() -> None:
        classifier.predict(pictures)

    def fit() -> None:
        made = FewShotClassifier(backbone, RECIPE)
        made.fit(pictures * 2, ["red", "blue"] * 2, verbose=False)

    return _repeated({"predictions": predict, "fits": fit}[name], count)


def _repeated(action, count: int) -> dict[str, Any]:
    for _ in range(max(2, count // 10)):
        action()
    before = _held()
    for _ in range(count):
        action()
    after = _held()
    return {
        "times": count,
        **{name: after[name] - before[name] for name in before},
        "bytes each": round((after["bytes"] - before["bytes"]) / max(1, count)),
    }


def _held() -> dict[str, int]:
    gc.collect()
    status = Path("/proc/self/status").read_text()
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return {
        "bytes": int(resident.split()[1]) * 1024,
        "files": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
    }
