"""`shotfit export peft`: the first stage as an adapter that `PeftModel.from_pretrained` loads."""

import math
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from shotfit.card import adapter_card
from shotfit.classifier import FewShotClassifier
from shotfit.errors import UsageError
from shotfit.export.place import check_place, exported_folder
from shotfit.export.pretrained import (
    Pretrained,
    check_embeddings,
    first_stage,
    learned_inside,
    read_pretrained,
)
from shotfit.layers.lora import LoRALinear
from shotfit.methods.base import Method
from shotfit.sharing import is_repository, model_name


@dataclass(frozen=True)
class PeftExport:
    """What was written: the folder, PEFT's name of the kind, and the largest difference of unit
    embeddings after loading it again."""

    folder: Path
    kind: str
    difference: float


def export_peft(
    classifier: FewShotClassifier, folder: str | Path, *, overwrite: bool = True
) -> PeftExport:
    """Writes LayerNorm tuning or LoRA as a PEFT adapter, loads it again, and compares.

    As with `export_merged`, the rows of a second stage are no part of it.

    Raises:
        UsageError: for a method that is neither, or when peft is not installed.
        DataError: as `exported_folder`, or when the pretrained model is gone.
    """
    try:
        import peft  # noqa: F401
    except ImportError:
        raise UsageError("PEFT adapters need peft: pip install 'shotfit[peft]'.") from None
    folder = Path(folder).expanduser()
    check_place(folder, overwrite=overwrite)
    method = first_stage(classifier)
    found = read_pretrained(classifier)
    pairs = _pairs(classifier, found)
    lora = all(isinstance(own, LoRALinear) for own, _ in pairs)
    adapter = _lora if lora else _norms
    with exported_folder(folder, overwrite=overwrite) as made, warnings.catch_warnings():
        # PEFT looks layers up by ways that it calls deprecated, and asks for care with norms.
        warnings.simplefilter("ignore")
        _save(adapter(found, pairs), classifier, method, made)
        difference = _check(classifier, method, made)
    return PeftExport(folder, "LORA" if lora else "LN_TUNING", difference)


def _pairs(classifier: FewShotClassifier, found: Pretrained) -> list[tuple[nn.Module, nn.Module]]:
    """The layers that have learned, and the same ones of the pretrained model.

    Raises:
        UsageError: when anything but norms, or anything but LoRA, has.
    """
    method, learned = first_stage(classifier), learned_inside(classifier, "a PEFT adapter")
    places = list(dict.fromkeys(name.rpartition(".")[0] for name in learned))
    own = dict(method.backbone.named_modules())
    kinds = {type(own[place]) for place in places}
    if kinds not in ({nn.LayerNorm}, {LoRALinear}):
        raise UsageError(
            f"{type(method).__name__} cannot be written as a PEFT adapter: of the ways to tune, "
            "LayerNorm and LoRA are those that both know. `shotfit export merged` may do."
        )
    plain = dict(found.backbone.named_modules())
    return [(own[place], plain[place]) for place in places]


@torch.no_grad()
def _norms(found: Pretrained, pairs: list[tuple[nn.Module, nn.Module]]) -> Any:
    from peft import LNTuningConfig, get_peft_model

    names = [found.name_of(plain) for _, plain in pairs]
    model: Any = get_peft_model(found.model, LNTuningConfig(target_modules=names))
    modules: dict[str, Any] = dict(model.base_model.model.named_modules())
    for (own, _), name in zip(pairs, names, strict=True):
        tuned: Any = modules[name].ln_tuning_layers["default"]
        tuned.load_state_dict(own.state_dict())
    return model


@torch.no_grad()
def _lora(found: Pretrained, pairs: list[tuple[nn.Module, nn.Module]]) -> Any:
    from peft import LoraConfig, get_peft_model

    names = [found.name_of(plain) for _, plain in pairs]
    first: Any = pairs[0][0]
    rank = first.lora_a.shape[0]
    config = LoraConfig(
        r=rank, lora_alpha=first.scaling * rank, target_modules=names, lora_dropout=0.0
    )
    model: Any = get_peft_model(found.model, config)
    modules: dict[str, Any] = dict(model.base_model.model.named_modules())
    for (own, _), name in zip(pairs, names, strict=True):
        layer: Any = own
        assert math.isclose(layer.scaling, first.scaling) and layer.lora_a.shape[0] == rank
        modules[name].lora_A["default"].weight.copy_(layer.lora_a)
        modules[name].lora_B["default"].weight.copy_(layer.lora_b)
    return model


def _save(model: Any, classifier: FewShotClassifier, method: Method, folder: Path) -> None:
    """Writes the adapter with our card; PEFT itself would note where the model was read from here,
    in both."""
    experiment = classifier.experiment
    config = model.peft_config["default"]
    config.base_model_name_or_path = model_name(experiment.backbone)
    config.revision = experiment.revision if is_repository(experiment.backbone) else None
    model.save_pretrained(str(folder))
    card = adapter_card(experiment, classifier.classes, method.template)
    (folder / "README.md").write_text(card, encoding="utf-8")


def _check(classifier: FewShotClassifier, method: Method, folder: Path) -> float:
    from peft import PeftModel

    found = read_pretrained(classifier)
    loaded: Any = PeftModel.from_pretrained(found.model, str(folder))
    merged = loaded.merge_and_unload()
    spec = found.backbone.image_spec
    other = type(found.backbone).from_model(merged, found.backbone.tokenizer, spec)
    return check_embeddings(method, other.to(method.backbone.device))
