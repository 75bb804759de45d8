"""MMA: multi-modal adapters beside the upper blocks, tied between the encoders.

Paper: Yang et al., MMA: Multi-Modal Adapter for Vision-Language Models, CVPR 2024,
https://openaccess.thecvf.com/content/CVPR2024/html/Yang_MMA_Multi-Modal_Adapter_for_Vision-Language_Models_CVPR_2024_paper.html

Equation: block(x) + s up(relu(shared(relu(down(norm1(x)))))), with one shared layer for both
encoders at each depth; down, shared and up train.

Deviations: fp32 (published: mixed precision). The official code multiplies the gradient of the
adapters by 1 / s, without which they would hardly move at the published rate, and so does this.
Blocks are counted from the bottom in both encoders, so that on ViT-L/14 the upper half of the image
encoder has no adapters; that is how it was run. Towers of fewer than 12 blocks, for which nothing
is published, get adapters at the same share of their depth.

Novel categories: embedded by the adapted text encoder.

When to prefer it: few updates are made (five epochs), so it stays near zero-shot on small sets.
"""

from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn

from shotfit.config import Positive, Size
from shotfit.errors import UsageError
from shotfit.layers.adapters import ParallelAdapter, kaiming_linear
from shotfit.layers.depth import last_block, scaled_block
from shotfit.methods.base import Method
from shotfit.methods.published import TaskFacts, TrainConfig, dassl


@dataclass(frozen=True)
class MMAConfig:
    """Options of MMA."""

    adapter_dim: Size = 32
    """Hidden width of the adapters."""
    scale: Positive = 0.001
    """s, the weight of the adapters' output."""
    start_block: int | None = None
    """First block with an adapter, counted from 1; None is 5 of 12."""
    end_block: int | None = None
    """Last block with an adapter; None is 12, or the last one of the shallower encoder."""


class MMA(Method):
    """MMA (see the module's docstring)."""

    Config = MMAConfig
    starts_at_zero_shot = False

    def __init__(self, *args, **options) -> None:
        super().__init__(*args, **options)
        config = self.config
        first, last = self._range()
        if config.scale <= 0 or config.adapter_dim < 1:
            raise UsageError("MMA needs a positive scale and adapter_dim.")
        towers = {"vision": self.backbone.vision, "text": self.backbone.text}
        self.adapters = nn.ModuleDict({name: nn.ModuleList() for name in towers})
        self.shared = nn.ModuleList()
        for number in range(first - 1, last):
            shared = kaiming_linear(config.adapter_dim, config.adapter_dim, self.generator)
            self.shared.append(shared)
            for name, tower in towers.items():
                adapter = ParallelAdapter(
                    tower.width, config.adapter_dim, config.scale, self.generator
                )
                self.adapters[name].append(adapter)  # type: ignore[operator]
                tower.blocks[number].register_forward_hook(
                    partial(_add_output, adapter=adapter, shared=shared)
                )
        self.adapters.to(self.backbone.device)
        self.shared.to(self.backbone.device)

    @classmethod
    def published_training(cls, facts: TaskFacts) -> tuple[TrainConfig, ...]:
        """SGD at 1.5e-3 without warm-up, 5 epochs, batches of 16 (ImageNet: 128)."""
        batch = 128 if facts.benchmark == "imagenet" else 16
        return (dassl(lr=1.5e-3, batch_size=batch, epochs=5, warmup_epochs=0),)

    def _range(self) -> tuple[int, int]:
        depth = min(len(self.backbone.vision.blocks), len(self.backbone.text.blocks))
        first = _given(self.config.start_block, scaled_block(5, depth))
        last = _given(self.config.end_block, last_block(depth))
        if not 1 <= first <= last <= depth:
            raise UsageError(f"MMA needs 1 <= start_block <= end_block <= {depth}.")
        return first, last


def _add_output(
    block: nn.Module, inputs: tuple, output: Tensor, *, adapter: ParallelAdapter, shared: nn.Linear
) -> Tensor:
    """The block's output with the adapter's added, at the tokens that it is computed for."""
    tokens, layout, *read = inputs
    if read and read[0]:
        tokens = layout.pick(tokens)
    return output + adapter(block.norm1(tokens), shared)  # type: ignore[operator]


def _given(value: int | None, default: int) -> int:
    return default if value is None else value
