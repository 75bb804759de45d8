"""Models that were downloaded before, in the cache of the Hugging Face hub."""

from pathlib import Path

from shotfit.system.parsing import parse_json

Facts = tuple[str | None, int | None, int | None, int | None]
"""Family, image side and patch in pixels, dimension, as far as the config says."""


def cached_models() -> dict[str, Facts]:
    """The CLIP and SigLIP models of the cache by their ids, in order."""
    from huggingface_hub import constants, scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        cache = scan_cache_dir(constants.HF_HUB_CACHE)
    except CacheNotFound:
        return {}
    found = {}
    for repo in cache.repos:
        files = [file for revision in repo.revisions for file in revision.files]
        configs = [file.file_path for file in files if file.file_name == "config.json"]
        if repo.repo_type == "model" and configs:
            facts = model_facts(configs[0])
            if facts[0] in ("clip", "siglip"):
                found[repo.repo_id] = facts
    return dict(sorted(found.items()))


def model_facts(config: Path) -> Facts:
    """What the config of a model says."""
    try:
        facts = parse_json(config.read_text(encoding="utf-8"))
        vision = facts.get("vision_config", {})
        dim = facts.get("projection_dim") or vision.get("hidden_size")
        return facts.get("model_type"), vision.get("image_size"), vision.get("patch_size"), dim
    except (OSError, ValueError, AttributeError):
        return None, None, None, None
