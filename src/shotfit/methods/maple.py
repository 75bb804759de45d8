"""MaPLe: learned prompts in both encoders, the visual ones projected from the textual ones.

Paper: Khattak et al., MaPLe: Multi-modal Prompt Learning, CVPR 2023,
https://arxiv.org/abs/2210.03117.

Equation: text tokens P_i are learned for each of the first J blocks, image tokens are F_i(P_i)
with F_i linear (eqs. 3 to 9); logits(x, c) = s cos(V(x, F(P)), T(c, P)).

Deviations: fp32 (published: the first context and its projection fp16). Image tokens come last in
the sequence and pass the norm before the blocks, as in the official code. The deep projections
start from one random layer copied, as there. A depth beyond the blocks of a model means all of its
blocks.

Novel categories: embedded with the same learned tokens; image embeddings do not depend on classes.

When to prefer it: five epochs suffice, and novel classes lose little. Most of its parameters are
the projections; IVLP learns as much without them.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F

from shotfit.backbone import DeepPrompts
from shotfit.config import Size
from shotfit.layers.prompt_tokens import deep_prompts, prompt_depth, random_linear, text_context
from shotfit.methods.base import ClassEmbeddings, Method
from shotfit.methods.published import TaskFacts, TrainConfig, dassl


@dataclass(frozen=True)
class MaPLeConfig:
    """Options of MaPLe."""

    n_ctx: Size = 2
    """Learned tokens; they take the places of the first tokens of `ctx_init`, the rest stays."""
    ctx_init: str | None = "a photo of a"
    """The phrase that the first context starts from; None starts at random."""
    prompt_depth: Size = 9
    """Blocks with learned tokens (J), at most as many as either encoder has."""


class MaPLe(Method):
    """MaPLe (see the module's docstring)."""

    Config = MaPLeConfig
    reads = "nothing"
    starts_at_zero_shot = False
    first_fraction = 0.3

    def __init__(self, *args, **options) -> None:
        super().__init__(*args, **options)
        text, vision, device = self.backbone.text, self.backbone.vision, self.backbone.device
        config, generator = self.config, self.generator
        depth = prompt_depth(config.prompt_depth, len(text.blocks), len(vision.blocks))
        self.context = text_context(self.backbone, config.ctx_init, config.n_ctx, generator)
        self.projection = random_linear(text.width, vision.width, generator, device)
        self.deep = deep_prompts(depth - 1, config.n_ctx, text.width, generator, device)
        one = random_linear(text.width, vision.width, generator, device)
        self.deep_projections = nn.ModuleList(copy.deepcopy(one) for _ in self.deep)

    def encode_images(self, pixels: Tensor) -> Tensor:
        """Unit-norm image embeddings, with the projected tokens among the patches."""
        deep = [project(p) for project, p in zip(self.deep_projections, self.deep, strict=True)]
        context = self.projection(self.context.ctx)
        embeds = self.backbone.encode_image(pixels, context, DeepPrompts(tuple(deep)))
        return F.normalize(embeds, dim=-1)

    def encode_classes(self, names: Sequence[str]) -> ClassEmbeddings:
        """Embeds class names with the learned tokens of every prompted block."""
        texts = self.context.texts(names)
        embeds = self.backbone.encode_text(texts, self.context.ctx, DeepPrompts(tuple(self.deep)))
        return self.class_embeddings(names, F.normalize(embeds, dim=-1))

    @classmethod
    def published_training(cls, facts: TaskFacts) -> tuple[TrainConfig, ...]:
        """SGD at 3.5e-3, batches of 4, 5 epochs, for all datasets and both settings."""
        return (dassl(lr=3.5e-3, batch_size=4, epochs=5),)
