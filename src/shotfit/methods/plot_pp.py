"""PLOT++: several prompts in both encoders, matched by optimal transport.

Paper: Chen et al., PLOT: Prompt Learning with Optimal Transport for Vision-Language Models,
ICLR 2023, https://arxiv.org/abs/2210.01253; "++" is its authors' later code for ViTs.

Equation: F (M, dim) are an image's embeddings under M visual prompts, G (N, dim) a class's under N
textual ones; logits(x, c) = s sum_mn T_mn cos(F_m, G_n), with T the plan of entropic transport for
the cost 1 - cos (eqs. 5 to 7). Two rounds: first the visual prompts alone train, on these logits
plus the pooled s cos(mean F, mean G); then both kinds train, on these alone.

Deviations: each image-class pair stops its Sinkhorn iterations on its own; the code stops all when
the mean over the batch has converged, so that a score depends on what else is in the batch. Round 1
uses the run's own shots; the code shares seed 1's among seeds. A phrase with fewer tokens than
n_ctx ("this is a") gets a slot that starts from the end-of-text embedding, as there, but does not
overwrite the class name's first token. Longer phrases keep their last tokens fixed. fp32. Datasets
without published phrases use Caltech101's. Two of the phrases for Pets and Flowers are equal, as
published, and stay so.

Novel categories: every prompt is shared by the classes, so any name can be embedded; the paper does
not measure it.

When to prefer it: for accuracy on the trained classes, when an image pass four times as long and
four text passes are affordable: that is why an iteration is slower than other methods'. As a first
stage it leaves the matching behind: a second stage takes the pooled embeddings mean F and mean G.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shotfit.config import Count, NotNegative, Positive, Size
from shotfit.data.benchmark.templates import dataset_templates
from shotfit.errors import UsageError
from shotfit.layers.prompt_tokens import prefixed, random_prompts, started_at
from shotfit.layers.sinkhorn import transport_plan
from shotfit.methods.base import ClassEmbeddings, Method
from shotfit.methods.published import TaskFacts, TrainConfig, coop_epochs, dassl

PHRASES = ("a photo of a", "this is a photo", "this is picture of", "one picture of a")


@dataclass(frozen=True)
class PLOTConfig:
    """Options of PLOT++."""

    phrases: tuple[str, ...] = PHRASES
    """What the textual prompts start from, one prompt each; the words of the first one are the
    learned tokens of all."""
    n_prompts_vision: Size = 4
    """Visual prompts, each with an image pass of its own."""
    n_ctx_vision: Size = 2
    """Learned tokens of a visual prompt."""
    eps: Positive = 0.1
    """Strength of the transport's entropy."""
    max_iterations: Count = 100
    """Sinkhorn iterations at most."""
    tolerance: NotNegative = 1e-2
    """Mean change of the row scaling below which the iterations stop."""


class PLOT(Method):
    """PLOT++ (see the module's docstring)."""

    Config = PLOTConfig
    reads = "nothing"
    starts_at_zero_shot = False
    first_fraction = 0.3

    def __init__(self, *args, **options) -> None:
        super().__init__(*args, **options)
        config = self.config
        if not config.phrases or not config.phrases[0].split():
            raise UsageError("PLOT++ needs at least one phrase, and the first one not empty.")
        n_ctx = len(config.phrases[0].split())
        starts = [started_at(self.backbone, phrase, n_ctx) for phrase in config.phrases]
        self.ctx = nn.Parameter(torch.stack([ctx for _, _, ctx in starts]))
        # Prompts whose fixed tokens agree are embedded in one pass.
        self._passes: dict[tuple[int, ...], tuple[str, list[int]]] = {}
        for index, (tail, prefix, _) in enumerate(starts):
            self._passes.setdefault(tail, (prefix, []))[1].append(index)
        shape = (config.n_prompts_vision, config.n_ctx_vision, self.backbone.vision.width)
        self.vision_ctx = nn.Parameter(random_prompts(shape, self.generator, self.backbone.device))
        self._pooled = False
        self.image_passes = config.n_prompts_vision

    def begin_round(self, number: int) -> None:
        """Round 0 trains the visual prompts on both kinds of logits, round 1 all on transport."""
        self.ctx.requires_grad_(number > 0)
        self._pooled = number == 0

    def encode_images(self, pixels: Tensor) -> Tensor:
        """Pooled over the visual prompts: for a second stage. `forward` matches them instead."""
        return F.normalize(self._prompted_images(pixels).mean(dim=0), dim=-1)

    def encode_classes(self, names: Sequence[str]) -> ClassEmbeddings:
        """Embeds class names: pooled over the prompts, and each prompt's own in `per_prompt`."""
        per_prompt: list[Tensor] = [self.ctx] * len(self.ctx)
        for prefix, indices in self._passes.values():
            texts = prefixed(prefix, names)
            embeds = self.backbone.encode_text(texts, self.ctx[indices])
            for index, own in zip(indices, embeds, strict=True):
                per_prompt[index] = own
        stacked = torch.stack(per_prompt)
        weight = F.normalize(stacked.mean(dim=0), dim=-1)
        return self.class_embeddings(names, weight, F.normalize(stacked, dim=-1))

    def forward(self, pixels: Tensor, classes: ClassEmbeddings) -> Tensor:
        """Logits (batch, classes) by transport; in the first round plus the pooled ones."""
        assert classes.per_prompt is not None
        images = self._prompted_images(pixels)
        cosines = torch.einsum("mbd,nkd->bkmn", F.normalize(images, dim=-1), classes.per_prompt)
        config = self.config
        plan = transport_plan(cosines, config.eps, config.max_iterations, config.tolerance)
        logits = self.scaled((plan * cosines).sum(dim=(-2, -1)))
        if self._pooled:
            logits = logits + self.logits(F.normalize(images.mean(dim=0), dim=-1), classes.weight)
        return logits

    def score_rows(self, classes: ClassEmbeddings) -> tuple[Tensor, Tensor]:
        """Refuses.

        Raises:
            UsageError: always: the plan of transport is another for every image.
        """
        raise UsageError(
            "PLOT++ matches the prompts of every image and class anew, so that there is no row for "
            "a class: as a first stage (2sfs:plot_pp) it can be exported."
        )

    def _prompted_images(self, pixels: Tensor) -> Tensor:
        """Image embeddings under every visual prompt, not normalised, (prompts, batch, dim)."""
        prompts = len(self.vision_ctx)
        context = self.vision_ctx[:, None].expand(-1, pixels.shape[0], -1, -1).flatten(0, 1)
        embeds = self.backbone.encode_image(pixels.repeat(prompts, 1, 1, 1), context)
        return embeds.unflatten(0, (prompts, -1))

    @classmethod
    def published_config(cls, facts: TaskFacts) -> PLOTConfig:
        """The four phrases of the dataset, or Caltech101's."""
        templates = dataset_templates(facts.dataset)
        return PLOTConfig(phrases=templates.plot if templates else PHRASES)

    @classmethod
    def published_training(cls, facts: TaskFacts) -> tuple[TrainConfig, ...]:
        """Two rounds of 50, 100 or 200 epochs by shots, ImageNet 50; SGD at 2e-3, batches of 32."""
        return (dassl(lr=2e-3, batch_size=32, epochs=coop_epochs(facts)),) * 2
