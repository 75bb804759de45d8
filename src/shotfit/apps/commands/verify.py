"""shotfit verify"""

import dataclasses
import json
from typing import Annotated

import typer

from shotfit.apps import options

EXAMPLES = (
    "shotfit verify pets",
    "shotfit verify pets --json",
)

MARKS = {True: "ok", False: "FAILED", None: "-"}


def verify(
    model: Annotated[str, typer.Argument(help="A saved classifier.")],
    backbone: options.SavedBackbone = None,
    device: options.Device = None,
    as_json: options.Json = False,
) -> None:
    """Look whether a saved classifier is whole and answers as it did when it was saved.

    Files and hashes, tensors, the pretrained model, the embeddings of class names, and the scores
    of a picture that were kept. Exit code 3 when one of them is not as it was.
    """
    from shotfit import saving
    from shotfit.apps.pretrained import confirmed
    from shotfit.errors import DataError
    from shotfit.system.terminal import printable
    from shotfit.verification import Check, verify

    checks: list[Check] = []
    try:
        given = confirmed(model, backbone)
    except DataError:
        # Said below, with what else is wrong.
        given = backbone
    for check in verify(saving.find(model), device=device, backbone=given):
        checks.append(check)
        if not as_json:
            line = f"{MARKS[check.passed]:<7}{check.what:<9}{check.detail}"
            print(printable(line), flush=True)
    failed = sum(check.passed is False for check in checks)
    if as_json:
        told = [dataclasses.asdict(check) for check in checks]
        print(json.dumps({"passed": not failed, "checks": told}, indent=2, ensure_ascii=False))
    if failed:
        raise typer.Exit(DataError.exit_code)
