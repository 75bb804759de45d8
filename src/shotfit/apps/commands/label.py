"""shotfit label"""

from pathlib import Path
from typing import Annotated

import typer

from shotfit.apps import options

EXAMPLES = (
    "shotfit label photos/unsorted --class cat --class dog",
    "shotfit label photos/unsorted --project pets",
)


def label(
    folder: Annotated[str, typer.Argument(help="A folder of pictures, or a pattern.")],
    project: Annotated[
        Path, typer.Option(help="Folder of the project that the labelled pictures go to.")
    ] = Path("shotfit-project"),
    classes: Annotated[
        list[str] | None, typer.Option("--class", help="Names to choose among, beside its own.")
    ] = None,
    backbone: options.PageBackbone = "iconclip",
    host: options.Host = "127.0.0.1",
    port: options.Port = 7860,
    browser: options.Browser = True,
) -> None:
    """Label pictures with a click each, those first that a classifier learns most from.

    The page is that of `shotfit app`, opened at its tab Label.
    """
    from shotfit.apps.app.opening import open_page

    open_page(
        project,
        backbone,
        host,
        port,
        browser=browser,
        unlabelled=folder,
        names=tuple(classes or ()),
    )
