"""Optimal transport between two small sets of prompts (Sinkhorn's algorithm)."""

import torch
from torch import Tensor


@torch.no_grad()
def transport_plan(cosines: Tensor, eps: float, max_iterations: int, tolerance: float) -> Tensor:
    """The entropic transport plans of (..., M, N) cosines, uniform marginals (Sinkhorn, eq. 7).

    Each plan stops when the mean change of its M row scalings falls below `tolerance`.
    """
    kernel = torch.exp((cosines.float() - 1) / eps)
    rows, columns = kernel.shape[-2:]
    r, c = torch.ones_like(kernel[..., 0]), torch.ones_like(kernel[..., 0, :])
    moving = torch.ones_like(r[..., :1], dtype=torch.bool)
    for _ in range(max_iterations):
        new_r = 1 / (rows * (kernel * c[..., None, :]).sum(dim=-1))
        new_c = 1 / (columns * (kernel * new_r[..., :, None]).sum(dim=-2))
        change = (new_r - r).abs().mean(dim=-1, keepdim=True)
        r, c = torch.where(moving, new_r, r), torch.where(moving, new_c, c)
        moving = moving & (change >= tolerance)
        # A graph that is being exported cannot branch on values: it takes all iterations.
        if not torch.compiler.is_compiling() and not moving.any():
            break
    return (r[..., :, None] * kernel * c[..., None, :]).to(cosines.dtype)
