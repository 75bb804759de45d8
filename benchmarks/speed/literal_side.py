"""The published algorithm's jobs: generators that load, yield, and then do one unit a step."""

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from literal import embed_images, embed_text, first_stage, second_stage, start_classifier, tokens

from speed.shapes import SHAPES, Words, class_names, random_batch, random_clip

# More iterations than are ever measured: the schedule's length does not change the cost.
ENDLESS = 1_000_000


def stage1(request: dict[str, Any]) -> Iterator[None]:
    """A unit is one iteration of the first stage."""
    model, ids, batch = _loaded(request)
    yield
    with _precision(request):
        for _ in first_stage(model, ids, itertools.repeat(batch), ENDLESS):
            yield


def stage2(request: dict[str, Any]) -> Iterator[None]:
    """A unit is one iteration of the second stage, which encodes its images anew."""
    model, ids, batch = _loaded(request)
    model.requires_grad_(False)
    classifier = start_classifier(model, ids)
    yield
    with _precision(request):
        for _ in second_stage(model, classifier, itertools.repeat(batch), ENDLESS):
            yield


@torch.no_grad()
def names(request: dict[str, Any]) -> Iterator[None]:
    """A unit is embedding so many class names, none seen before."""
    model, _, _ = _loaded({**request, "classes": 1})
    yield
    with _precision(request):
        for seed in itertools.count(1):
            embed_text(model, _ids(request, seed))
            yield


@torch.no_grad()
def predict(request: dict[str, Any]) -> Iterator[None]:
    """A unit is `get_image_features` of one batch."""
    model, _, (pixels, _) = _loaded(request)
    yield
    with _precision(request):
        while True:
            embed_images(model, pixels)
            yield


JOBS = {"stage1": stage1, "stage2": stage2, "names": names, "predict": predict}


def _loaded(request: dict[str, Any]) -> tuple[Any, Any, Any]:
    shape = SHAPES[request["shape"]]
    model = random_clip(shape).to(request["device"])
    batch = random_batch(shape, request["batch"], request["classes"])
    return model, _ids(request, 0), tuple(part.to(request["device"]) for part in batch)


def _ids(request: dict[str, Any], seed: int) -> torch.Tensor:
    tokenizer = Words(SHAPES[request["shape"]].vocabulary)
    names = class_names(request["classes"], seed)
    return tokens(tokenizer, names, 77, tokenizer.eos_token_id).to(request["device"])


def _precision(request: dict[str, Any]) -> torch.autocast:
    kind = torch.device(request["device"]).type
    return torch.autocast(kind, torch.bfloat16, enabled=request["precision"] == "bf16")
