"""`shotfit export merged`: a plain transformers checkpoint with the first stage folded in."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from shotfit.backbone.tower import LINEAR, Tower
from shotfit.card import EXAMPLE, EXAMPLE_PIXELS, merged_card
from shotfit.classifier import FewShotClassifier
from shotfit.data.images import ImageSource
from shotfit.data.thumbnails import small_picture
from shotfit.export.place import check_place, exported_folder
from shotfit.export.pretrained import (
    Pretrained,
    check_embeddings,
    first_stage,
    learned_inside,
    read_pretrained,
)


@dataclass(frozen=True)
class MergedExport:
    """What was written: the folder, the template that names need, and the largest difference of
    unit embeddings."""

    folder: Path
    template: str
    several: bool
    """Whether names were embedded by more than this template."""
    difference: float


@torch.no_grad()
def export_merged(
    classifier: FewShotClassifier,
    folder: str | Path,
    *,
    example: ImageSource | None = None,
    overwrite: bool = True,
) -> MergedExport:
    """Writes a checkpoint that transformers loads, and its pipelines and ShotFit too.

    It has the tuned encoders and answers by names alone: the rows of a second stage are no part of
    such a model. What was added to a linear layer is added to its weights. An `example` image is
    put beside them, small, for the widget of the model card.

    Raises:
        UsageError: when the method learned something that no plain model has a place for.
        DataError: as `exported_folder`, when the pretrained model is gone, or for an example that
            cannot be read.
    """
    folder = Path(folder).expanduser()
    check_place(folder, overwrite=overwrite)
    shown = None if example is None else small_picture(example, EXAMPLE_PIXELS)
    method = first_stage(classifier)
    learned_inside(classifier, "a plain model")
    found = read_pretrained(classifier)
    for name in ("vision", "text"):
        _fold(getattr(method.backbone, name), getattr(found.backbone, name))
    difference = check_embeddings(method, found.backbone.to(method.backbone.device))
    with exported_folder(folder, overwrite=overwrite) as made:
        _write(found, made)
        card = merged_card(
            classifier.experiment, classifier.classes, method.template, example=shown is not None
        )
        if shown is not None:
            shown.save(made / EXAMPLE)
        (made / "README.md").write_text(card, encoding="utf-8")
    return MergedExport(folder, method.template, method.words.several, difference)


def _write(found: Pretrained, folder: Path) -> None:
    found.model.cpu().save_pretrained(folder)
    found.backbone.tokenizer.save_pretrained(folder)
    for name in ("preprocessor_config.json", "shotfit.json"):
        if (found.folder / name).is_file():
            shutil.copy(found.folder / name, folder)


def _fold(tuned: Tower, plain: Tower) -> None:
    """Puts what a tower has become into the plain one, whose layers may not be other ones."""
    replaced = []
    pairs: list[tuple[nn.Module, nn.Module]] = list(zip(tuned.blocks, plain.blocks, strict=True))
    for number, (block, target) in enumerate(pairs):
        for name in LINEAR:
            layer = getattr(block, name)
            if type(layer) is not nn.Linear:
                _fold_linear(layer, getattr(target, name))
                replaced.append(f"blocks.{number}.{name}.")
    state = {
        name: value
        for name, value in tuned.state_dict().items()
        if not name.startswith(tuple(replaced))
    }
    left = set(plain.load_state_dict(state, strict=False).unexpected_keys)
    assert not left, f"learned in a tower, without a place: {left}"


def _fold_linear(layer: nn.Module, target: nn.Linear) -> None:
    """The weights of a layer that is a matrix and a shift, however it computes them."""
    weight = target.weight
    none = torch.zeros(1, target.in_features, dtype=torch.float64)
    unit = torch.eye(target.in_features, dtype=torch.float64)
    exact = layer.double().cpu()
    shift = exact(none)
    weight.copy_((exact(unit) - shift).T)
    if target.bias is not None:
        target.bias.copy_(shift[0])
    layer.to(weight.dtype)
