"""What the tabs of the page share, and how they tell what went wrong."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from shotfit.apps.app.fitting import Fitting
from shotfit.apps.app.pictures import Upload
from shotfit.apps.app.project import Project
from shotfit.apps.app.unlabelled import Unlabelled
from shotfit.errors import DataError, UsageError

SECONDS = 12.0
"""For which an error is shown."""


@dataclass
class Session:
    """A project and what is going on with it."""

    project: Project
    local: bool = True
    """Whether the page is for this computer alone, so that it may name folders of it."""
    fitting: Fitting | None = None
    unlabelled: Unlabelled | None = None


def told(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with what a person can mend shown on the page as a sentence."""

    @functools.wraps(function)
    def inner(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except (DataError, UsageError) as error:
            raise gr.Error(
                str(error), duration=SECONDS, title="That did not work", print_exception=False
            ) from error

    return inner


def uploaded(paths: Sequence[str] | str | None, limit: int) -> list[Upload]:
    """Names and contents of files that the page was given.

    Raises:
        DataError: for more than `limit` at once.
    """
    found = [paths] if isinstance(paths, str) else list(paths or ())
    if len(found) > limit:
        raise DataError(f"At most {limit:,} pictures at once, got {len(found):,}.")
    return [(Path(path).name, Path(path).read_bytes()) for path in found]
