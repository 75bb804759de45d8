"""The published algorithm, executed literally on transformers' CLIP: the reference to compare with.

All prompts are padded to the full context and embedded anew, with gradient, at every iteration of
the first stage; images are encoded anew at every iteration of the second. The facts are those of
the paper (sections 4 and 5.1) and of its released code: block LayerNorms, AdamW 2e-4 / 0.01, two
cosine schedules to 1e-6 stepped at every iteration, embeddings normalised, scale frozen.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

LR, WEIGHT_DECAY, LR_MIN = 2e-4, 1e-2, 1e-6


def tokens(tokenizer: Any, names: Sequence[str], length: int, end: int) -> Tensor:
    """Token ids (classes, length) of "a photo of a {}.", padded with the end-of-text token."""
    rows = []
    for name in names:
        ids = tokenizer([f"a photo of a {name}."])["input_ids"][0]
        rows.append([*ids, *[end] * (length - len(ids))])
    return torch.tensor(rows)


def embed_text(model: Any, ids: Tensor) -> Tensor:
    """Unit-norm text embeddings (classes, dim)."""
    return F.normalize(model.get_text_features(input_ids=ids).pooler_output, dim=-1)


def embed_images(model: Any, pixels: Tensor) -> Tensor:
    """Unit-norm image embeddings (batch, dim)."""
    return F.normalize(model.get_image_features(pixel_values=pixels).pooler_output, dim=-1)


def block_norms(model: Any) -> list[nn.Parameter]:
    """Scale and shift of every LayerNorm inside a transformer block, in both towers."""
    layers = [*model.vision_model.encoder.layers, *model.text_model.encoder.layers]
    return [
        parameter
        for layer in layers
        for norm in (layer.layer_norm1, layer.layer_norm2)
        for parameter in norm.parameters()
    ]


def first_stage(
    model: Any, ids: Tensor, batches: Iterable[tuple[Tensor, Tensor]], iterations: int
) -> Iterator[float]:
    """Tunes the block LayerNorms in place; yields the loss of every iteration."""
    model.requires_grad_(False)
    parameters = block_norms(model)
    for parameter in parameters:
        parameter.requires_grad_(True)
    yield from _train(
        parameters,
        lambda pixels: _scale(model) * embed_images(model, pixels) @ embed_text(model, ids).T,
        batches,
        iterations,
    )
    model.requires_grad_(False)


def second_stage(
    model: Any,
    classifier: nn.Parameter,
    batches: Iterable[tuple[Tensor, Tensor]],
    iterations: int,
) -> Iterator[float]:
    """Trains `classifier` (classes, dim) in place; yields the loss of every iteration."""

    def forward(pixels: Tensor) -> Tensor:
        with torch.no_grad():
            images = embed_images(model, pixels)
        return _scale(model) * images @ F.normalize(classifier, dim=-1).T

    yield from _train([classifier], forward, batches, iterations)


@torch.no_grad()
def start_classifier(model: Any, ids: Tensor) -> nn.Parameter:
    """Rows (classes, dim) that start at the text embeddings."""
    return nn.Parameter(embed_text(model, ids).clone())


def _scale(model: Any) -> Tensor:
    return model.logit_scale.exp()


def _train(
    parameters: list[nn.Parameter],
    forward: Any,
    batches: Iterable[tuple[Tensor, Tensor]],
    iterations: int,
) -> Iterator[float]:
    optimizer = torch.optim.AdamW(parameters, lr=LR, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, iterations, eta_min=LR_MIN)
    source = iter(batches)
    for _ in range(iterations):
        pixels, labels = next(source)
        loss = F.cross_entropy(forward(pixels), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        yield loss.item()
