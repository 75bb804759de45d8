"""The second stage: a linear classifier over frozen features, started at the class embeddings.

Paper: Farina et al., Rethinking Few-Shot Adaptation of Vision-Language Models in Two Stages,
CVPR 2025, section 4.2, https://arxiv.org/abs/2503.11609.

Equation: logits(x, c) = s cos(V*(x), phi_c), with V* the frozen first stage and phi_c a trained
row, initialised with the first stage's unit-norm embedding of the name of c.

It wraps any method and takes from it `encode_images` and `encode_classes`, nothing else.
Selective inference falls out of that: a trained name is answered with its row, any other name with
the wrapped method's embedding.

`leash`, which nobody published for it, adds CLAP's constraint to the loss: rows are held to the
class embeddings that they started at, each as far as the first stage was right on its shots.

Deviations: the released code maps rows by name, so that classes of equal names share the last
one's row; here each keeps its own. It also leaves a wrapped method's dropout on while initialising
and training the classifier; `inner_dropout=True` does so.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shotfit.config import Count, NotNegative
from shotfit.data.prefetch import Batch
from shotfit.data.support_set import SupportSet
from shotfit.errors import UsageError
from shotfit.layers.anchors import Leash
from shotfit.layers.shuffling import shuffled_views
from shotfit.methods.base import ClassEmbeddings, Method, StepOutput
from shotfit.methods.published import TaskFacts, TrainConfig


@dataclass(frozen=True)
class LinearConfig:
    """Options of the second stage."""

    views: Count | None = None
    """None re-encodes freshly augmented images at every step, as published; a number encodes so
    many augmented views of each image once and trains on those features."""
    inner_dropout: bool = False
    """Leave the first stage's dropout on, as the released code does."""
    leash: NotNegative = 0.0
    """How strongly rows are held to their class embeddings; 0, as published, is not at all."""


class LinearClassifier(Method):
    """A linear classifier over a frozen first stage (see the module's docstring)."""

    Config = LinearConfig

    def __init__(
        self, inner: Method, config: LinearConfig | None = None, features: Tensor | None = None
    ) -> None:
        """`features` (views, images, dim) are cached views that were encoded before, on the CPU."""
        # Not `Method.__init__`: the backbone stays the wrapped method's own, saved once.
        nn.Module.__init__(self)
        self.config = config or LinearConfig()
        self.words, self.template, self.generator = inner.words, inner.template, inner.generator
        self.trained_names = ()
        if not inner.open_vocabulary:
            name = type(inner).__name__
            raise UsageError(f"{name} is bound to its classes: nothing a second stage builds on.")
        self._inner_learned = [f"inner.{name}" for name in inner.learned_names()]
        self.inner = inner.requires_grad_(False)
        self.features = None if features is None else features.to(inner.backbone.device)
        # Only training needs it: not registered, so not saved.
        self._leash: Leash | None = None
        # The rows are those of the last update.
        self.selects_on = inner.selects_on

    @property
    def backbone(self):  # type: ignore[override]
        """The wrapped method's backbone."""
        return self.inner.backbone

    @torch.no_grad()
    def prepare(self, support: SupportSet) -> None:
        """Starts the rows at the class embeddings; encodes the views when there are some."""
        self.train(self.training)
        rows = self.inner.encode_classes(support.classnames).weight.detach()
        # At least single precision to be trained in, whatever the towers compute in.
        rows = rows.to(torch.promote_types(rows.dtype, torch.float32)).clone()
        self.weight = nn.Parameter(rows)
        if self.config.views is not None and self.features is None:
            self.features = self.encode_views(support, self.config.views)
        if self.config.leash:
            logits = self.logits(self.encode_pass(support.plain()), rows)
            self._leash = Leash.of(rows.clone(), logits, support.labels.to(rows.device))

    def finish(self, support: SupportSet, validation: SupportSet | None) -> None:
        """Lets go of what only training reads."""
        self.features = self._leash = None

    def train(self, mode: bool = True) -> "LinearClassifier":
        """The wrapped method stays in evaluation mode, unless its dropout is asked for."""
        super().train(mode)
        if not self.config.inner_dropout:
            self.inner.eval()
        return self

    @torch.no_grad()
    def encode_images(self, pixels: Tensor) -> Tensor:
        """The wrapped method's image embeddings, without gradient."""
        return self.inner.encode_images(pixels)

    def encode_classes(self, names: Sequence[str]) -> ClassEmbeddings:
        """Rows for trained names, the wrapped method's embeddings for the others (section 4.3)."""
        weight = F.normalize(self.weight, dim=-1)
        rows = self.rows_or(names, weight, lambda n: self.inner.encode_classes(n).weight)
        return self.class_embeddings(names, rows)

    def loss(self, inputs: Tensor, labels: Tensor, names: Sequence[str]) -> StepOutput:
        """Cross-entropy and leash; `inputs` are pixels, or features when views are cached."""
        embeds = inputs if self.features is not None else self.encode_images(inputs)
        logits = self.logits(embeds, self.encode_classes(names).weight)
        loss = F.cross_entropy(logits, labels)
        if self._leash is not None:
            loss = loss + self.config.leash * self._leash.pull(self.weight)
        return StepOutput(loss, logits)

    def batches(self, support: SupportSet, batch_size: int, drop_last: bool) -> Iterator[Batch]:
        """Augmented pixels, or shuffled cached features: each epoch a random view per image."""
        if self.features is None:
            yield from super().batches(support, batch_size, drop_last)
            return
        labels = support.labels.to(self.features.device)
        generator = torch.Generator().manual_seed(support.stream.getrandbits(62))
        yield from shuffled_views(self.features, labels, batch_size, generator, drop_last)

    @classmethod
    def published_training(cls, facts: TaskFacts) -> tuple[TrainConfig, ...]:
        """2SFS's optimiser, with the factor that the backbone asks for: how far one step moves a
        logit depends on its logit scale and dimension, s sqrt(d), which are not CLIP's in every
        model. The recipe sets the number of iterations."""
        return (TrainConfig(lr=TrainConfig.lr * facts.classifier_lr_scale),)

    def learned_names(self) -> list[str]:
        """The rows and what the wrapped method learned, although that is frozen by now."""
        return ["weight", *self._inner_learned] if "weight" in self._parameters else []

    def load_learned(self, state: dict[str, Tensor]) -> None:
        """As `Method.load_learned`; tensors of the wrapped method go to it."""
        inside = {k.removeprefix("inner."): v for k, v in state.items() if k.startswith("inner.")}
        self.inner.load_learned(inside)
        self.weight = nn.Parameter(state["weight"].to(self.backbone.device), requires_grad=False)
