"""Tip-Adapter: a cache of the training images' features, training-free or with trained keys.

Paper: Zhang et al., Tip-Adapter: Training-free Adaption of CLIP for Few-shot Classification, ECCV
2022, https://arxiv.org/abs/2207.09519.

Equation: logits = s f W + alpha exp(-beta (1 - f F)) L, with F the unit-norm cache keys, L their
labels one-hot, W the class embeddings (eq. 5). With `finetune` (Tip-Adapter-F) F trains.

Deviations: the official code takes the best epoch and, on ImageNet, alpha and beta from the test
images; here the last epoch is taken, and alpha and beta are searched on validation shots. Where
there are none, on the shots, each without its own cache entry, from two a class on. The scale is
the checkpoint's, not 100. Validation shots are at most four of a class, where the official search
has the whole split. fp32 (published: fp16). Templates are the published ones of each benchmark.

Novel categories: cannot be scored: no image of theirs is in the cache.

When to prefer it: an answer in seconds and without training, all classes known.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shotfit.config import Count, Positive
from shotfit.data.support_set import SupportSet
from shotfit.data.template import Template
from shotfit.layers.cache import SEARCHES, affinity, best_beta_and_alpha, cache_logits
from shotfit.methods.base import ClassEmbeddings, Method
from shotfit.methods.published import TaskFacts, TrainConfig, published_templates

FORMS = {"Tip-Adapter-F": {"finetune": True}}
"""Published names of this method with other options."""


@dataclass(frozen=True)
class TipAdapterConfig:
    """Options of Tip-Adapter."""

    finetune: bool = False
    """Train the cache keys: Tip-Adapter-F."""
    alpha: float = 1.17
    """Weight of the cache before the search; differs by dataset."""
    beta: float = 1.0
    """Sharpness of the cache before the search."""
    search: bool = True
    """Search alpha and beta when training is over."""
    beta_max: Positive = 7.0
    """Bound of the search for beta: 200 values from 0.1 up to it, itself left out."""
    alpha_max: Positive = 3.0
    """Bound of the search for alpha: 20 values likewise."""
    passes: Count = 10
    """Augmented views of each image that a cache key is the mean of."""
    templates: tuple[Template, ...] = ()
    """Prompt templates to average; none means the task's own."""


class TipAdapter(Method):
    """Tip-Adapter and Tip-Adapter-F (see the module's docstring)."""

    Config = TipAdapterConfig
    starts_at_zero_shot = False
    open_vocabulary = False
    first_fraction = None
    selects_on = "validation shots"
    crop_scale = (0.5, 1.0)

    def __init__(self, *args, **options) -> None:
        super().__init__(*args, **options)
        device = self.backbone.device
        self.alpha = nn.Buffer(torch.tensor(float(self.config.alpha), device=device))
        self.beta = nn.Buffer(torch.tensor(float(self.config.beta), device=device))

    @torch.no_grad()
    def prepare(self, support: SupportSet) -> None:
        """Fills the cache: mean features of augmented views, and labels."""
        views = self.encode_views(support, self.config.passes, self.backbone.encode_image)
        keys = F.normalize(views.mean(dim=0), dim=-1)
        self.cache_keys = nn.Parameter(keys) if self.config.finetune else nn.Buffer(keys)
        self.cache_labels = nn.Buffer(support.labels.to(keys.device))
        text = self.prompt_ensemble(self.trained_names, self.config.templates)
        self.class_weight = nn.Buffer(text)

    def encode_classes(self, names: Sequence[str]) -> ClassEmbeddings:
        """Class embeddings of trained classes.

        Raises:
            UsageError: for a class that is not in the cache.
        """
        return self.class_embeddings(names, self.class_weight[self.seen_rows(names)])

    def forward(self, pixels: Tensor, classes: ClassEmbeddings) -> Tensor:
        """Logits (batch, classes): the text's and the cache's."""
        embeds = self.encode_images(pixels)
        cosines, classes_in = embeds @ self.cache_keys.T, len(self.trained_names)
        cache = cache_logits(cosines, self.cache_labels, classes_in, self.beta)
        return self.logits(embeds, classes.weight) + self.alpha * cache[:, list(classes.rows)]

    def score_features(self, pixels: Tensor) -> Tensor:
        """Unit-norm embeddings, and behind them their affinity to every cached image."""
        embeds = self.encode_images(pixels)
        return torch.cat([embeds, affinity(embeds @ self.cache_keys.T, self.beta)], dim=-1)

    def score_rows(self, classes: ClassEmbeddings) -> tuple[Tensor, Tensor]:
        """Class embeddings, scaled, and alpha where a cached image is of the class."""
        rows, offsets = self.scaled_rows(classes.weight)
        wanted = torch.tensor(classes.rows, device=rows.device)
        cached = (wanted[:, None] == self.cache_labels).to(rows.dtype)
        return torch.cat([rows, self.alpha * cached], dim=-1), offsets

    @torch.no_grad()
    def finish(self, support: SupportSet, validation: SupportSet | None) -> None:
        """Searches beta and alpha on validation shots, or on the shots themselves."""
        images = validation or support
        leave_out = not validation
        self.selects_on = "nothing"
        if not self.config.search or (leave_out and int(support.labels.bincount().min()) < 2):
            return
        self.selects_on = "shots" if leave_out else "validation shots"
        embeds = self.encode_pass(images.plain())
        cosines = embeds @ self.cache_keys.T
        if leave_out:
            cosines.fill_diagonal_(-torch.inf)
        beta, alpha = best_beta_and_alpha(
            self.logits(embeds, self.class_weight),
            cosines,
            self.cache_labels,
            images.labels.to(embeds.device),
            beta_max=self.config.beta_max,
            alpha_max=self.config.alpha_max,
        )
        self.beta.fill_(beta)
        self.alpha.fill_(alpha)

    @classmethod
    def published_config(cls, facts: TaskFacts) -> TipAdapterConfig:
        """Alpha, bounds of the search and templates by dataset; ImageNet's bounds elsewhere."""
        alpha, beta_max, alpha_max = SEARCHES.get(facts.benchmark, SEARCHES["imagenet"])
        searched = {"alpha": alpha, "beta_max": beta_max, "alpha_max": alpha_max}
        return TipAdapterConfig(**searched, templates=published_templates(facts))

    @classmethod
    def training_for(cls, facts: TaskFacts, config: TipAdapterConfig) -> tuple[TrainConfig, ...]:
        """Nothing; with `finetune` AdamW at 1e-3, batches of 256, 20 epochs (EuroSAT 100)."""
        if not config.finetune:
            return ()
        epochs = 100 if facts.benchmark == "eurosat" else 20
        return (TrainConfig(lr=1e-3, eps=1e-4, batch_size=256, epochs=epochs, lr_min=0.0),)
