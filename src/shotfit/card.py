"""The model card of a saved classifier: what made it, its classes, its metrics, how to use it."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from shotfit.experiment import Experiment


def model_card(
    experiment: Experiment,
    classes: Sequence[str],
    metrics: Mapping[str, float],
    *,
    unfinished: bool = False,
) -> str:
    """The README of a saved classifier that answers with these classes."""
    stages = " then ".join(stage.method for stage in experiment.recipe.stages)
    lines = "\n".join(f"| {key} | {value:.2f} |" for key, value in metrics.items())
    table = f"| metric | percent |\n|---|---|\n{lines}\n" if metrics else "Not evaluated.\n"
    shots = "all images" if experiment.shots is None else f"{experiment.shots} images"
    data = experiment.data.get("name") or Path(experiment.data.get("path", "")).name
    learned = f" of `{data}`" if data else ""
    if experiment.setting == "base_to_novel":
        learned += ", trained on the first half of its classes"
    if unfinished:
        learned += "; **unfinished**: the fit was interrupted, and this is what was there then"
    shown = ", ".join(classes[:50])
    rest = len(classes) - 50
    more = f" and {rest} more" if rest > 0 else ""
    return f"""---
library_name: shotfit
base_model: {experiment.backbone}
tags: [image-classification, few-shot, clip]
---

# Few-shot image classifier

Fitted with ShotFit: {stages}, {shots} per class{learned}, on `{experiment.backbone}`.

```python
from shotfit import FewShotClassifier

classifier = FewShotClassifier.from_pretrained("path/to/this/folder")
classifier.predict("photo.jpg")
```

## Classes

{shown}{more}.

## Metrics

{table}"""
