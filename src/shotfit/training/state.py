"""Where a round of training is between two updates, as tensors and plain values."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from shotfit.methods.base import Method

# What stands before the names of a method's tensors, of its optimiser's, and of what only training
# needs.
METHOD, OPTIMIZER, EXTRA = "method.", "optimizer.", "extra."
GENERATOR = "generator"


@dataclass(frozen=True)
class TrainState:
    """All that the next update of a round depends on, besides images and config."""

    iteration: int
    """Updates made."""
    taken: int
    """Batches taken: more than updates where fp16 has skipped some."""
    scaler: dict[str, Any]
    """Of the loss scaling in fp16; empty otherwise."""
    tensors: dict[str, Tensor]
    """On the CPU, by the prefixes above."""


def training_tensors(method: Method, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """What training changes: what is learned and what is trained, the optimiser's moments, what the
    method collects on the way, and the state of its random generator."""
    trained = {name: p.detach() for name, p in method.named_parameters() if p.requires_grad}
    tensors = {
        METHOD + name: value for name, value in {**method.learned_state(), **trained}.items()
    }
    for number, values in optimizer.state_dict()["state"].items():
        moments = {key: value for key, value in values.items() if value is not None}
        tensors.update({f"{OPTIMIZER}{number}.{key}": value for key, value in moments.items()})
    tensors.update({EXTRA + name: value for name, value in method.training_state().items()})
    tensors[GENERATOR] = method.generator.get_state()
    # Copies: training goes on in the places of these.
    return {name: x.detach().to("cpu", copy=True).contiguous() for name, x in tensors.items()}


def take_up(method: Method, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Puts the tensors of `training_tensors` back; the method is set up as it was then."""
    own = method.state_dict(keep_vars=True)
    for name, value in part(tensors, METHOD).items():
        own[name].data.copy_(value)
    moments: dict[int, dict[str, Tensor]] = {}
    for name, value in part(tensors, OPTIMIZER).items():
        number, _, key = name.partition(".")
        moments.setdefault(int(number), {})[key] = value
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": moments, "param_groups": groups})
    method.load_training_state(part(tensors, EXTRA))
    method.generator.set_state(tensors[GENERATOR])


def part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin with a prefix, without it."""
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }
