"""OpenAI and open_clip weights to a transformers-format folder that `Backbone` loads.

Names: both projects store the model of Radford et al., 2021, alike. Queries, keys and values of a
block are one matrix, and the two projections are matrices that are multiplied from the right.
"""

import json
import re
import shutil
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shotfit.backbone.convert.tensor_files import Source, read_source
from shotfit.data.transforms import CLIP_MEAN, CLIP_STD
from shotfit.errors import DataError, UsageError
from shotfit.system.folders import folder_written_whole, is_empty, readable_as_its_folder, recover

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

    Warns when the tokenizer knows fewer tokens than the model, which may be padding.

    Raises:
        UsageError: for a destination in use, a model that is not a vision-transformer CLIP, or an
            activation or a number of heads that is stated nowhere or impossible.
        DataError: for unreadable files, tensors left over, missing or not finite, and the
            tokenizer of another model. Nothing is left at `destination` then.
    """
    from transformers import CLIPModel

    recover(destination)
    if destination.exists() and (not destination.is_dir() or not is_empty(destination)):
        raise UsageError(f"{destination} exists already; give a new folder.")
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
    _check_values(read.weights, source)
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise DataError(f"The tensors of {source} do not fit together: {error}") from error
    preprocessor = json.dumps(_preprocessor(read, config.vision_config.image_size), indent=2) + "\n"
    try:
        with folder_written_whole(destination) as folder:
            config.save_pretrained(folder)
            if tokenizer:
                _copy_tokenizer(tokenizer, folder, config.text_config.vocab_size)
            (folder / "preprocessor_config.json").write_text(preprocessor, encoding="utf-8")
            model.save_pretrained(folder)
            for written in folder.glob("*.safetensors"):
                readable_as_its_folder(written)
            again = CLIPModel.from_pretrained(folder).state_dict()
            _check_names(set(again), set(state), folder)
            changed = [name for name in state if not torch.equal(again[name], state[name])]
            if changed:
                raise DataError(
                    f"{destination} was not written correctly: {', '.join(changed[:3])}."
                )
    except OSError as error:
        raise DataError(f"Cannot write {destination}: {error}") from error


def _config(source: Source, quick_gelu: bool, heads: int | None) -> Any:
    from transformers import CLIPConfig

    weights = source.weights
    width, _, patch, _ = _shape(weights, "visual.conv1.weight", 4)
    places, _ = _shape(weights, "visual.positional_embedding", 2)
    side = round((places - 1) ** 0.5) * patch
    _, dim = _shape(weights, "visual.proj", 2)
    vocabulary, text_width = _shape(weights, "token_embedding.weight", 2)
    length, _ = _shape(weights, "positional_embedding", 2)
    hidden = [
        _shape(weights, f"{t}transformer.resblocks.0.mlp.c_fc.bias", 1)[0] for t in ("visual.", "")
    ]
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


def _shape(weights: dict[str, Tensor], name: str, dimensions: int) -> tuple[int, ...]:
    if name not in weights:
        raise UsageError(
            f"This is not a CLIP with a vision transformer ({name} is missing); ResNet, timm and "
            "Hugging Face towers cannot be converted."
        )
    shape = tuple(weights[name].shape)
    if len(shape) != dimensions or 0 in shape:
        raise DataError(
            f"This is not a CLIP with a vision transformer: {name} has the shape {shape}, and "
            f"{dimensions} {'dimension is' if dimensions == 1 else 'dimensions are'} due."
        )
    return shape


def _heads(source: Source, width: int, text_width: int, given: int | None) -> tuple[int, int]:
    """Attention heads of the image and the text tower, which no tensor's shape reveals."""
    if given is not None:
        _check_heads("image", width, given)
    if not source.facts:
        return given or _usual_heads("image", width), _usual_heads("text", text_width)
    # What a config leaves out has open_clip's default.
    model = source.facts["model_cfg"]
    head_width = _count(model.get("vision_cfg", {}), "head_width", 64)
    text = _count(model.get("text_cfg", {}), "heads", 8)
    _check_heads("text", text_width, text)
    if given is None:
        _check_heads("image", width, width // head_width)
    return given or width // head_width, text


def _count(tower: dict[str, Any], name: str, default: int) -> int:
    value = tower.get(name, default)
    if type(value) is not int or value < 1:
        raise DataError(f"The config of open_clip has {name} = {value!r}; a whole number is due.")
    return value


def _check_heads(tower: str, width: int, heads: int) -> None:
    if heads < 1 or width % heads:
        raise UsageError(f"The {tower} tower, of width {width}, cannot have {heads} heads.")


def _usual_heads(tower: str, width: int) -> int:
    if width % 64 or width > _WIDEST_OF_64[tower]:
        option = ", or their number with --heads (16 for ViT-H, g and bigG)"
        raise UsageError(
            f"The file does not say how many attention heads its {tower} tower of width {width} "
            f"has: give the folder with open_clip_config.json{option if tower == 'image' else ''}."
        )
    return width // 64


def _depth(weights: dict[str, Tensor], tower: str) -> int:
    """How many blocks there are; numbers with gaps are not names of blocks."""
    found = (re.match(rf"{re.escape(tower)}transformer\.resblocks\.(\d+)\.", k) for k in weights)
    return len({match[1] for match in found if match})


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
                if value.dim() == 0 or len(value) % 3:
                    raise DataError(f"{name} has the shape {tuple(value.shape)}: not three parts.")
                for part, rows in zip("qkv", value.chunk(3), strict=True):
                    state[f"{prefix}.self_attn.{part}_proj.{kind}"] = rows.contiguous()
            else:
                state[f"{prefix}.{_INNER.get(inner, inner)}.{kind}"] = value
        elif name in _OUTER:
            right = name in ("visual.proj", "text_projection")
            if right and value.dim() == 2:
                value = value.T.contiguous()
            if name == "logit_scale" and value.numel() == 1:  # some store it as a list of one
                value = value.reshape(())
            state[_OUTER[name]] = value
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


def _check_values(weights: dict[str, Tensor], source: Path) -> None:
    """Refuses numbers that no trained model has, before anything is written."""
    for name, value in weights.items():
        if not value.is_floating_point() or value.layout != torch.strided:
            raise DataError(f"{name} of {source} is no plain tensor of floating-point numbers.")
        if not torch.isfinite(value).all():
            raise DataError(
                f"{name} of {source} holds NaN or infinite numbers: the training has diverged, or "
                "the file is damaged."
            )
    scale = weights["logit_scale"]
    if scale.numel() != 1:
        raise DataError(
            f"logit_scale of {source} has the shape {tuple(scale.shape)}, not one number."
        )


def _copy_tokenizer(source: Path, folder: Path, vocabulary: int) -> None:
    """Copies the files, and asks the tokenizer that `folder` then has whether it is the model's.

    A token that the model has no embedding for is certainly another model's. Embeddings for more
    tokens than there are may be padding, to a size that is faster to multiply.
    """
    from transformers import AutoTokenizer

    for name in TOKENIZER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)
    try:
        read = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        largest = max(read.get_vocab().values(), default=-1)
    except Exception as error:  # transformers fails in many ways on files it does not know
        raise DataError(f"The tokenizer in {source} cannot be read: {error}") from error
    problem = (
        f"gives tokens up to {largest}, and the model knows {vocabulary}, counted from 0. Give the "
        "tokenizer that the model was trained with."
    )
    if largest >= vocabulary:
        raise DataError(f"The tokenizer in {source} is another model's: it {problem}")
    if largest + 1 < vocabulary:
        warnings.warn(
            f"The tokenizer in {source} may be another model's: it {problem}", stacklevel=3
        )


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
        "image_mean": list(facts.get("mean") or CLIP_MEAN),
        "image_std": list(facts.get("std") or CLIP_STD),
    }
