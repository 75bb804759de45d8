"""Tensors out of OpenAI's and open_clip's files, and nothing else.

This is the one place that reads files which are not safetensors, because a user asks for it by
name, and it takes tensors from them only: state dicts through torch's weights-only reader, which
refuses every other object, and OpenAI's archives as in `torchscript.py`. Nothing in them runs.
"""

import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from shotfit.backbone.convert.torchscript import read_torchscript
from shotfit.errors import DataError, UsageError
from shotfit.system.parsing import parse_json

# Entries of open_clip's configs that change the model but none of its tensors, with the values of
# the CLIP that is implemented here.
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
# Where training scripts put the weights, beside their counters and optimizers.
_WRAPPINGS = ("state_dict", "model")


@dataclass(frozen=True)
class Source:
    """What was read: tensors in OpenAI's naming, and open_clip's config where there is one."""

    weights: dict[str, Tensor]
    quick_gelu: bool | None = None
    """Whether the activation is x sigmoid(1.702 x); None when the file does not say."""
    facts: dict[str, Any] = field(default_factory=dict)
    """The config of open_clip, its sections checked to be objects; empty without one."""


def read_source(path: Path) -> Source:
    """The tensors of an OpenAI archive, a state dict, or an open_clip folder.

    Raises:
        UsageError: for a config of open_clip that transformers' CLIP cannot represent.
        DataError: when the file is missing, broken, or holds no weights or more than tensors.
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
    quick_gelu = facts["model_cfg"].get("quick_gelu", False) if facts else None
    kind = _kind(path)
    try:
        found = _READERS[kind](path)
    except Exception as error:  # each reader fails in its own way
        reason = str(error) or type(error).__name__
        raise DataError(f"{path} cannot be read as tensors only: {reason}") from error
    # Only OpenAI published archives of this kind, all with its activation.
    return Source(_weights(found, path), True if kind == "torchscript" else quick_gelu, facts)


def _read_facts(config: Path) -> dict[str, Any]:
    """A config of open_clip whose sections are objects; a missing section is empty."""

    def section(of: Any, name: str, what: str) -> dict[str, Any]:
        value = of.get(name, {})
        if not isinstance(value, dict):
            raise DataError(f"{config} is no config of open_clip: {what} is {value!r}.")
        return value

    try:
        facts = parse_json(config.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{config} is no config of open_clip: {error}") from error
    if not isinstance(facts, dict) or "model_cfg" not in facts:
        raise DataError(f"{config} is no config of open_clip: it has no model_cfg.")
    if facts.get("preprocess_cfg") is None:  # null, where an export did not know
        facts["preprocess_cfg"] = {}
    preprocess = section(facts, "preprocess_cfg", "preprocess_cfg")
    model = section(facts, "model_cfg", "model_cfg")
    towers = [section(model, tower, f"model_cfg.{tower}") for tower in ("vision_cfg", "text_cfg")]
    if not isinstance(model.get("quick_gelu", False), bool):
        raise DataError(f"{config} has quick_gelu = {model['quick_gelu']!r}; true or false is due.")
    for tower in towers:
        for name, value in tower.items():
            if value and value not in _ANOTHER_MODEL.get(name, (value,)):
                raise UsageError(
                    f"This model cannot be converted: {config} has {name} = {value!r}, which the "
                    "CLIP of transformers does not have."
                )
    for name in ("mean", "std"):
        value = preprocess.get(name)
        if value is not None and not _is_three_numbers(value):
            raise DataError(f"{config} has {name} = {value!r}; three numbers are due.")
    return facts


def _is_three_numbers(value: Any) -> bool:
    numbers = isinstance(value, list) and all(type(v) in (int, float) for v in value)
    return numbers and len(value) == 3


Kind = Literal["safetensors", "torchscript", "torch"]


def _kind(path: Path) -> Kind:
    """What a file is by its first bytes: names and endings say little."""
    try:
        with path.open("rb") as file:
            start = file.read(9)
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                scripted = any(name.endswith("/constants.pkl") for name in archive.namelist())
            return "torchscript" if scripted else "torch"
    # ValueError for names that are no text, NotImplementedError for forms of zip that nobody uses.
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    if start[8:] == b"{":
        return "safetensors"
    if start[:1] == b"\x80":  # a pickle, as torch wrote before its archives
        return "torch"
    if not start:
        raise DataError(f"{path} is empty; copy or download it again.")
    raise DataError(
        f"{path} is neither a torch archive nor safetensors: it begins with {start!r}. A text file "
        "here is mostly the pointer of an unfinished download."
    )


def _read_safetensors(path: Path) -> Any:
    from safetensors.torch import load_file

    return load_file(path)


def _read_torch(path: Path) -> Any:
    return torch.load(path, map_location="cpu", weights_only=True)


_READERS = {
    "safetensors": _read_safetensors,
    "torchscript": read_torchscript,
    "torch": _read_torch,
}


def _weights(found: Any, path: Path) -> dict[str, Tensor]:
    """The tensors in single precision, their names without the prefixes of distributed training
    and of open_clip's separate text module.

    Anything that is not a tensor (an epoch, an optimizer) is not a weight either and is left out;
    should a weight be lost that way, it is reported as missing.
    """
    for wrapping in _WRAPPINGS:
        if isinstance(found, dict) and isinstance(found.get(wrapping), dict):
            found = found[wrapping]
    if not isinstance(found, dict):
        raise DataError(f"{path} holds no weights by name: it is a {type(found).__name__}.")
    tensors = {name: value for name, value in found.items() if isinstance(value, Tensor)}
    if not tensors:
        names = ", ".join(repr(name) for name in list(found)[:3]) or "nothing"
        raise DataError(f"{path} holds no tensors, under state_dict, model or directly: {names}.")
    plain: dict[str, Tensor] = {}
    for name, value in tensors.items():
        if not isinstance(name, str):
            raise DataError(f"{path} has a tensor under {name!r}, which is no name of a weight.")
        short = name.removeprefix("module.").removeprefix("text.")
        if short in _NOT_WEIGHTS:
            continue
        if short in plain:
            raise DataError(f"{path} has two tensors for {short}.")
        plain[short] = value.float() if value.is_floating_point() else value
    return plain
