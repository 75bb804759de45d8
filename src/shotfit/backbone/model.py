"""Backbone: one pretrained dual encoder as two towers, frozen, whatever family it is of.

Methods see only what is here and in `tower.py`.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from shotfit.backbone.activation import recomputed
from shotfit.backbone.chunks import chunk_under_way
from shotfit.backbone.families import get_family
from shotfit.backbone.hub import (
    Hints,
    find_checkpoint,
    read_checkpoint,
    read_hints,
    read_image_spec,
)
from shotfit.backbone.tower import DeepPrompts, Tower
from shotfit.data.transforms import ImageSpec
from shotfit.errors import DataError

# What the text tower may keep of its texts for the gradient; beyond it, texts are computed
# again in the backward pass, so that memory does not grow with the number of classes.
TEXT_BYTES = 1 << 30


class Backbone(nn.Module):
    """A dual encoder that starts frozen: two towers, a tokenizer and a logit scale.

    Methods change the towers in place, so that a backbone belongs to one method and is never
    shared between two.
    """

    def __init__(
        self,
        family: str,
        towers: tuple[Tower, Tower],
        tokenizer: Any,
        *,
        logit_scale: Tensor,
        logit_bias: Tensor | None = None,
        image_spec: ImageSpec,
        name: str = "",
        revision: str = "",
    ) -> None:
        super().__init__()
        self.family = family
        # Families share no class above Tower; what they have in common is what is used here.
        self.vision: Any
        self.text: Any
        self.vision, self.text = towers
        self.tokenizer = tokenizer
        # SigLIP stores one-element vectors; a scalar broadcasts over scores of any shape.
        self.logit_scale = nn.Parameter(logit_scale.detach().clone().reshape(()))
        # Of SigLIP alone.
        self.logit_bias: nn.Parameter | None = None
        if logit_bias is not None:
            self.logit_bias = nn.Parameter(logit_bias.detach().clone().reshape(()))
        self.image_spec = image_spec
        self.hints = Hints()
        self.name = name
        self.revision = revision
        self._prepared: dict[tuple[tuple[str, ...], int], Any] = {}
        self.requires_grad_(False)

    @property
    def dim(self) -> int:
        """The dimension of the joint embedding space."""
        return self.text.projection.out_features

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.logit_scale.device

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, the family's start and end included, without padding."""
        return get_family(self.family).tokenize(self.tokenizer, texts)

    def encode_image(
        self, pixels: Tensor, context: Tensor | None = None, deep: DeepPrompts | None = None
    ) -> Tensor:
        """Image embeddings, not normalised: (batch, 3, size, size) to (batch, dim)."""
        return self.vision(pixels, context, deep)

    def encode_image_and_prompts(self, pixels: Tensor, deep: DeepPrompts) -> tuple[Tensor, Tensor]:
        """`encode_image` with inserted prompts, and the last states of the prompts themselves
        behind the tower's last norm, (batch, n, width)."""
        return self.vision.with_prompts(pixels, deep)

    def encode_text(
        self, texts: Sequence[str], context: Tensor | None = None, deep: DeepPrompts | None = None
    ) -> Tensor:
        """Text embeddings, not normalised, (texts, dim); (groups, texts, dim) per context group.

        Equal texts are embedded once. A `context` takes the places of the first tokens of each
        text, which must be there as placeholders.

        Raises:
            DataError: when a text is longer than the tower reads, or the tokenizer gives it a
                token that the tower does not know.
        """
        unique = tuple(dict.fromkeys(texts))
        if not unique:
            groups = () if context is None else context.shape[:-2]
            return torch.zeros(*groups, 0, self.dim, device=self.device)
        groups = len(context) if context is not None and context.dim() == 3 else 1
        left = TEXT_BYTES // (groups * self.text.token_bytes)
        if deep is not None and len(unique) < len(texts):
            deep = deep.of([texts.index(text) for text in unique])
        embedded = []
        start = 0
        for number, chunk in enumerate(self._chunks(unique, groups)):
            left -= chunk.ids.numel()
            encode = partial(self._encode_chunk, number)
            own = None if deep is None else deep.of(slice(start, start + len(chunk)))
            start += len(chunk)
            if left >= 0 or number == 0:
                embedded.append(encode(chunk, context, own))
            else:
                embedded.append(recomputed(encode, chunk, context, own))
        embeds = embedded[0] if len(embedded) == 1 else torch.cat(embedded, dim=-2)
        if len(unique) == len(texts):
            return embeds
        position = {text: index for index, text in enumerate(unique)}
        rows = torch.tensor([position[text] for text in texts], device=self.device)
        return embeds.index_select(-2, rows)

    def _encode_chunk(self, number: int, *arguments: Any) -> Tensor:
        """The text tower on one chunk, the same when it is computed again."""
        with chunk_under_way(number):
            return self.text(*arguments)

    def _chunks(self, unique: tuple[str, ...], groups: int) -> list[Any]:
        """The texts as the tower takes them, in chunks of which all groups together keep a quarter
        of `TEXT_BYTES`."""
        chunks = self._prepared.get((unique, groups))
        if chunks is None or chunks[0].ids.device != self.device:
            limit = TEXT_BYTES // (4 * groups * self.text.token_bytes)
            pending: list[list[list[int]]] = [[]]
            used = 0
            known = self.text.token_embedding.num_embeddings
            for text, tokens in zip(unique, self.tokenize(unique), strict=True):
                if max(tokens) >= known:
                    raise DataError(
                        f"The tokenizer of {self.name!r} is another model's: it gives {text!r} the "
                        f"token {max(tokens)}, and the model knows {known} tokens."
                    )
                used += len(tokens)
                if used > limit and pending[-1]:
                    pending.append([])
                    used = len(tokens)
                pending[-1].append(tokens)
            chunks = [self.text.prepare(tokens).to(self.device) for tokens in pending]
            # What texts become does not depend on weights, so it cannot go stale; a handful of
            # class lists is all that a run asks for.
            if len(self._prepared) >= 16:
                self._prepared.clear()
            self._prepared[unique, groups] = chunks
        return chunks

    @classmethod
    def from_pretrained(cls, name: str, revision: str | None = None) -> "Backbone":
        """The backbone called `name`: an embedded model, a local folder, or a hub id.

        Only safetensors weights are read.

        Raises:
            UsageError: for a model type that ShotFit has no towers for, and for a revision of
                something else than a hub id.
            DataError: when the model cannot be found or read; the message says what to do.
        """
        folder = find_checkpoint(name, revision)
        model, tokenizer = read_checkpoint(name, folder)
        backbone = cls.from_model(
            model, tokenizer, read_image_spec(folder), name=name, revision=revision or ""
        )
        backbone.hints = read_hints(folder)
        return backbone

    @classmethod
    def from_model(
        cls,
        model: Any,
        tokenizer: Any,
        image_spec: ImageSpec,
        *,
        name: str = "",
        revision: str = "",
    ) -> "Backbone":
        """A backbone that takes over the weights of a transformers model."""
        model_type = model.config.model_type
        return cls(
            model_type,
            get_family(model_type).towers(model, tokenizer),
            tokenizer,
            logit_scale=model.logit_scale,
            logit_bias=getattr(model, "logit_bias", None),
            image_spec=image_spec,
            name=name,
            revision=revision,
        )
