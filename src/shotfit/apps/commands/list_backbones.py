"""shotfit list-backbones"""

import json
from typing import Annotated

import typer


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
    from huggingface_hub import constants, scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    from shotfit.backbone import EMBEDDED
    from shotfit.backbone.catalogue import KNOWN

    rows = []
    for name, folder in EMBEDDED.items():
        if (folder / "config.json").is_file():
            rows.append(_row(name, _facts(folder / "config.json"), embedded=True))
    try:
        cache = scan_cache_dir(constants.HF_HUB_CACHE)
        repositories = [repo for repo in cache.repos if repo.repo_type == "model"]
    except CacheNotFound:
        repositories = []
    cached = {}
    for repo in repositories:
        configs = (
            file.file_path
            for revision in repo.revisions
            for file in revision.files
            if file.file_name == "config.json"
        )
        facts = _facts(next(configs, None))
        if facts[0] in ("clip", "siglip"):
            cached[repo.repo_id] = facts
    for name, *facts in KNOWN:
        rows.append(_row(name, facts, cached=name in cached))
        cached.pop(name, None)
    return rows + [_row(name, cached[name], cached=True) for name in sorted(cached)]


def _row(name: str, facts, embedded: bool = False, cached: bool = False) -> dict:
    keys = ("family", "image_size", "patch_size", "dim")
    return {
        "name": name,
        **dict(zip(keys, facts, strict=True)),
        "embedded": embedded,
        "cached": cached,
    }


def _facts(path) -> tuple:
    """Family, image side, patch and dimension, as far as the config says; None for the rest."""
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        vision = config.get("vision_config", {})
        dim = config.get("projection_dim") or vision.get("hidden_size")
        return config.get("model_type"), vision.get("image_size"), vision.get("patch_size"), dim
    except (OSError, ValueError, AttributeError):
        return None, None, None, None
