"""Prompt templates: a sentence with one {} where the class name goes."""

from string import Formatter
from typing import Annotated

from shotfit.config import Must
from shotfit.errors import UsageError

# What the code of 2SFS feeds every dataset, full stop included.
TEMPLATE = "a photo of a {}."


def is_template(text: str) -> bool:
    """Whether `text.format(name)` puts the name in one place and asks for nothing else."""
    try:
        parts = list(Formatter().parse(text))
    except ValueError:  # a brace that opens or closes nothing
        return False
    places = [part[1:] for part in parts if part[1] is not None]
    return places == [("", "", None)]


def check_template(text: str) -> None:
    """Refuses a text that is not a template.

    Raises:
        UsageError: saying what is missing.
    """
    if not is_template(text):
        raise UsageError(f"The template {text!r} must hold {{}} once, where the class name goes.")


Template = Annotated[str, Must("hold {} once, where the class name goes", is_template)]
"""The type of an option that takes a template."""
