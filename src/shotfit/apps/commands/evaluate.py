"""shotfit evaluate"""

import json
from typing import Annotated

import typer

from shotfit.apps import options


def evaluate(
    model: Annotated[str, typer.Argument(help="A saved classifier.")],
    data: Annotated[str, typer.Argument(help="A folder, a manifest or an embedded task.")],
    int8: options.Int8 = False,
    backbone: options.SavedBackbone = None,
    device: options.Device = None,
    root: options.Root = None,
    as_json: options.Json = False,
) -> None:
    """Measure accuracy on test images; classes that were not trained on count as novel."""
    from shotfit.apps.pretrained import confirmed
    from shotfit.classifier import FewShotClassifier
    from shotfit.data.inputs import as_dataset

    dataset = as_dataset(data, root)
    classifier = FewShotClassifier.from_pretrained(
        model, device=device, int8=int8, backbone=confirmed(model, backbone)
    )
    metrics = classifier.evaluate(dataset)
    if as_json:
        print(json.dumps(metrics, indent=2))
    else:
        options.show_metrics(metrics)
