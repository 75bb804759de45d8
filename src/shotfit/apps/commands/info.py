"""shotfit info"""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from shotfit.apps import options

EXAMPLES = (
    "shotfit info pets",
    "shotfit info pets --json",
)


def info(
    model: Annotated[Path, typer.Argument(help="A saved classifier.")],
    as_json: options.Json = False,
) -> None:
    """What a saved classifier is; its files are checked against their hashes."""
    from shotfit.apps.words import words_lines
    from shotfit.data.template import Words
    from shotfit.saved_settings import read_settings, words_of
    from shotfit.saving import is_unfinished, read_provenance
    from shotfit.system.terminal import printable

    settings = read_settings(model)
    names = [*settings["trained_names"], *settings["added_names"]]
    classes = [names[index] for index in settings["kept"]]
    if as_json:
        print(json.dumps({**settings, "classes": classes}, indent=2, ensure_ascii=False))
        return
    experiment = settings["experiment"]
    size = sum((model / file).stat().st_size for file in settings["files"])
    stages = " then ".join(stage["method"] for stage in settings["stages"])
    if is_unfinished(read_provenance(model)):
        print("UNFINISHED: the fit was interrupted, and this is what was there then")
    print(printable(f"backbone   {experiment['backbone']}"))
    print(f"stages     {stages}")
    print(f"shots      {experiment['shots'] or 'all images'}, seed {experiment['seed']}")
    print(f"scores     {_rule(settings.get('assessment'))}")
    print(f"tensors    {size:,} bytes, unaltered")
    embedded_by = words_of(settings)
    if isinstance(embedded_by, Words):
        for number, line in enumerate(words_lines(embedded_by)):
            print(f"{'' if number else 'words':10} {line}")
    added = sum(place >= len(settings["trained_names"]) for place in settings["kept"])
    print(f"classes    {len(classes)} ({added} added later): {', '.join(classes)}")
    options.show_metrics(settings["metrics"])


def _rule(assessment: dict[str, Any] | None) -> str:
    """How its classes are compared."""
    if assessment is None:
        return "as published: trained rows and names as they are"
    numbers = assessment["calibration"]
    return (
        f"fitted on the shots: trained classes {numbers['level']:+.2f} against names "
        "(--published-scores for the published ones)"
    )
