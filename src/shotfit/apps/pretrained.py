"""A saved classifier that a command is to use or change, with a question where one is due."""

import sys
from pathlib import Path

import typer

from shotfit.system.locks import WriterLock

WAIT_SECONDS = 300.0


def confirmed(classifier: str, given: str | None) -> str | None:
    """The `backbone` to load a classifier with: `given`, or what a person agrees to; None where
    nothing has to be asked.

    Raises:
        OutsideModelError: for a model outside of a stranger's folder that nobody agreed to.
    """
    from shotfit import saving
    from shotfit.backbone.reference import OutsideModelError

    if given is not None:
        return given
    try:
        saving.pretrained_model(classifier)
    except OutsideModelError as refusal:
        if not sys.stdin.isatty():
            raise
        question = f"{classifier} needs the model {refusal.model!r}, outside of it. Use that one?"
        if not typer.confirm(question, err=True):
            raise
        return refusal.model
    return None


def changed_alone(classifier: Path) -> WriterLock:
    """Held while a saved classifier is read, changed and saved again, so that of two commands at
    once the second starts from what the first has saved.

    Raises:
        DataError: when another command has it for minutes.
    """
    return WriterLock(classifier.expanduser().resolve(), wait=WAIT_SECONDS)
