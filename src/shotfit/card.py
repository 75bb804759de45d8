"""The model cards of a saved classifier and of exports, as the hub reads them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shotfit.experiment import Experiment
from shotfit.sharing import is_repository, model_name
from shotfit.system.model_hub import card_header

SHOWN = 50
"""Classes that a card names."""
EXAMPLE = "example.png"
"""The image beside a card that its widget shows."""
EXAMPLE_PIXELS = 512
"""A side of it at most. Its pixels alone: a photograph's file may say where it was taken."""
LIKELIEST = 5
"""Answers that are shown of an example."""
LABELS = 10
"""Names among which a widget lets a merged export choose."""


def model_card(
    experiment: Experiment,
    classes: Sequence[str],
    metrics: Mapping[str, float],
    *,
    unfinished: bool = False,
    example: Mapping[str, float] | None = None,
) -> str:
    """The README of a saved classifier that answers with these classes. `example` has what it says
    of the image in `EXAMPLE`, names and their probabilities, likeliest first."""
    stages = " then ".join(stage.method for stage in experiment.recipe.stages)
    shots = "all images" if experiment.shots is None else f"{experiment.shots} images"
    data = _data(experiment)
    learned = f" of `{data}`" if data else ""
    if experiment.setting == "base_to_novel":
        learned += ", trained on the first half of its classes"
    if unfinished:
        learned += "; **unfinished**: the fit was interrupted, and this is what was there then"
    header = card_header(
        library_name="shotfit",
        pipeline_tag="image-classification",
        tags=["few-shot", "clip", *_methods(experiment)],
        **_origin(experiment),
        **_results(experiment, metrics),
        **_answered(example),
    )
    return f"""{header}
# Few-shot image classifier

Fitted with ShotFit: {stages}, {shots} per class{learned}, on `{model_name(experiment.backbone)}`.

```python
from shotfit import FewShotClassifier

classifier = FewShotClassifier.from_pretrained("path/to/this/folder")  # or "user/name"
classifier.predict("photo.jpg")
classifier.predict("photo.jpg", ["cat", "zebra"])  # names that it was never trained on, too
```

{_picture(example)}## Classes

{_named(classes)}.

## Metrics

{_table(metrics)}"""


def merged_card(
    experiment: Experiment, classes: Sequence[str], template: str, *, example: bool = False
) -> str:
    """The README of a plain checkpoint of the tuned encoders; with an `example`, an image lies in
    `EXAMPLE`, of which the hub itself can ask such a model."""
    widget = {}
    if example:
        # The widget's field divides names by commas.
        labels = ", ".join([name for name in classes if "," not in name][:LABELS])
        shown = {"src": EXAMPLE, "candidate_labels": labels, "example_title": "An example"}
        widget = {"widget": [shown]}
    header = _encoders_header("transformers", experiment, **widget)
    model = model_name(experiment.backbone)
    return f"""{header}
# Tuned encoders

`{model}` as ShotFit's first stage has tuned it, for names that are given when asked.

```python
from transformers import pipeline

classify = pipeline("zero-shot-image-classification", model="path/to/this/folder")
classify("photo.jpg", candidate_labels={list(classes[:3])}, hypothesis_template={template!r})
```

It was tuned on images of: {_named(classes)}.
"""


def _encoders_header(library: str, experiment: Experiment, **more: Any) -> str:
    """The header of a page of tuned encoders, as `library` reads them."""
    return card_header(
        library_name=library,
        pipeline_tag="zero-shot-image-classification",
        tags=["few-shot", "clip", *_methods(experiment)],
        **_origin(experiment),
        **more,
    )


def adapter_card(experiment: Experiment, classes: Sequence[str], template: str) -> str:
    """The README of the tuned encoders as a PEFT adapter."""
    header = _encoders_header("peft", experiment)
    model = model_name(experiment.backbone)
    return f"""{header}
# Tuned encoders, as an adapter

What ShotFit's first stage has changed in `{model}`.

```python
from peft import PeftModel
from transformers import AutoModel

model = AutoModel.from_pretrained({model!r})
model = PeftModel.from_pretrained(model, "path/to/this/folder")
```

Its class names stood in {template!r}. It was tuned on images of: {_named(classes)}.
"""


def hub_config(experiment: Experiment, classes: Sequence[str]) -> dict[str, Any]:
    """What `config.json` says of a saved classifier in a repository; nothing here reads it."""
    return {
        "library_name": "shotfit",
        "backbone": model_name(experiment.backbone),
        "method": "+".join(_methods(experiment)),
        "id2label": {str(number): name for number, name in enumerate(classes)},
    }


def _named(classes: Sequence[str]) -> str:
    rest = len(classes) - SHOWN
    return ", ".join(classes[:SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def _data(experiment: Experiment) -> str:
    return experiment.data.get("name") or Path(experiment.data.get("path", "")).name


def _methods(experiment: Experiment) -> list[str]:
    return [stage.method for stage in experiment.recipe.stages]


def _origin(experiment: Experiment) -> dict[str, Any]:
    """The model and the data, where they are the hub's own: it refuses other names."""
    found: dict[str, Any] = {}
    if is_repository(experiment.backbone):
        found |= {"base_model": experiment.backbone, "base_model_relation": "finetune"}
    if experiment.source == "huggingface" and _data(experiment):
        found["datasets"] = [_data(experiment)]
    return found


def _results(experiment: Experiment, metrics: Mapping[str, float]) -> dict[str, Any]:
    """Accuracy as a hub's result, with its interval."""
    value = metrics.get("accuracy", metrics.get("all"))
    if value is None:
        return {}
    name = "accuracy, %"
    if "accuracy_low" in metrics:
        low, high = metrics["accuracy_low"], metrics["accuracy_high"]
        name += f", 95 % interval {low:.1f} to {high:.1f}"
    result = {
        "task_type": "image-classification",
        "dataset_type": experiment.source,
        "dataset_name": _data(experiment) or "own images",
        "metric_type": "accuracy",
        "metric_name": name,
        "metric_value": round(value, 2),
    }
    return {"model_name": "few-shot classifier", "results": [result]}


def _answered(example: Mapping[str, float] | None) -> dict[str, Any]:
    """The widget of an image with its answers, which the hub shows without running anything."""
    if not example:
        return {}
    output = [{"label": name, "score": round(value, 4)} for name, value in example.items()]
    title = next(iter(example))
    return {"widget": [{"src": EXAMPLE, "example_title": title, "output": output}]}


def _picture(example: Mapping[str, float] | None) -> str:
    if not example:
        return ""
    said = ", ".join(f"{name} {value:.0%}" for name, value in example.items())
    return f"## Example\n\n![An image]({EXAMPLE})\n\n{said}.\n\n"


def _table(metrics: Mapping[str, float]) -> str:
    if not metrics:
        return "Not evaluated.\n"
    lines = "\n".join(f"| {key} | {value:.2f} |" for key, value in metrics.items())
    return f"| metric | percent |\n|---|---|\n{lines}\n"
