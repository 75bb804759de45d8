"""Opening the page: the project, the server, the browser."""

import asyncio
import logging
import os
import tempfile
import threading
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from shotfit.apps.app.project import Project
from shotfit.apps.app.unlabelled import Unlabelled
from shotfit.errors import UsageError

SECONDS_TO_END = 2
"""What is under way when the server is ended has so long: a page that is open keeps a
connection for as long as it is."""


def open_page(
    folder: Path,
    backbone: str,
    host: str,
    port: int,
    *,
    browser: bool = True,
    unlabelled: str | None = None,
    names: Sequence[str] = (),
) -> None:
    """Serves the page of the project in `folder` until it is interrupted; with `unlabelled`
    pictures it opens where they are labelled, with these `names` and those of the project.

    Raises:
        UsageError: without gradio, and for pictures to label without a class.
        DataError: for a project or pictures that cannot be read.
    """
    try:
        # What was uploaded goes when the page does.
        with tempfile.TemporaryDirectory(prefix="shotfit-app-") as uploads:
            os.environ["GRADIO_TEMP_DIR"] = uploads
            os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
            import uvicorn

            from shotfit.apps.app.server import is_local, make_app
            from shotfit.apps.app.session import Session

            session = Session(Project(folder, backbone), local=is_local(host))
            for name in names:
                session.project.add_class(name)
            if unlabelled is not None:
                if not session.project.classes:
                    raise UsageError("Name the classes to choose among: --class cat --class dog.")
                session.unlabelled = Unlabelled(session.project, [unlabelled])
            app = make_app(session, "Pictures" if unlabelled is None else "Label")
            address = f"http://{host}:{port}"
            print(f"ShotFit is at {address}; Ctrl-C ends it. The project is in {folder}.")
            if not session.local:
                print("Note: whoever can reach this address can change the project.")
            if browser:
                threading.Timer(1.0, webbrowser.open, [address]).start()
            logging.getLogger("uvicorn.error").addFilter(_is_worth_telling)
            uvicorn.run(
                app,
                host=host,
                port=port,
                log_level="warning",
                timeout_graceful_shutdown=SECONDS_TO_END,
            )
    except ImportError as error:
        raise UsageError(
            f"The page needs its packages: pip install 'shotfit[app]' ({error})."
        ) from None


def _is_worth_telling(record: logging.LogRecord) -> bool:
    """Whether a line of the server's log is not about connections that were open at its end."""
    error = record.exc_info[1] if record.exc_info else None
    cut_off = isinstance(error, asyncio.CancelledError) or "graceful shutdown" in record.msg
    return not cut_off
