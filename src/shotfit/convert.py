"""OpenAI and open_clip weights to a transformers-format folder that `Backbone` loads.

This is the one place that reads files which are not safetensors, because a user asks for it by
name, and it takes tensors from them and nothing else: state dicts through torch's weights-only
reader, which refuses every other object, and OpenAI's archives through the TorchScript reader,
which knows TorchScript's own types only and whose code is never called here. Still, convert only
files from a source that you trust.

Names: both projects store the model of Radford et al., 2021, alike. Queries, keys and values of a
block are one matrix, and the two projections are matrices that are multiplied from the right.
"""

import json
import re
import shutil
import warnings
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shotfit.data.images import CLIP_MEAN, CLIP_STD
from shotfit.errors import DataError, UsageError

TOKENIZER_FILES = (
    "merges.txt",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
)
# Heads are 64 wide in all of OpenAI's models, and in open_clip's up to these widths; its wider
# image towers have heads of 80, 88, 104 or 112.
_WIDEST_OF_64 = {"image": 1024, "text": 1280}
# What open_clip's configs may say that changes the model and none of its tensors, with the values
# that are CLIP's as it is here.
_ANOTHER_MODEL = {
    "pool_type": ("tok", "argmax"),
    "global_average_pool": (),
    "final_ln_after_pool": (),
    "no_causal_mask": (),
    "norm_kwargs": (),
    "act_kwargs": (),
}
_OPEN_CLIP_WEIGHTS = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")
# Shape facts and the causal mask, stored as if they were weights.
_NOT_WEIGHTS = ("input_resolution", "context_length", "vocab_size", "attn_mask")
_OUTER = {
    "visual.conv1.weight": "vision_model.embeddings.patch_embedding.weight",
    "visual.class_embedding": "vision_model.embeddings.class_embedding",
    "visual.positional_embedding": "vision_model.embeddings.position_embedding.weight",
    "visual.proj": "visual_projection.weight",
    "token_embedding.weight": "text_model.embeddings.token_embedding.weight",
    "positional_embedding": "text_model.embeddings.position_embedding.weight",
    "text_projection": "text_projection.weight",
    "logit_scale": "logit_scale",
}
_NORMS = {
    "visual.ln_pre": "vision_model.pre_layrnorm",
    "visual.ln_post": "vision_model.post_layernorm",
    "ln_final": "text_model.final_layer_norm",
}
_INNER = {
    "attn.out_proj": "self_attn.out_proj",
    "ln_1": "layer_norm1",
    "ln_2": "layer_norm2",
    "mlp.c_fc": "mlp.fc1",
    "mlp.c_proj": "mlp.fc2",
}
_BLOCK = re.compile(r"(visual\.)?transformer\.resblocks\.(\d+)\.(.+?)[._](weight|bias)")


@dataclass(frozen=True)
class Source:
    """What was read: tensors in OpenAI's naming, and open_clip's config where there is one."""

    weights: dict[str, Tensor]
    quick_gelu: bool | None = None
    """Whether the activation is x sigmoid(1.702 x); None when the file does not say."""
    facts: dict[str, Any] = field(default_factory=dict)


def read_source(path: Path) -> Source:
    """The tensors of an OpenAI archive, a state dict, or an open_clip folder.

    Raises:
        UsageError: for a config of open_clip that no CLIP of transformers can follow.
        DataError: when the file is missing, broken, or holds more than tensors.
    """
    facts: dict[str, Any] = {}
    if path.is_dir():
        config = path / "open_clip_config.json"
        found = [path / name for name in _OPEN_CLIP_WEIGHTS if (path / name).is_file()]
        if not found or not config.is_file():
            raise DataError(
                f"The folder {path} needs open_clip_config.json and {_OPEN_CLIP_WEIGHTS[0]}."
            )
        path = found[0]
        facts = _read_facts(config)
    if not path.is_file():
        raise DataError(f"There is no file {path}.")
    quick_gelu = bool(facts["model_cfg"].get("quick_gelu", False)) if facts else None
    scripted = _is_torchscript(path)
    try:
        weights = _tensors(path, scripted)
    except Exception as error:  # each reader fails in its own way
        raise DataError(f"{path} cannot be read as tensors only: {error}") from error
    # Only OpenAI published archives of this kind, all with its activation.
    return Source(_plain_names(weights), True if scripted else quick_gelu, facts)


def convert(
    source: Path,
    destination: Path,
    *,
    tokenizer: Path | None = None,
    quick_gelu: bool | None = None,
    heads: int | None = None,
) -> None:
    """Writes the model at `source` to the folder `destination`, and reads it back to check.

    `tokenizer` is a folder with a CLIP tokenizer, which weights do not hold. `quick_gelu` is
    needed for a bare state dict, which does not say its activation: True for OpenAI's models and
    those trained like them, False for most of LAION's. `heads` is the number of attention heads of
    the image tower, needed for a bare state dict wider than ViT-L.

    Raises:
        UsageError: for a destination in use, a model that is no vision transformer CLIP, or an
            activation or a number of heads that is nowhere said.
        DataError: for unreadable files, and tensors left over or missing.
    """
    from transformers import CLIPModel

    if destination.exists() and (not destination.is_dir() or any(destination.iterdir())):
        raise UsageError(f"{destination} exists already; give a new folder.")
    files = [tokenizer / name for name in TOKENIZER_FILES] if tokenizer else []
    if tokenizer and not (tokenizer / "tokenizer_config.json").is_file():
        raise DataError(f"The folder {tokenizer} holds no tokenizer_config.json.")
    read = read_source(source)
    gelu = read.quick_gelu if quick_gelu is None else quick_gelu
    if gelu is None:
        raise UsageError(
            f"{source} does not say its activation: give --quick-gelu for OpenAI's models and "
            "those trained like them, or --gelu, as for most of LAION's."
        )
    config = _config(read, gelu, heads)
    state = _rename(read.weights)
    model = CLIPModel(config)
    _check_names(set(model.state_dict()), set(state), source)
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise DataError(f"The tensors of {source} do not fit together: {error}") from error
    model.save_pretrained(destination)
    preprocessor = json.dumps(_preprocessor(read, config.vision_config.image_size), indent=2)
    (destination / "preprocessor_config.json").write_text(preprocessor + "\n", encoding="utf-8")
    for file in files:
        if file.is_file():
            shutil.copyfile(file, destination / file.name)
    again = CLIPModel.from_pretrained(destination).state_dict()
    _check_names(set(again), set(state), destination)
    changed = [name for name, value in state.items() if not torch.equal(again[name], value)]
    if changed:
        raise DataError(f"{destination} was not written correctly: {', '.join(changed[:3])}.")


def _read_facts(config: Path) -> dict[str, Any]:
    try:
        facts = json.loads(config.read_text(encoding="utf-8"))
        towers = [facts["model_cfg"].get(tower, {}) for tower in ("vision_cfg", "text_cfg")]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{config} is no config of open_clip: {error}") from error
    for tower in towers:
        for name, value in tower.items():
            if value and value not in _ANOTHER_MODEL.get(name, (value,)):
                raise UsageError(
                    f"This model cannot be converted: {config} has {name} = {value!r}, which the "
                    "CLIP of transformers does not have."
                )
    return facts


def _is_torchscript(path: Path) -> bool:
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith("/constants.pkl") for name in archive.namelist())


def _tensors(path: Path, scripted: bool) -> dict[str, Tensor]:
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        return load_file(path)
    if scripted:
        with warnings.catch_warnings():
            # torch announces TorchScript's end; OpenAI's files will not change.
            warnings.simplefilter("ignore")
            return dict(torch.jit.load(path, map_location="cpu").state_dict())
    state = torch.load(path, map_location="cpu", weights_only=True)
    return state.get("state_dict", state)


def _plain_names(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Without the prefixes of distributed training and of open_clip's separate text module."""
    plain = {}
    for name, value in weights.items():
        name = name.removeprefix("module.").removeprefix("text.")
        if name not in _NOT_WEIGHTS:
            plain[name] = value.float()
    return plain


def _config(source: Source, quick_gelu: bool, heads: int | None) -> Any:
    from transformers import CLIPConfig

    weights = source.weights
    try:
        width, _, patch, _ = weights["visual.conv1.weight"].shape
        side = round((len(weights["visual.positional_embedding"]) - 1) ** 0.5) * patch
        dim = weights["visual.proj"].shape[1]
        vocabulary, text_width = weights["token_embedding.weight"].shape
        length = len(weights["positional_embedding"])
        hidden = [
            len(weights[f"{t}transformer.resblocks.0.mlp.c_fc.bias"]) for t in ("visual.", "")
        ]
    except (KeyError, ValueError) as error:
        raise UsageError(
            f"This is not a CLIP with a vision transformer ({error} is missing or of another "
            "shape); ResNet, timm and Hugging Face towers cannot be converted."
        ) from error
    vision_heads, text_heads = _heads(source, width, text_width, heads)
    shared = {"hidden_act": "quick_gelu" if quick_gelu else "gelu", "projection_dim": dim}
    return CLIPConfig(
        vision_config={
            **shared,
            "hidden_size": width,
            "intermediate_size": hidden[0],
            "num_hidden_layers": _depth(weights, "visual."),
            "num_attention_heads": vision_heads,
            "image_size": side,
            "patch_size": patch,
        },
        text_config={
            **shared,
            "hidden_size": text_width,
            "intermediate_size": hidden[1],
            "num_hidden_layers": _depth(weights, ""),
            "num_attention_heads": text_heads,
            "vocab_size": vocabulary,
            "max_position_embeddings": length,
            "bos_token_id": vocabulary - 2,
            "eos_token_id": vocabulary - 1,
        },
        projection_dim=dim,
    )


def _heads(source: Source, width: int, text_width: int, given: int | None) -> tuple[int, int]:
    """Attention heads of the image and the text tower, which the shape of no tensor tells."""
    if given is not None and (given < 1 or width % given):
        raise UsageError(f"An image tower of width {width} cannot have {given} heads.")
    if source.facts:
        # What a config leaves out has open_clip's default.
        model = source.facts["model_cfg"]
        said = width // model.get("vision_cfg", {}).get("head_width", 64)
        return given or said, model.get("text_cfg", {}).get("heads", 8)
    return given or _usual_heads("image", width), _usual_heads("text", text_width)


def _usual_heads(tower: str, width: int) -> int:
    if width % 64 or width > _WIDEST_OF_64[tower]:
        option = ", or their number with --heads (16 for ViT-H, g and bigG)"
        raise UsageError(
            f"The file does not say how many attention heads its {tower} tower of width {width} "
            f"has: give the folder with open_clip_config.json{option if tower == 'image' else ''}."
        )
    return width // 64


def _depth(weights: dict[str, Tensor], tower: str) -> int:
    found = (re.match(rf"{re.escape(tower)}transformer\.resblocks\.(\d+)\.", k) for k in weights)
    return 1 + max((int(match[1]) for match in found if match), default=0)


def _rename(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """transformers' names; what has no place there keeps its own, to be reported."""
    state = {}
    for name, value in weights.items():
        block = _BLOCK.fullmatch(name)
        module, _, kind = name.rpartition(".")
        if block:
            tower, index, inner, kind = block.groups()
            prefix = f"{'vision' if tower else 'text'}_model.encoder.layers.{index}"
            if inner == "attn.in_proj":
                for part, rows in zip("qkv", value.chunk(3), strict=True):
                    state[f"{prefix}.self_attn.{part}_proj.{kind}"] = rows.contiguous()
            else:
                state[f"{prefix}.{_INNER.get(inner, inner)}.{kind}"] = value
        elif name in _OUTER:
            right = name in ("visual.proj", "text_projection")
            state[_OUTER[name]] = value.T.contiguous() if right else value
        elif module in _NORMS:
            state[f"{_NORMS[module]}.{kind}"] = value
        else:
            state[name] = value
    return state


def _check_names(expected: set[str], found: set[str], where: Path) -> None:
    # Position numbers are stored by some versions of transformers and always the same.
    expected = {name for name in expected if not name.endswith("position_ids")}
    problems = []
    if missing := sorted(expected - found):
        problems.append(f"missing {', '.join(missing[:3])} ({len(missing)} in all)")
    if left := sorted(found - expected):
        problems.append(f"left over {', '.join(left[:3])} ({len(left)} in all)")
    if problems:
        raise DataError(f"The tensors of {where} do not make a CLIP: {'; '.join(problems)}.")


def _preprocessor(source: Source, side: int) -> dict[str, Any]:
    facts = source.facts.get("preprocess_cfg", {})
    square = facts.get("resize_mode") == "squash"
    return {
        "image_processor_type": "CLIPImageProcessor",
        "do_convert_rgb": True,
        "do_resize": True,
        "size": {"height": side, "width": side} if square else {"shortest_edge": side},
        "resample": 2 if facts.get("interpolation") == "bilinear" else 3,
        "do_center_crop": not square,
        "crop_size": {"height": side, "width": side},
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(facts.get("mean", CLIP_MEAN)),
        "image_std": list(facts.get("std", CLIP_STD)),
    }
