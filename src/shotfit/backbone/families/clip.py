"""CLIP: class-token image tower, causal text tower read at the end-of-text token."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from shotfit.backbone.packed_text import PackedText, TracedText, pack, traced_text
from shotfit.backbone.tower import (
    DeepPrompts,
    DenseLayout,
    Tower,
    append_prompts,
    blended,
    block_from,
    per_image,
    too_long,
)
from shotfit.errors import DataError


class PromptLayout(DenseLayout):
    """Every token sees every other; the first one and the last `prompts` are read."""

    def __init__(self, prompts: int) -> None:
        self.prompts = prompts

    def pick(self, tokens: Tensor) -> Tensor:
        """The first token and the learned ones, (batch, 1 + prompts, width)."""
        return torch.cat([tokens[:, :1], tokens[:, -self.prompts :]], dim=1)


class ImageTower(Tower):
    """Patches, class token, positions, norm, blocks, norm of the class token, projection."""

    def __init__(self, model: Any, projection: nn.Linear) -> None:
        """Takes over the modules of a transformers `CLIPVisionModel`."""
        config = model.config
        layers = model.encoder.layers
        super().__init__(
            [block_from(layer, config.num_attention_heads) for layer in layers], config.hidden_size
        )
        self.patch_embedding = model.embeddings.patch_embedding
        self.class_embedding = model.embeddings.class_embedding
        self.position_embedding = model.embeddings.position_embedding.weight
        self.norm_pre = model.pre_layrnorm
        self.norm_post = model.post_layernorm
        self.projection = projection

    def forward(
        self, pixels: Tensor, context: Tensor | None = None, deep: DeepPrompts | None = None
    ) -> Tensor:
        """Image embeddings, not normalised, (batch, dim).

        `context` (n, width) or (batch, n, width) is appended after the patch tokens before the
        first norm; `deep` takes its place before later blocks (MaPLe, section 3.3).
        """
        return self.projection(self.pooled(pixels, context, deep))

    def pooled(
        self, pixels: Tensor, context: Tensor | None = None, deep: DeepPrompts | None = None
    ) -> Tensor:
        """What the projection makes an embedding of, (batch, width); arguments as `forward`."""
        tokens = self._states(pixels, context, deep, DenseLayout())
        return self.norm_post(tokens[:, 0])

    def with_prompts(self, pixels: Tensor, deep: DeepPrompts) -> tuple[Tensor, Tensor]:
        """`forward` with inserted prompts, and their last states, normed, (batch, n, width)."""
        layout = PromptLayout(deep.tokens[0].shape[-2])
        tokens = self.norm_post(self._states(pixels, None, deep, layout))
        return self.projection(tokens[:, 0]), tokens[:, 1:]

    def _states(
        self,
        pixels: Tensor,
        context: Tensor | None,
        deep: DeepPrompts | None,
        layout: DenseLayout,
    ) -> Tensor:
        """What the last block makes of the tokens that `layout` reads."""
        pixels = pixels.to(self.patch_embedding.weight.dtype)
        patches = self.patch_embedding(pixels).flatten(2).transpose(1, 2)
        first = self.class_embedding.expand(pixels.shape[0], 1, -1)
        tokens = torch.cat([first, patches], dim=1) + self.position_embedding
        if context is not None:
            tokens = torch.cat([tokens, per_image(context, tokens)], dim=1)
        enter = None if deep is None else append_prompts(deep)
        return self.run_blocks(self.norm_pre(tokens), layout, read_last=True, enter=enter)


class TextTower(Tower):
    """Tokens, positions, causal blocks, norm of the end-of-text token, projection."""

    # A learned context takes the places right after the start-of-text token.
    context_start = 1

    def __init__(self, model: Any, projection: nn.Linear) -> None:
        """Takes over the modules of a transformers `CLIPTextModel`."""
        config = model.config
        layers = model.encoder.layers
        super().__init__(
            [block_from(layer, config.num_attention_heads) for layer in layers], config.hidden_size
        )
        self.token_embedding = model.embeddings.token_embedding
        self.position_embedding = model.embeddings.position_embedding.weight
        self.norm_final = model.final_layer_norm
        self.projection = projection

    @property
    def max_length(self) -> int:
        """The most tokens that a text may have, both ends included."""
        return self.position_embedding.shape[0]

    def prepare(self, texts: Sequence[Sequence[int]]) -> PackedText:
        """Token ids, start and end included, in the form that `forward` takes.

        Raises:
            DataError: for a text longer than the tower's context.
        """
        for text in texts:
            if len(text) > self.max_length:
                raise DataError(too_long("A text", len(text), self.max_length))
        return pack(texts)

    def traced(self, ids: Tensor, end: Tensor) -> TracedText:
        """One text for `forward`, of `max_length` token ids and the place of its end among them,
        both values of a graph that is being exported."""
        return traced_text(ids, end)

    def forward(
        self, texts: PackedText, context: Tensor | None = None, deep: DeepPrompts | None = None
    ) -> Tensor:
        """Text embeddings, not normalised, (texts, dim) or, per group, (groups, texts, dim).

        `context` (n, width) or (groups, n, width) takes the place of the token embeddings after
        the start-of-text token; `deep` that of the states there before later blocks.
        """
        grouped = context is not None and context.dim() == 3
        tokens = self.token_embedding(texts.ids)[None]
        if context is not None:
            tokens = self._overwrite(tokens, texts, context if grouped else context[None])
        tokens = tokens + self.position_embedding[texts.positions]
        enter = None if deep is None else partial(self._enter, deep)
        tokens = self.run_blocks(tokens, texts, read_last=True, enter=enter)
        embeds = self.projection(self.norm_final(tokens))
        return embeds if grouped else embeds[0]

    def _enter(
        self, deep: DeepPrompts, tokens: Tensor, texts: PackedText, index: int
    ) -> tuple[Tensor, PackedText]:
        """Tokens and layout with the prompts that enter before block `index`."""
        new = deep.entering(index)
        if new is None:
            return tokens, texts
        if deep.makes_room(index):
            start, new = self.context_start, per_image(new, tokens)
            tokens = torch.cat([tokens[:, :start], new, tokens[:, start:]], dim=1)
            return tokens, texts.lengthened(start, new.shape[1])
        if new.dim() == 2:
            return self._overwrite(tokens, texts, new[None], deep.share), texts
        # What differs between texts can no longer lie there once for all.
        apart = texts.apart
        tokens = tokens.index_select(1, apart.ids)
        inside = self._inside(apart, new.shape[1])
        rows = new.to(tokens.dtype).flatten(0, 1)[(inside.long().cumsum(0) - 1).clamp(min=0)]
        return torch.where(inside[:, None], blended(rows, tokens, deep.share), tokens), apart

    def _overwrite(
        self, tokens: Tensor, texts: PackedText, context: Tensor, share: float = 1.0
    ) -> Tensor:
        """`tokens` with those at the context's positions replaced, in prefix and suffix alike."""
        start, count = self.context_start, context.shape[1]
        groups = max(len(context), len(tokens))
        tokens, context = (x.to(tokens.dtype).expand(groups, -1, -1) for x in (tokens, context))
        if start + count <= texts.prefix:
            old, rest = tokens[:, start : start + count], tokens[:, start + count :]
            return torch.cat([tokens[:, :start], blended(context, old, share), rest], dim=1)
        inside = self._inside(texts, count)
        rows = context.index_select(1, (texts.positions - start).clamp(0, count - 1))
        return torch.where(inside[None, :, None], blended(rows, tokens, share), tokens)

    def _inside(self, texts: PackedText, count: int) -> Tensor:
        """Which tokens stand in the places of a context of `count` tokens."""
        start = self.context_start
        return (texts.positions >= start) & (texts.positions < start + count)


def tokenize(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """Token ids of each text, start and end included."""
    return tokenizer(list(texts))["input_ids"]


def text_rules(tokenizer: Any) -> dict[str, Any]:
    """What `tokenize` and `prepare` do besides calling the tokenizer: nothing but padding."""
    return {"pad": 0}


def towers(model: Any, tokenizer: Any) -> tuple[ImageTower, TextTower]:
    """The two towers of a transformers `CLIPModel`."""
    return (
        ImageTower(model.vision_model, model.visual_projection),
        TextTower(model.text_model, model.text_projection),
    )
