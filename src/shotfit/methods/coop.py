"""CoOp: learns the words in front of the class name.

Paper: Zhou et al., Learning to Prompt for Vision-Language Models, IJCV 2022,
https://arxiv.org/abs/2109.01134.

Equation: prompt(c) = [v_1] ... [v_n] c., logits(x, c) = s cos(V(x), T(prompt(c))); the v train
and all classes share them (section 3.2).

Deviations: the published runs keep the learned tokens in fp16, updated without loss scaling; here
they are fp32. Class-specific contexts are left out: no published table of the comparison uses them.

Novel categories: embedded behind the same learned words.

When to prefer it: the reference for prompt learning. Sixteen random tokens fit the trained classes
best and lose the most on novel ones; a second stage cut in early gives part of that back.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch.nn import functional as F

from shotfit.config import Size
from shotfit.layers.prompt_tokens import text_context
from shotfit.methods.base import ClassEmbeddings, Method
from shotfit.methods.published import TaskFacts, TrainConfig, coop_epochs, dassl

RANDOM_TOKENS = 16


@dataclass(frozen=True)
class CoOpConfig:
    """Options of CoOp."""

    n_ctx: Size | None = None
    """Learned tokens: 16 that start at random, or the first ones of `ctx_init`. None takes 16, or
    all that the phrase has."""
    ctx_init: str | None = None
    """A phrase to start from; None starts at random (normal, standard deviation 0.02)."""


class CoOp(Method):
    """CoOp (see the module's docstring)."""

    Config = CoOpConfig
    reads = "nothing"
    starts_at_zero_shot = False
    first_fraction = 0.3

    def __init__(self, *args, **options) -> None:
        super().__init__(*args, **options)
        phrase = self.config.ctx_init
        n_ctx = self.config.n_ctx or (RANDOM_TOKENS if phrase is None else None)
        self.context = text_context(self.backbone, phrase, n_ctx, self.generator)
        self.starts_at_zero_shot = self.context.starts_as(self.template)

    def encode_classes(self, names: Sequence[str]) -> ClassEmbeddings:
        """Embeds class names behind the learned context."""
        embeds = self.backbone.encode_text(self.context.texts(names), self.context.ctx)
        return self.class_embeddings(names, F.normalize(embeds, dim=-1))

    @classmethod
    def published_config(cls, facts: TaskFacts) -> CoOpConfig:
        """16 random tokens; in base-to-novel four, from "a photo of a" (CoCoOp's comparison)."""
        if facts.setting == "base_to_novel":
            return CoOpConfig(ctx_init="a photo of a")
        return CoOpConfig()

    @classmethod
    def published_training(cls, facts: TaskFacts) -> tuple[TrainConfig, ...]:
        """SGD at 2e-3, batches of 32; epochs by shots, always 200 in base-to-novel, ImageNet 50."""
        settled = facts.setting == "base_to_novel" and facts.benchmark != "imagenet"
        epochs = 200 if settled else coop_epochs(facts)
        return (dassl(lr=2e-3, batch_size=32, epochs=epochs),)
