"""CLIP: class-token image tower, causal text tower read at the end-of-text token."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from shotfit.backbone.packed_prompts import PackedPrompts, pack
from shotfit.backbone.tower import DenseLayout, Tower, block_from
from shotfit.errors import DataError


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
        self, pixels: Tensor, context: Tensor | None = None, deep: Sequence[Tensor] = ()
    ) -> Tensor:
        """Image embeddings, not normalised, (batch, dim).

        `context` (n, width) or (batch, n, width) is appended after the patch tokens before the
        first norm; `deep[i]` takes its place before block i + 1 (MaPLe, section 3.3).
        """
        patches = self.patch_embedding(pixels).flatten(2).transpose(1, 2)
        first = self.class_embedding.expand(len(pixels), 1, -1)
        tokens = torch.cat([first, patches], dim=1) + self.position_embedding
        prompts = 0
        if context is not None:
            prompts = context.shape[-2]
            tokens = torch.cat([tokens, _per_image(context, tokens)], dim=1)

        def replace(tokens: Tensor, index: int) -> Tensor:
            if index > len(deep):
                return tokens
            return torch.cat([tokens[:, :-prompts], _per_image(deep[index - 1], tokens)], dim=1)

        tokens = self.run_blocks(
            self.norm_pre(tokens), DenseLayout(), read_last=True, replace=replace if deep else None
        )
        return self.projection(self.norm_post(tokens[:, 0]))


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
        """The most tokens that a prompt may have, both ends included."""
        return self.position_embedding.shape[0]

    def prepare(self, prompts: Sequence[Sequence[int]]) -> PackedPrompts:
        """Token ids, start and end included, in the form that `forward` takes.

        Raises:
            DataError: for a prompt longer than the tower's context.
        """
        for prompt in prompts:
            if len(prompt) > self.max_length:
                raise DataError(
                    f"A prompt has {len(prompt)} tokens; this model reads {self.max_length}. "
                    "Shorten the class name or the template."
                )
        return pack(prompts)

    def forward(
        self, prompts: PackedPrompts, context: Tensor | None = None, deep: Sequence[Tensor] = ()
    ) -> Tensor:
        """Text embeddings, not normalised, (prompts, dim) or, per group, (groups, prompts, dim).

        `context` (n, width) or (groups, n, width) takes the place of the token embeddings after
        the start-of-text token; `deep[i]` (n, width) that of the states there before block i + 1.
        """
        grouped = context is not None and context.dim() == 3
        tokens = self.token_embedding(prompts.ids)[None]
        if context is not None:
            tokens = self._overwrite(tokens, prompts, context if grouped else context[None])
        tokens = tokens + self.position_embedding[prompts.positions]

        def replace(tokens: Tensor, index: int) -> Tensor:
            if index > len(deep):
                return tokens
            return self._overwrite(tokens, prompts, deep[index - 1][None])

        tokens = self.run_blocks(tokens, prompts, read_last=True, replace=replace if deep else None)
        embeds = self.projection(self.norm_final(tokens))
        return embeds if grouped else embeds[0]

    def _overwrite(self, tokens: Tensor, prompts: PackedPrompts, context: Tensor) -> Tensor:
        """`tokens` with those at the context's positions replaced, in prefix and suffix alike."""
        start, count = self.context_start, context.shape[1]
        groups = max(len(context), len(tokens))
        tokens, context = (x.to(tokens.dtype).expand(groups, -1, -1) for x in (tokens, context))
        if start + count <= prompts.prefix:
            rest = tokens[:, start + count :]
            return torch.cat([tokens[:, :start], context, rest], dim=1)
        inside = (prompts.positions >= start) & (prompts.positions < start + count)
        rows = context.index_select(1, (prompts.positions - start).clamp(0, count - 1))
        return torch.where(inside[None, :, None], rows, tokens)


def _per_image(prompt: Tensor, tokens: Tensor) -> Tensor:
    return prompt.to(tokens.dtype).expand(len(tokens), -1, -1)


def tokenize(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """Token ids of each text, start and end included."""
    return tokenizer(list(texts))["input_ids"]


def towers(model: Any, tokenizer: Any) -> tuple[ImageTower, TextTower]:
    """The two towers of a transformers `CLIPModel`."""
    return (
        ImageTower(model.vision_model, model.visual_projection),
        TextTower(model.text_model, model.text_projection),
    )
