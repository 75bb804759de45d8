"""The tiny model in open_clip's naming: what `convert` converts."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from shotfit.backbone.convert.clip import _INNER, _NORMS, _OUTER

FROM_THE_RIGHT = ("visual_projection.weight", "text_projection.weight")


def write_open_clip(backbone: Path, folder: Path) -> None:
    """Writes the model in `backbone`, of transformers, as open_clip would."""
    facts = json.loads((backbone / "config.json").read_text())
    vision, text = facts["vision_config"], facts["text_config"]
    head_width = vision["hidden_size"] // vision["num_attention_heads"]
    model = {
        "quick_gelu": True,
        "vision_cfg": {"head_width": head_width},
        "text_cfg": {"heads": text["num_attention_heads"]},
    }
    folder.mkdir()
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": model}))
    named = _named(load_file(backbone / "model.safetensors"))
    save_file(named, folder / "open_clip_model.safetensors")


def _named(state: dict[str, Tensor]) -> dict[str, Tensor]:
    outer, norms, inner = ({new: old for old, new in names.items()}
                           for names in (_OUTER, _NORMS, _INNER))  # fmt: skip
    found: dict[str, Tensor] = {}
    for name, value in state.items():
        module, _, kind = name.rpartition(".")
        if name in outer:
            found[outer[name]] = value.T.contiguous() if name in FROM_THE_RIGHT else value
        elif module in norms:
            found[f"{norms[module]}.{kind}"] = value
        elif ".layers." in module:
            tower, _, place = module.partition("_model.encoder.layers.")
            number, _, part = place.partition(".")
            block = f"{'visual.' if tower == 'vision' else ''}transformer.resblocks.{number}"
            if part == "self_attn.q_proj":
                parts = [state[f"{module[:-6]}{one}_proj.{kind}"] for one in "qkv"]
                found[f"{block}.attn.in_proj_{kind}"] = torch.cat(parts)
            elif part in inner:
                found[f"{block}.{inner[part]}.{kind}"] = value
    return found
