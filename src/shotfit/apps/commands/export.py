"""shotfit export onnx | merged | peft"""

import json
from pathlib import Path
from typing import Annotated

import typer

from shotfit.apps import options

EXAMPLES = (
    "shotfit export onnx pets pets-onnx",
    "shotfit export onnx pets pets-onnx --int8 --no-text",
    "shotfit export merged pets pets-clip --example photo.jpg",
    "shotfit export merged pets pets-clip --backbone ./clip",
    "shotfit export peft pets pets-adapter",
    "shotfit export peft pets pets-adapter --backbone ./clip",
)

app = typer.Typer(
    help="Write a saved classifier for other programs: ONNX, transformers, PEFT.",
    no_args_is_help=True,
)

Model = Annotated[str, typer.Argument(help="A saved classifier.")]
Out = Annotated[Path, typer.Argument(help="The folder to write.")]


@app.command()
def onnx(
    model: Model,
    out: Out,
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
    overwrite: options.Overwrite = False,
    backbone: options.SavedBackbone = None,
    as_json: options.Json = False,
) -> None:
    """Image tower, class matrix and text tower as files that `shotfit.runtime` answers from,
    without torch.
    """
    from shotfit.apps.pretrained import confirmed
    from shotfit.classifier import FewShotClassifier
    from shotfit.export.onnx import OnnxOptions, export_onnx
    from shotfit.export.place import check_place

    check_place(out.expanduser(), overwrite=overwrite)
    classifier = FewShotClassifier.from_pretrained(model, backbone=confirmed(model, backbone))
    found = export_onnx(classifier, out, OnnxOptions(batch, text, int8), overwrite=overwrite)
    if as_json:
        facts = {"folder": str(found.folder), "sizes": found.sizes, "difference": found.difference}
        print(json.dumps(facts))
        return
    for name, size in found.sizes.items():
        print(f"{size / 1e6:10.2f} MB  {found.folder / name}")
    print(f"Scores lie within {found.difference:.1e} of PyTorch's, as cosines, on images of noise.")


@app.command()
def merged(
    model: Model,
    out: Out,
    example: Annotated[
        Path | None, typer.Option(help="An image that its model card shows on a hub.")
    ] = None,
    overwrite: options.Overwrite = False,
    backbone: options.SavedBackbone = None,
) -> None:
    """The tuned encoders as a plain transformers checkpoint, for pipelines and other programs.

    It answers by names alone: the rows of a second stage are no part of it.
    """
    from shotfit.apps.pretrained import confirmed
    from shotfit.classifier import FewShotClassifier
    from shotfit.export.merged import export_merged
    from shotfit.export.place import check_place

    check_place(out.expanduser(), overwrite=overwrite)
    classifier = FewShotClassifier.from_pretrained(model, backbone=confirmed(model, backbone))
    found = export_merged(classifier, out, example=example, overwrite=overwrite)
    print(f"{found.folder}: unit embeddings lie within {found.difference:.1e} of the classifier's.")
    print(f"Its names were trained in hypothesis_template={found.template!r}.")
    if found.several:
        print("Others were averaged with it, which a plain model has no place for.")


@app.command()
def peft(
    model: Model,
    out: Out,
    overwrite: options.Overwrite = False,
    backbone: options.SavedBackbone = None,
) -> None:
    """LayerNorm tuning or LoRA as an adapter that PeftModel.from_pretrained loads."""
    from shotfit.apps.pretrained import confirmed
    from shotfit.classifier import FewShotClassifier
    from shotfit.export.adapter import export_peft
    from shotfit.export.place import check_place

    check_place(out.expanduser(), overwrite=overwrite)
    classifier = FewShotClassifier.from_pretrained(model, backbone=confirmed(model, backbone))
    found = export_peft(classifier, out, overwrite=overwrite)
    print(
        f"{found.folder}: {found.kind}, unit embeddings within {found.difference:.1e} of the "
        "classifier's."
    )
