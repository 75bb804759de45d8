"""IVLP: learned prompts in both encoders, independent of each other.

Paper: the baseline "independent V-L prompting" of Khattak et al., MaPLe, CVPR 2023,
https://arxiv.org/abs/2210.03117, in the setting of Khattak et al., Self-regulating Prompts
(PromptSRC), ICCV 2023, https://arxiv.org/abs/2307.06948.

Equation: logits(x, c) = s cos(V(x, Q), T(c, P)); text tokens P_i and image tokens Q_i are learned
for each of the first blocks of their own encoder.

Deviations: the 2SFS paper cites MaPLe but prints PromptSRC's numbers (4 + 4 tokens, 9 blocks, 20
epochs), which is the default here; `paper="maple"` is MaPLe's own (2 + 2 tokens, 12 blocks, 5
epochs). fp32 (published: the first text context fp16). A depth beyond the blocks of a model means
all of its blocks.

Novel categories: embedded with the same learned tokens; image embeddings do not depend on classes.

When to prefer it: over MaPLe for the trained classes, with a seventieth of its parameters. Novel
ones lose more (published averages 84.2 / 71.8, MaPLe's 82.3 / 75.1), which a second stage after a
third of the epochs partly makes up for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor
from torch.nn import functional as F

from shotfit.backbone import DeepPrompts
from shotfit.config import Size
from shotfit.layers.prompt_tokens import independent_prompts
from shotfit.methods.base import ClassEmbeddings, Method
from shotfit.methods.published import TaskFacts, TrainConfig, dassl


@dataclass(frozen=True)
class Published:
    """What a paper that compares with IVLP ran it with."""

    n_ctx: int
    prompt_depth: int
    lr: float
    epochs: int


PUBLISHED = {
    "promptsrc": Published(n_ctx=4, prompt_depth=9, lr=2.5e-3, epochs=20),
    "maple": Published(n_ctx=2, prompt_depth=12, lr=3.5e-3, epochs=5),
}


@dataclass(frozen=True)
class IVLPConfig:
    """Options of IVLP; those that are None are the paper's."""

    paper: Literal["promptsrc", "maple"] = "promptsrc"
    """The paper whose tokens, depth, rate and epochs are meant."""
    n_ctx: Size | None = None
    """Learned text tokens; they take the places of the first tokens of `ctx_init`."""
    n_ctx_vision: Size | None = None
    """Learned image tokens, after the patches."""
    ctx_init: str | None = "a photo of a"
    """The phrase that the first text context starts from; None starts at random."""
    prompt_depth: Size | None = None
    """Blocks with learned tokens in either encoder, at most all of them."""


class IVLP(Method):
    """IVLP (see the module's docstring)."""

    Config = IVLPConfig
    reads = "nothing"
    starts_at_zero_shot = False
    first_fraction = 0.3

    def __init__(self, *args, **options) -> None:
        super().__init__(*args, **options)
        config, published = self.config, PUBLISHED[self.config.paper]
        n_ctx = _given(config.n_ctx, published.n_ctx)
        n_ctx_vision = _given(config.n_ctx_vision, published.n_ctx)
        depth = _given(config.prompt_depth, published.prompt_depth)
        self.context, self.vision_ctx, self.deep, self.vision_deep = independent_prompts(
            self.backbone, config.ctx_init, (n_ctx, n_ctx_vision), depth, self.generator
        )

    def encode_images(self, pixels: Tensor) -> Tensor:
        """Unit-norm image embeddings, with the learned tokens among the patches."""
        embeds = self.backbone.encode_image(
            pixels, self.vision_ctx, DeepPrompts(tuple(self.vision_deep))
        )
        return F.normalize(embeds, dim=-1)

    def encode_classes(self, names: Sequence[str]) -> ClassEmbeddings:
        """Embeds class names with the learned tokens of every prompted block."""
        texts = self.context.texts(names)
        embeds = self.backbone.encode_text(texts, self.context.ctx, DeepPrompts(tuple(self.deep)))
        return self.class_embeddings(names, F.normalize(embeds, dim=-1))

    @classmethod
    def published_training(cls, facts: TaskFacts) -> tuple[TrainConfig, ...]:
        """PromptSRC's."""
        return cls.training_for(facts, IVLPConfig())

    @classmethod
    def training_for(cls, facts: TaskFacts, config: IVLPConfig) -> tuple[TrainConfig, ...]:
        """SGD with batches of 4 on all datasets: at 2.5e-3, 20 epochs; MaPLe's 3.5e-3, 5."""
        published = PUBLISHED[config.paper]
        return (dassl(lr=published.lr, batch_size=4, epochs=published.epochs),)


def _given(value: int | None, published: int) -> int:
    return published if value is None else value
