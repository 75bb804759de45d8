"""shotfit export onnx"""

import json
from pathlib import Path
from typing import Annotated

import typer

from shotfit.apps import options

app = typer.Typer(
    help="Write a saved classifier for other programs: ONNX.",
    no_args_is_help=True,
)

Model = Annotated[str, typer.Argument(help="A saved classifier.")]


@app.command()
def onnx(
    model: Model,
    out: Annotated[Path, typer.Argument(help="The folder to write.")],
    batch: Annotated[
        int | None, typer.Option(min=1, help="Images that it takes at once. [default: any number]")
    ] = None,
    text: Annotated[
        bool,
        typer.Option(
            "--text/--no-text", help="With the text tower, by which classes are added later."
        ),
    ] = True,
    int8: Annotated[
        bool,
        typer.Option("--int8", help="Matrix products in 8 bits: a quarter of the size, not exact."),
    ] = False,
    backbone: options.SavedBackbone = None,
    as_json: options.Json = False,
) -> None:
    """Image tower, class matrix and text tower as files that `shotfit.runtime` answers from,
    without torch.

    Examples:

      shotfit export onnx pets pets-onnx

      shotfit export onnx pets pets-small --int8 --no-text
    """
    from shotfit.apps.pretrained import confirmed
    from shotfit.classifier import FewShotClassifier
    from shotfit.export.onnx import OnnxOptions, export_onnx

    classifier = FewShotClassifier.from_pretrained(model, backbone=confirmed(model, backbone))
    found = export_onnx(classifier, out, OnnxOptions(batch, text, int8))
    if as_json:
        facts = {"folder": str(found.folder), "sizes": found.sizes, "difference": found.difference}
        print(json.dumps(facts))
        return
    for name, size in found.sizes.items():
        print(f"{size / 1e6:10.2f} MB  {found.folder / name}")
    print(f"Scores lie within {found.difference:.1e} of PyTorch's, as cosines, on images of noise.")
