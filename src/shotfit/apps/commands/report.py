"""shotfit report"""

from pathlib import Path
from typing import Annotated

import typer

from shotfit.apps import options
from shotfit.errors import UsageError
from shotfit.system.files import check_new

EXAMPLES = (
    "shotfit report pets",
    "shotfit report pets photos/test --out pets.html",
)


def report(
    model: Annotated[Path, typer.Argument(help="A saved classifier.")],
    data: Annotated[
        str | None,
        typer.Argument(
            help="Images to score it on: a folder, a manifest or an embedded task. Without, the "
            "page has what was found right after the fit."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The page. [default: report.html in the folder]")
    ] = None,
    overwrite: options.Overwrite = False,
    published_scores: options.PublishedScores = False,
    backbone: options.SavedBackbone = None,
    device: options.Device = None,
    root: options.Root = None,
    quiet: options.Quiet = False,
) -> None:
    """Write one HTML page that says what a classifier is made of, how good it is, and what to do.

    It loads nothing from elsewhere: it can be mailed, printed and kept.
    """
    if out is not None and not out.parent.is_dir():
        raise UsageError(f"There is no folder {out.parent} for {out.name}.")
    if out is not None:
        check_new(out, overwrite=overwrite)
    from shotfit.apps.pretrained import confirmed
    from shotfit.apps.report import default_target, write_report
    from shotfit.classifier import FewShotClassifier
    from shotfit.data.inputs import as_dataset
    from shotfit.observers.counting import counting

    dataset = None if data is None else as_dataset(data, root=root)
    classifier = FewShotClassifier.from_pretrained(
        model,
        device=device,
        backbone=confirmed(str(model), backbone),
        published_scores=published_scores,
    )
    with counting(quiet=quiet) as watch:
        page = write_report(model, classifier, dataset, out or default_target(model), watch)
    print(f"Wrote {page}")
