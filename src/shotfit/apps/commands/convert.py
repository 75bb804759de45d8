"""shotfit convert"""

from pathlib import Path
from typing import Annotated

import typer

EXAMPLES = (
    "shotfit convert ViT-B-16.pt vit-b-16 --tokenizer tokenizer",
    "shotfit convert open_clip_model clip --tokenizer tokenizer --gelu",
)


def convert(
    source: Annotated[Path, typer.Argument(help="OpenAI .pt, state dict, or open_clip folder.")],
    destination: Annotated[Path, typer.Argument(help="The folder to write; must be new or empty.")],
    tokenizer: Annotated[
        Path | None, typer.Option(help="Folder with CLIP's tokenizer files, to be copied.")
    ] = None,
    quick_gelu: Annotated[
        bool | None,
        typer.Option("--quick-gelu/--gelu", help="The activation, where the file does not say."),
    ] = None,
    heads: Annotated[
        int | None,
        typer.Option(
            min=1, help="Attention heads of the image tower, where the file does not say."
        ),
    ] = None,
) -> None:
    """Convert OpenAI or open_clip weights to a folder that ShotFit loads.

    Only tensors are read from SOURCE; still, convert only files that you trust.
    """
    from shotfit.backbone.convert import clip

    clip.convert(source, destination, tokenizer=tokenizer, quick_gelu=quick_gelu, heads=heads)
    print(destination)
    if tokenizer is None:
        typer.echo("shotfit: no --tokenizer given: add CLIP's tokenizer files to use it.", err=True)
