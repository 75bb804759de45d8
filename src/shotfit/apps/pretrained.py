"""The pretrained model that a saved classifier refers to, with a question where one is due."""

import sys

import typer


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
