"""Bottleneck adapters: CLIP-Adapter's on an embedding, MMA's beside a transformer block."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Bottleneck(nn.Module):
    """relu(W_2 relu(W_1 f)) without biases, (..., dim) to (..., dim) (CLIP-Adapter, eq. 4).

    Both layers start as PyTorch's linear layers do, uniform within 1 / sqrt(inputs).
    """

    def __init__(self, dim: int, hidden: int, generator: torch.Generator) -> None:
        super().__init__()
        self.down = nn.Parameter(_uniform(hidden, dim, generator))
        self.up = nn.Parameter(_uniform(dim, hidden, generator))

    def forward(self, embeds: Tensor) -> Tensor:
        """The adapter's output, not mixed with its input."""
        return F.relu(F.linear(F.relu(F.linear(embeds, self.down)), self.up))


class ParallelAdapter(nn.Module):
    """s up(relu(shared(relu(down(x))))), to be added to a block's output (MMA, section 3).

    Its weights get the gradient that they would get with s = 1, and only what flows on into `x` is
    scaled by s. The shared layer belongs to the method, which hands it in.
    """

    def __init__(self, width: int, hidden: int, scale: float, generator: torch.Generator) -> None:
        super().__init__()
        self.down = kaiming_linear(width, hidden, generator)
        self.up = kaiming_linear(hidden, width, generator)
        self.scale = scale

    def forward(self, x: Tensor, shared: nn.Linear) -> Tensor:
        """(..., width) to (..., width)."""
        hidden = F.relu(self.down(scale_gradient(x, self.scale)))
        out = self.up(F.relu(shared(hidden)))
        return scale_gradient(self.scale * out, 1 / self.scale)


def kaiming_linear(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    """A linear layer with Kaiming-normal weights by fan-out and zero bias, drawn on the CPU."""
    layer = nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")
    with torch.no_grad():
        layer.weight.normal_(0, math.sqrt(2 / outputs), generator=generator)
        layer.bias.zero_()
    return layer


def scale_gradient(x: Tensor, factor: float) -> Tensor:
    """`x`, whose gradient is multiplied by `factor` on its way back."""
    return _ScaleGradient.apply(x, factor) if torch.is_grad_enabled() else x


class _ScaleGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient: Tensor):  # type: ignore[override]
        return gradient * ctx.factor, None


def _uniform(outputs: int, inputs: int, generator: torch.Generator) -> Tensor:
    bound = 1 / math.sqrt(inputs)
    return torch.empty(outputs, inputs).uniform_(-bound, bound, generator=generator)
