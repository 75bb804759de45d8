"""Optimisers and schedule of both towers, and their state as flat tensors."""

from __future__ import annotations

import math

import torch
from checkpoints import part
from torch import nn

Optimisers = list[torch.optim.Optimizer]


def optimisers(tower: nn.Module, others: list[nn.Parameter], lr: float) -> Optimisers:
    """Muon for the blocks' matrices, which learns these towers in half the steps; else AdamW."""
    blocks = {id(p) for n, p in tower.named_parameters() if "blocks" in n and p.ndim == 2}
    matrices = [p for p in tower.parameters() if id(p) in blocks]
    rest = [p for p in tower.parameters() if id(p) not in blocks]
    muon = torch.optim.Muon(matrices, lr=2 * lr, weight_decay=0.05, adjust_lr_fn="match_rms_adamw")
    groups = [{"params": rest}, {"params": others, "lr": 2 * lr}] if others else [{"params": rest}]
    adam = torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.98), weight_decay=0.02)
    for optimiser in (muon, adam):
        for group in optimiser.param_groups:
            group["peak"] = group["lr"]
    return [muon, adam]


def schedule(seen: int, total: int, warmup: int, cooldown: int) -> float:
    """Rate as a share of its peak: warm-up, constant, and 1 - sqrt to nothing over the cooldown.

    The constant part has no length of its own, so that a run can be prolonged, or cooled down from
    any checkpoint, after the fact (Haegele et al. 2024, "Scaling laws and compute-optimal training
    beyond fixed training durations").
    """
    if seen < warmup:
        return (seen + 1) / warmup
    left = (total - seen) / max(cooldown, 1)
    return 1.0 if left >= 1 else max(0.0, 1 - math.sqrt(1 - left))


def set_rates(steps: Optimisers, factor: float) -> None:
    """Every group's rate: its peak times ``factor``."""
    for optimiser in steps:
        for group in optimiser.param_groups:
            group["lr"] = group["peak"] * factor


def state_of(steps: Optimisers) -> dict[str, torch.Tensor]:
    """Moments by flat names, so that resuming changes nothing."""
    tensors = {}
    for number, optimiser in enumerate(steps):
        for row, moments in optimiser.state_dict()["state"].items():
            for name, value in moments.items():
                tensors[f"optimiser{number}.{row}.{name}"] = torch.as_tensor(value)
    return tensors


def with_state(steps: Optimisers, tensors: dict[str, torch.Tensor]) -> None:
    """Put back what ``state_of`` gave."""
    for number, optimiser in enumerate(steps):
        state: dict[int, dict] = {}
        for key, value in part(tensors, f"optimiser{number}.").items():
            row, name = key.split(".", 1)
            state.setdefault(int(row), {})[name] = value
        full = optimiser.state_dict()
        full["state"] = state
        optimiser.load_state_dict(full)
