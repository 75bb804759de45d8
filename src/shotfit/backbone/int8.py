"""Linear layers in 8 bits for prediction on a processor: a quarter of the weights' memory, and
several times the speed where the processor multiplies bytes (AVX-512 VNNI, AMX).

Weights are rounded once, symmetrically, with a scale for each output (Jacob et al., CVPR 2018,
section 2.1); activations in every pass, with a scale for each token, so that nothing is calibrated
and one loud token costs the others nothing. PyTorch's own way, `torch.ao.quantization`, is
announced for deletion and rounds with one scale for all tokens and 7 bits; torchao does as here but
runs uncompiled in half the speed (LOG.md).
"""

import functools

import torch
from torch import Tensor, nn

from shotfit.backbone.tower import LINEAR, Tower
from shotfit.errors import UsageError


class Int8Linear(nn.Module):
    """y = W x + b with W and x rounded to 8 bits; sums are exact, everything else is fp32."""

    weight: Tensor
    scale: Tensor
    bias: Tensor

    def __init__(self, layer: nn.Linear, levels: int) -> None:
        """Rounds a layer's weights to integers from -`levels` to `levels`."""
        super().__init__()
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.levels = levels
        rounded, scale = _rounded(layer.weight.detach().float(), levels)
        bias = torch.zeros(layer.out_features) if layer.bias is None else layer.bias.detach()
        self.register_buffer("weight", rounded)
        self.register_buffer("scale", scale.flatten())
        self.register_buffer("bias", bias.float().clone())

    def forward(self, input: Tensor) -> Tensor:
        """(..., in) to (..., out)."""
        tokens = input.reshape(-1, self.in_features)
        rounded, scale = _rounded(tokens, self.levels)
        sums = torch._int_mm(rounded, self.weight.t())
        out = sums.to(torch.float32).mul_(scale).mul_(self.scale).add_(self.bias)
        return out.to(input.dtype).unflatten(0, input.shape[:-1])


def quantize(tower: Tower) -> int:
    """Puts `Int8Linear` in place of the plain linear layers of a tower's blocks; their number.

    Layers that a method has put there do more than one product, and stay. There is no way back,
    and no gradient.

    Raises:
        UsageError: for a tower that is not on the CPU.
    """
    device = next(tower.parameters()).device
    if device.type != "cpu":
        raise UsageError(f"int8 is for the CPU, and this model is on {device}: use --device cpu.")
    levels = exact_levels()
    count = 0
    for block in tower.blocks:
        for name in LINEAR:
            layer = getattr(block, name)
            if type(layer) is nn.Linear:
                setattr(block, name, Int8Linear(layer, levels))
                count += 1
    return count


@functools.cache
def exact_levels() -> int:
    """127, or 63 on a processor whose 8-bit products saturate at 16 bits, as before VNNI."""
    largest = torch.full((32, 64), 127, dtype=torch.int8)
    exact = torch._int_mm(largest, largest.t()) == 64 * 127 * 127
    return 127 if bool(exact.all()) else 63


def _rounded(x: Tensor, levels: int) -> tuple[Tensor, Tensor]:
    """Integers (rows, n) and the scale of each row (rows, 1); a row of zeros stays one."""
    # Not `aminmax` or a norm, which take twenty times as long (PyTorch 2.13).
    largest = x.abs().amax(dim=1, keepdim=True)
    scale = largest.div_(levels).clamp_(min=torch.finfo(torch.float32).tiny)
    return (x / scale).round_().to(torch.int8), scale
