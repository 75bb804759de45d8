"""`Method`: zero-shot CLIP, and the few hooks that an adaptation method may override.

Score of an image x for a class c: s cos(V(x), T(prompt(c))), with the frozen logit scale s
(Radford et al., ICML 2021, section 3.1.2). A method overrides only what its paper changes.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shotfit.backbone import Backbone
from shotfit.data.prefetch import Batch
from shotfit.data.support_set import SupportSet
from shotfit.data.template import TEMPLATE, Words
from shotfit.errors import UsageError
from shotfit.layers.ensembles import mean_embeddings
from shotfit.methods.published import TaskFacts, TrainConfig


@dataclass(frozen=True)
class ClassEmbeddings:
    """Classes as a method embeds them, in the order asked; computed once per evaluation.

    `weight` is (classes, dim) with unit rows. `per_prompt` (prompts, classes, dim) is for methods
    with several embeddings of a class. `rows` says which trained class a name is; -1 for a name
    that was not trained.
    """

    names: tuple[str, ...]
    weight: Tensor
    rows: tuple[int, ...]
    per_prompt: Tensor | None = None


@dataclass(frozen=True)
class StepOutput:
    """The loss to minimise, a scalar with gradient, and its logits (batch, classes)."""

    loss: Tensor
    logits: Tensor


SelectsOn = Literal["nothing", "shots", "validation shots", "whole validation"]


@dataclass(frozen=True)
class NoOptions:
    """The config of a method that has nothing to choose."""


class Method(nn.Module):
    """Zero-shot CLIP, and the base of every adaptation method.

    A method owns its backbone and may change it. What it learns are registered tensors; it never
    sees test data, files or the command line, and draws random numbers only from `generator`.
    """

    Config: ClassVar[type] = NoOptions
    families: ClassVar[tuple[str, ...]] = ("clip", "siglip")
    # A fresh instance scores as zero-shot CLIP does; checked by the contract.
    starts_at_zero_shot: bool = True
    # Can score a class it was not trained on, from its name.
    open_vocabulary: ClassVar[bool] = True
    # The share of a two-stage budget that goes to this method as the first stage (paper, alpha);
    # None where it trains nothing that classes share, so that no second stage can follow.
    first_fraction: ClassVar[float | None] = 0.6
    # The loss is a mean over images and takes no gradients itself: a batch can be taken in parts,
    # and the loss scaled, as fp16 needs it.
    additive_loss: ClassVar[bool] = True
    # What of a task's words it reads: all of them, so that a class may be the mean of several
    # texts; the one template; nothing, where the prompt is learned from a phrase of its own.
    reads: ClassVar[Literal["words", "template", "nothing"]] = "words"
    # The images on which a method chooses what training leaves open: an epoch, a weight. On an
    # instance, after `finish`: those that were in fact used, which may be fewer.
    selects_on: SelectsOn = "nothing"
    # Passes through the image tower for each image.
    image_passes: int = 1
    # Bounds of the training crop's share of the image's area.
    crop_scale: ClassVar[tuple[float, float]] = (0.08, 1.0)

    def __init__(
        self,
        backbone: Backbone,
        config=None,
        template: str | Words = TEMPLATE,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.words = Words.of(template)
        self.check_words(self.words)
        if backbone.family not in self.families:
            raise UsageError(
                f"{type(self).__name__} works with {' and '.join(self.families)} models only; "
                f"{backbone.name or 'this model'} is of the family {backbone.family!r}."
            )
        self.backbone = backbone
        self.config = config if config is not None else self.Config()
        self.template = self.words.templates[0]
        self.generator = generator or torch.Generator().manual_seed(0)
        # Names of the classes it was trained on; what is learnt per class goes by them. Set by
        # `setup` and `restore`, and nowhere else.
        self.trained_names: tuple[str, ...] = ()

    @final
    def setup(self, support: SupportSet) -> None:
        """Makes the method ready to train on a support set: names its classes, calls `prepare`."""
        self.trained_names = tuple(support.classnames)
        self.prepare(support)

    def prepare(self, support: SupportSet) -> None:
        """Looks once at the support set before training; may solve the whole problem."""

    def finish(self, support: SupportSet, validation: SupportSet | None) -> None:
        """Chooses, after training, what is chosen on shots or validation shots."""

    def encode_images(self, pixels: Tensor) -> Tensor:
        """Unit-norm image embeddings: (batch, 3, size, size) to (batch, dim)."""
        return F.normalize(self.backbone.encode_image(pixels), dim=-1)

    def encode_classes(self, names: Sequence[str]) -> ClassEmbeddings:
        """Embeds class names, seen in training or not, in the order asked.

        Raises:
            UsageError: for an unseen name, by methods with `open_vocabulary` False.
        """
        if self.words.several:
            return self.class_embeddings(names, self.prompt_ensemble(names, ()))
        texts = [self.class_text(name) for name in names]
        weight = F.normalize(self.backbone.encode_text(texts), dim=-1)
        return self.class_embeddings(names, weight)

    def forward(self, pixels: Tensor, classes: ClassEmbeddings) -> Tensor:
        """Logits (batch, classes)."""
        return self.logits(self.encode_images(pixels), classes.weight)

    def score_features(self, pixels: Tensor) -> Tensor:
        """What an image brings into its scores, (batch, features); see `score_rows`."""
        return self.encode_images(pixels)

    def score_rows(self, classes: ClassEmbeddings) -> tuple[Tensor, Tensor]:
        """The scores as a product, which is what can be exported: rows (classes, features) and
        offsets (classes,) with `forward` = score_features rows^T + offsets.

        Raises:
            UsageError: when the scores of these classes are no such product.
        """
        return self.scaled_rows(classes.weight)

    def loss(self, inputs: Tensor, labels: Tensor, names: Sequence[str]) -> StepOutput:
        """What one training step minimises; `names[label]` is the class of an image."""
        logits = self(inputs, self.encode_classes(names))
        return StepOutput(F.cross_entropy(logits, labels), logits)

    @classmethod
    def published_config(cls, facts: TaskFacts):
        """The published hyper-parameters for a task."""
        return cls.Config()

    @classmethod
    def published_training(cls, facts: TaskFacts) -> tuple[TrainConfig, ...]:
        """The published training for a task, one entry per round; empty when nothing trains."""
        return ()

    @classmethod
    def training_for(cls, facts: TaskFacts, config) -> tuple[TrainConfig, ...]:
        """The published training with these options, for a method whose options change it."""
        return cls.published_training(facts)

    def begin_round(self, number: int) -> None:
        """Called before each of the rounds of `published_training`; sets what trains in it."""

    def batches(self, support: SupportSet, batch_size: int, drop_last: bool) -> Iterator[Batch]:
        """Endless training batches: what `loss` takes, and labels."""
        return support.batches(batch_size, drop_last=drop_last, crop_scale=self.crops)

    def training_state(self) -> dict[str, Tensor]:
        """What `batches` and `loss` collect from update to update, apart from what is learned, so
        that a training that was broken off can go on."""
        return {}

    def load_training_state(self, state: dict[str, Tensor]) -> None:
        """Takes up the tensors of `training_state`, once `batches` has begun."""

    # What follows is shared by methods and not meant to be overridden.

    @classmethod
    def check_words(cls, words: Words) -> None:
        """Refuses several texts of a class where one is needed.

        Raises:
            UsageError: by methods that read no template, or a single one.
        """
        if words.several and cls.reads != "words":
            takes = "a single template" if cls.reads == "template" else "no template"
            raise UsageError(
                f"{cls.__name__} reads {takes}, so that several templates or descriptions have no "
                "effect on it; 2sfs, lora, bitfit and zero_shot take them, for instance."
            )

    @property
    def crops(self) -> tuple[float, float]:
        """Bounds of the training crops: the method's, within what the backbone asks for."""
        smallest, largest = self.crop_scale
        return max(smallest, self.backbone.hints.crop_scale_min), largest

    def class_text(self, name: str) -> str:
        """The text that stands for a class. Underscores are spaces to every method but TaskRes and
        CLAP."""
        return self.template.format(name.replace("_", " "))

    def prompt_ensemble(
        self, names: Sequence[str], templates: Sequence[str], *, unit: bool = True
    ) -> Tensor:
        """Class embeddings (names, dim) of unit norm: the mean direction of a name in `templates`,
        the task's own if there are none (Radford et al., ICML 2021, section 3.1.4); without `unit`
        the direction of the mean of the embeddings as they are. The task's `Words` come before
        either."""
        plain = [name.replace("_", " ") for name in names]
        if self.words.several:
            texts = [self.words.texts(name) for name in plain]
            embeds = self.backbone.encode_text([text for own in texts for text in own])
            parts = F.normalize(embeds, dim=-1).split([len(own) for own in texts])
            return F.normalize(torch.stack([part.mean(dim=0) for part in parts]), dim=-1)
        chosen = templates or (self.template,)
        embeds = mean_embeddings(self.backbone.encode_text, plain, chosen, unit=unit)
        return F.normalize(embeds, dim=-1)

    def logits(self, image_embeds: Tensor, class_embeds: Tensor) -> Tensor:
        """Scaled cosine of unit-norm embeddings: (batch, dim), (classes, dim) to logits."""
        return self.scaled(image_embeds @ class_embeds.T)

    def scaled(self, cosines: Tensor) -> Tensor:
        """Logits of cosine similarities, for methods that compute these in their own way."""
        logits = self.backbone.logit_scale.exp() * cosines
        # SigLIP adds a bias; it moves no argmax, but its sigmoid probabilities need it.
        bias = self.backbone.logit_bias
        return logits if bias is None else logits + bias

    def scaled_rows(self, class_embeds: Tensor) -> tuple[Tensor, Tensor]:
        """The rows and offsets of `score_rows` that stand for `logits`."""
        bias = self.backbone.logit_bias
        offsets = class_embeds.new_zeros(len(class_embeds))
        rows = self.backbone.logit_scale.exp() * class_embeds
        return rows, offsets if bias is None else offsets + bias

    def class_embeddings(
        self, names: Sequence[str], weight: Tensor, per_prompt: Tensor | None = None
    ) -> ClassEmbeddings:
        """`ClassEmbeddings` of these names, with the trained class that each of them is."""
        return ClassEmbeddings(tuple(names), weight, self.trained_rows(names), per_prompt)

    def trained_rows(self, names: Sequence[str]) -> tuple[int, ...]:
        """The trained class that each name stands for; -1 for a name that was not trained.

        Classes may share a name: its n-th mention is the n-th trained class so named, so that two
        trained rows never collapse into one. A surplus mention counts as an unseen class.
        """
        left: dict[str, list[int]] = {}
        for row, name in enumerate(self.trained_names):
            left.setdefault(name, []).append(row)
        return tuple(left[name].pop(0) if left.get(name) else -1 for name in names)

    def seen_rows(self, names: Sequence[str]) -> Tensor:
        """`trained_rows` for a class-bound method.

        Raises:
            UsageError: when a name is not among the trained ones.
        """
        rows = self.trained_rows(names)
        unseen = [name for name, row in zip(names, rows, strict=True) if row < 0]
        if unseen:
            raise UsageError(
                f"{type(self).__name__} learns a row for each class and cannot score classes it "
                f"was not trained on: {', '.join(map(repr, unseen[:5]))}."
            )
        return torch.tensor(rows, device=self.backbone.device)

    def rows_or(
        self, names: Sequence[str], learned: Tensor, embed: Callable[[Sequence[str]], Tensor]
    ) -> Tensor:
        """A row (...) for each name, in the order asked: that of `learned` (classes, ...) for a
        trained name, and what `embed` makes of the other names, each given once."""
        rows = self.trained_rows(names)
        if rows == tuple(range(len(learned))):
            return learned
        novel = list(dict.fromkeys(n for n, row in zip(names, rows, strict=True) if row < 0))
        both = torch.cat([learned, embed(novel).to(learned.dtype)]) if novel else learned
        place = {name: number for number, name in enumerate(novel, start=len(learned))}
        chosen = [row if row >= 0 else place[n] for n, row in zip(names, rows, strict=True)]
        return both[torch.tensor(chosen, device=both.device)]

    @torch.no_grad()
    def encode_pass(
        self, batches: Iterable[Batch], encode: Callable[[Tensor], Tensor] | None = None
    ) -> Tensor:
        """Features (images, dim) of one pass over images, by `encode_images` unless `encode` is
        given."""
        encode = encode or self.encode_images
        return torch.cat([encode(pixels.to(self.backbone.device)) for pixels, _ in batches])

    def encode_views(
        self,
        support: SupportSet,
        views: int,
        encode: Callable[[Tensor], Tensor] | None = None,
    ) -> Tensor:
        """Features (views, images, dim) of a support set, augmented so many times. What trains
        behind a frozen encoder needs each view encoded only once."""
        passes = (support.augmented_once(crop_scale=self.crops) for _ in range(views))
        return torch.stack([self.encode_pass(batches, encode) for batches in passes])

    def learned_names(self) -> list[str]:
        """Names of the tensors that make this instance more than its backbone, in order."""
        parameters = [
            name
            for name, parameter in self.named_parameters()
            if parameter.requires_grad or not name.startswith("backbone.")
        ]
        return parameters + [name for name, _ in self.named_buffers()]

    def learned_state(self) -> dict[str, Tensor]:
        """The learned tensors by name, on the CPU: all that a saved classifier needs."""
        state = self.state_dict()
        return {name: state[name].detach().cpu().contiguous() for name in self.learned_names()}

    @final
    def restore(self, state: dict[str, Tensor], trained_names: Sequence[str]) -> None:
        """Takes up learned tensors without the support set they came from.

        Raises:
            KeyError, ValueError: when a tensor is missing, or does not fit this method and
                backbone.
        """
        self.trained_names = tuple(trained_names)
        self.load_learned(state)

    def load_learned(self, state: dict[str, Tensor]) -> None:
        """The tensors of `learned_state`, back in their places."""
        own = self.state_dict(keep_vars=True)
        for name, value in state.items():
            if name in own:
                if own[name].shape != value.shape:
                    raise ValueError(
                        f"{name} has shape {tuple(value.shape)}, not {tuple(own[name].shape)}"
                    )
                own[name].data.copy_(value)
            elif "." not in name:
                # Made by `prepare` from the support set.
                self.register_buffer(name, value.to(self.backbone.device))
            else:
                raise ValueError(f"{type(self).__name__} has no tensor {name}")
