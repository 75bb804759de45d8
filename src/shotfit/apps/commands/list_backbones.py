"""shotfit list-backbones"""

import json
from typing import Annotated

import typer

EXAMPLES = (
    "shotfit list-backbones",
    "shotfit list-backbones --json",
)


def list_backbones(
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Models that ShotFit adapts: embedded, well known, and what is in the local cache.

    Any other CLIP or fixed-resolution SigLIP model works as well, by hub id or folder.
    """
    rows = _rows()
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    # Names are there to be copied: never cut, and those of the list whole in 80 columns.
    headers = ("backbone", "family", "image", "patch", "dim", "here")
    table = Table(*headers, show_edge=False, pad_edge=False)
    table.columns[0].overflow = "fold"
    for row in rows:
        facts = (row[key] for key in ("family", "image_size", "patch_size", "dim"))
        where = "embedded" if row["embedded"] else "cached" if row["cached"] else ""
        table.add_row(row["name"], *("?" if fact is None else str(fact) for fact in facts), where)
    Console().print(table)


def _rows() -> list[dict]:
    from shotfit.backbone import EMBEDDED
    from shotfit.backbone.cached import cached_models, model_facts
    from shotfit.backbone.catalogue import KNOWN

    rows = []
    for name, folder in EMBEDDED.items():
        if (folder / "config.json").is_file():
            rows.append(_row(name, model_facts(folder / "config.json"), embedded=True))
    cached = cached_models()
    for name, *facts in KNOWN:
        rows.append(_row(name, facts, cached=name in cached))
        cached.pop(name, None)
    return rows + [_row(name, facts, cached=True) for name, facts in cached.items()]


def _row(name: str, facts, embedded: bool = False, cached: bool = False) -> dict:
    keys = ("family", "image_size", "patch_size", "dim")
    return {
        "name": name,
        **dict(zip(keys, facts, strict=True)),
        "embedded": embedded,
        "cached": cached,
    }
