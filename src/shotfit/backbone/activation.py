"""CLIP's activation as one autograd step, and the forward pass that is made twice to save memory.

A pass over the hidden layer of an MLP moves more bytes than any other of a training step, so that
each one left out is felt on a processor and on an accelerator alike.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

SLOPE = 1.702


def quick_gelu(x: Tensor) -> Tensor:
    """x sigmoid(1.702 x) (Hendrycks and Gimpel, 2016, section 2), keeping only x for the gradient.

    As it is usually written it keeps x and the sigmoid, and its gradient takes five passes.
    """
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        # Compilers fuse the plain expression themselves, and exporters know it.
        return x * torch.sigmoid(SLOPE * x)
    if torch.is_grad_enabled() and x.requires_grad:
        return _QuickGELU.apply(x)  # type: ignore[no-any-return]
    return _scaled_silu(x)


def recomputed(function: Callable[..., Tensor], *arguments: Any) -> Tensor:
    """`function(*arguments)`; what it computes in between is computed again for the gradient."""
    if not torch.is_grad_enabled():
        return function(*arguments)
    return checkpoint(function, *arguments, use_reentrant=False)  # type: ignore[no-any-return]


def _scaled_silu(x: Tensor) -> Tensor:
    return F.silu(x * SLOPE, inplace=True).mul_(1 / SLOPE)


class _QuickGELU(torch.autograd.Function):
    """silu(1.702 x) / 1.702, which has the derivative of silu at 1.702 x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return _scaled_silu(x)

    @staticmethod
    @once_differentiable
    # The decorator says less of its parameters than the class that it serves.
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, grad: Tensor
    ) -> Tensor:
        (x,) = ctx.saved_tensors
        return torch.ops.aten.silu_backward(grad, x * SLOPE)
