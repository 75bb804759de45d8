"""LoRA: a trained low-rank product beside frozen linear layers of both towers, with seeded dropout.

Hu et al., LoRA: Low-Rank Adaptation of Large Language Models, ICLR 2022, section 4.1; the scaling
alpha / sqrt(r) is that of Kalajdzievski, A Rank Stabilization Scaling Factor, 2023.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shotfit.backbone.chunks import current_chunk
from shotfit.backbone.tower import LINEAR
from shotfit.config import Size
from shotfit.errors import UsageError

if TYPE_CHECKING:
    from shotfit.backbone import Backbone


@dataclass(frozen=True)
class LoRAConfig:
    """Options of LoRA, with the values that 2SFS and CLIP-LoRA share."""

    rank: Size = 2
    """Rank r of the update of each layer."""
    alpha: float = 1.0
    """Numerator of the scaling."""
    scaling: Literal["rslora", "standard"] = "rslora"
    """"rslora" divides alpha by the square root of the rank, as published; "standard" by it."""
    dropout: float = 0.25
    """Share of the input of the low-rank product that is zeroed in training."""
    target_modules: tuple[str, ...] = ("q_proj", "k_proj", "v_proj")
    """Adapted layers of a block; out_proj, fc1 and fc2 are the others that there are."""
    towers: Literal["both", "vision", "text"] = "both"
    """Which encoders are adapted."""
    blocks: tuple[int, ...] | None = None
    """First and last adapted block, counted from 1; None adapts all."""


class SeededDropout:
    """Dropout whose masks follow from one generator, whatever the device.

    `renew` draws a seed, once per pass through the tower that it serves; a layer's mask follows
    from it, the layer's number and the chunk of the pass. What is recomputed for its gradient
    therefore meets the same masks.
    """

    def __init__(self, p: float, generator: torch.Generator) -> None:
        self.p = p
        self.generator = generator
        self._seed = 0
        self._on_device: dict[torch.device, torch.Generator] = {}

    def renew(self) -> None:
        """Draws the seed of the masks to come; nothing is drawn when p is 0."""
        if self.p > 0:
            self._seed = int(torch.randint(2**31, (), generator=self.generator))

    def __call__(self, x: Tensor, layer: int) -> Tensor:
        """`x` with a share p of its entries zeroed and the others divided by 1 - p."""
        if self.p == 0:
            return x
        generator = self._on_device.get(x.device)
        if generator is None:
            generator = self._on_device[x.device] = torch.Generator(x.device)
        # Seeds are below 2^31: no two chunks share one.
        generator.manual_seed(self._seed + layer + (current_chunk() << 32))
        keep = torch.empty_like(x).bernoulli_(1 - self.p, generator=generator)
        return x * keep.mul_(1 / (1 - self.p))


class LoRALinear(nn.Linear):
    """y = W x + b + scaling B A dropout(x), with W and b the frozen layer's own.

    A (r, in) starts Kaiming-uniform with a = sqrt(5), B (out, r) at zero.
    """

    def __init__(
        self, base: nn.Linear, rank: int, scaling: float, dropout: SeededDropout, layer: int
    ) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = base.in_features, base.out_features
        self.weight, self.bias = base.weight, base.bias
        self.scaling = scaling
        self.layer = layer
        self._dropout = dropout
        # Drawn on the CPU, so that a seed gives the same start on every device.
        bound = 1 / math.sqrt(base.in_features)
        start = torch.empty(rank, base.in_features)
        start.uniform_(-bound, bound, generator=dropout.generator)
        self.lora_a = nn.Parameter(start.to(base.weight.device))
        self.lora_b = nn.Parameter(base.weight.new_zeros(base.out_features, rank))

    def forward(self, input: Tensor) -> Tensor:
        """(..., in) to (..., out)."""
        inside = self._dropout(input, self.layer) if self.training else input
        low = F.linear(F.linear(inside, self.lora_a), self.lora_b)
        return F.linear(input, self.weight, self.bias) + self.scaling * low


def add_lora(backbone: "Backbone", config: LoRAConfig, generator: torch.Generator) -> None:
    """Puts LoRA beside the named layers of the towers' blocks, in place. In training every pass
    through a tower has dropout masks of its own.

    Raises:
        UsageError: for a layer or a range of blocks that is not there.
    """
    for name in ("vision", "text") if config.towers == "both" else (config.towers,):
        tower = getattr(backbone, name)
        dropout = SeededDropout(config.dropout, generator)
        _add(tower.blocks, config, dropout)
        tower.register_forward_pre_hook(partial(_begin_pass, dropout))


def _begin_pass(dropout: SeededDropout, tower: nn.Module, inputs: object) -> None:
    # The later chunks of a pass belong to it; they are also what is computed again.
    if tower.training and current_chunk() == 0:
        dropout.renew()


def _add(tower: nn.ModuleList, config: LoRAConfig, dropout: SeededDropout) -> None:
    names, rank, blocks = config.target_modules, config.rank, config.blocks
    unknown = [name for name in names if name not in LINEAR]
    if unknown or not names:
        raise UsageError(f"target_modules must be some of {', '.join(LINEAR)}.")
    if rank < 1 or not 0 <= dropout.p < 1:
        raise UsageError(f"LoRA needs rank >= 1 and 0 <= dropout < 1, got {rank}, {dropout.p}.")
    first, last = blocks if blocks is not None and len(blocks) == 2 else (1, len(tower))
    if (blocks is not None and len(blocks) != 2) or not 1 <= first <= last <= len(tower):
        raise UsageError(f"blocks must be two numbers 1 <= first <= last <= {len(tower)}.")
    factor = config.alpha / (math.sqrt(rank) if config.scaling == "rslora" else rank)
    layer = 0
    for block in tower[first - 1 : last]:
        for name in names:
            base = getattr(block, name)
            setattr(block, name, LoRALinear(base, rank, factor, dropout, layer))
            layer += 1
