"""shotfit app"""

from pathlib import Path
from typing import Annotated

import typer

from shotfit.apps import options

EXAMPLES = (
    "shotfit app",
    "shotfit app pets --backbone openai/clip-vit-base-patch32 --port 8080",
)


def app(
    project: Annotated[
        Path, typer.Argument(help="Folder of the project: pictures, names, classifier.")
    ] = Path("shotfit-project"),
    backbone: options.PageBackbone = "iconclip",
    host: options.Host = "127.0.0.1",
    port: options.Port = 7860,
    browser: options.Browser = True,
) -> None:
    """Open a page: name classes, give pictures, fit, try, correct, take the classifier away.

    Nothing is loaded from elsewhere, and nothing leaves this computer.
    """
    from shotfit.apps.app.opening import open_page

    open_page(project, backbone, host, port, browser=browser)
