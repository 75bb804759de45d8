"""shotfit evaluate"""

import json
from pathlib import Path
from typing import Annotated

import typer

from shotfit.apps import options
from shotfit.errors import UsageError
from shotfit.system.files import check_new

EXAMPLES = (
    "shotfit evaluate pets photos",
    "shotfit evaluate pets photos/test --csv classes.csv",
)


def evaluate(
    model: Annotated[str, typer.Argument(help="A saved classifier.")],
    data: Annotated[str, typer.Argument(help="A folder, a manifest or an embedded task.")],
    classes: options.Classes = None,
    as_novel: Annotated[
        bool,
        typer.Option(
            "--as-novel",
            help="The protocol of papers: names that were not trained on are novel, and base and "
            "novel images are also scored among the names of their own kind.",
        ),
    ] = False,
    zero_shot: Annotated[bool, typer.Option(help="Score the untouched model beside it.")] = True,
    csv: Annotated[Path | None, typer.Option(help="Write a line per class here.")] = None,
    keep_predictions: Annotated[
        Path | None, typer.Option(help="Write every image's answer and logits here (JSON lines).")
    ] = None,
    overwrite: options.Overwrite = False,
    published_scores: options.PublishedScores = False,
    int8: options.Int8 = False,
    backbone: options.SavedBackbone = None,
    device: options.Device = None,
    root: options.Root = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Measure how well a classifier answers test images, as predict would.

    Images that it was trained on are left out; where no others are left, it is cross-validated.
    """
    names = options.class_names(classes)
    for file in (csv, keep_predictions):
        if file is not None and not file.parent.is_dir():
            raise UsageError(f"There is no folder {file.parent} for {file.name}.")
        if file is not None:
            check_new(file, overwrite=overwrite)
    from shotfit.apps import evaluation as shown
    from shotfit.apps.pretrained import confirmed
    from shotfit.classifier import FewShotClassifier
    from shotfit.data.inputs import as_dataset
    from shotfit.observers.counting import counting

    dataset = as_dataset(data, root)
    classifier = FewShotClassifier.from_pretrained(
        model,
        device=device,
        int8=int8,
        backbone=confirmed(model, backbone),
        published_scores=published_scores,
    )
    with counting(quiet=quiet) as watch:
        found = classifier.evaluate(
            dataset, classes=names, as_novel=as_novel, zero_shot=zero_shot, watch=watch
        )
    if csv is not None:
        shown.write_csv(found, csv)
    if keep_predictions is not None:
        shown.write_predictions(found, keep_predictions)
    if as_json:
        print(json.dumps(found.plain(), indent=2, ensure_ascii=False))
    else:
        shown.show_evaluation(found)
