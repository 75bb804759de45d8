"""SigLIP: attention-pooled image tower, bidirectional text tower read at the last of 64 tokens.

Zhai et al., Sigmoid Loss for Language Image Pre-Training, ICCV 2023, arXiv 2303.15343. The
fixed-resolution checkpoints of SigLIP 2 (Tschannen et al., 2025, arXiv 2502.14786) are the same
model with another tokenizer and carry the same model type; the NaFlex ones (type `siglip2`) take
images as patch sequences of any shape and are not supported.
"""

import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shotfit.backbone.tower import (
    DeepPrompts,
    DenseLayout,
    Layout,
    Tower,
    append_prompts,
    attention,
    blended,
    block_from,
    merge_heads,
    per_image,
    split_heads,
    too_long,
)
from shotfit.errors import DataError

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True)
class PatchLayout(DenseLayout):
    """Every token sees every other, and the first `read` of them are read."""

    read: int

    def pick(self, tokens: Tensor) -> Tensor:
        """The patch tokens, (batch, patches, width), and prompts behind them only if asked for."""
        return tokens[:, : self.read]


@dataclass(frozen=True, eq=False)
class PaddedText(DenseLayout):
    """Texts of equal length, (..., texts, length, width), the last token of each read.

    The padding is part of the input: SigLIP was trained without an attention mask, and reads its
    embedding at the last place, which is nearly always padding. Nothing can be left out but the
    last block's work on the tokens that are not read.
    """

    ids: Tensor  # (texts, length)

    def __len__(self) -> int:
        """The number of texts."""
        return len(self.ids)

    def to(self, device: torch.device) -> "PaddedText":
        """The same texts on another device."""
        return PaddedText(self.ids.to(device))

    def pick(self, tokens: Tensor) -> Tensor:
        """The last tokens, (..., texts, 1, width)."""
        return tokens[..., -1:, :]


class AttentionPooling(nn.Module):
    """A learned query over all patch tokens, and an MLP block: (batch, n, width) to (batch, width).

    It has a norm of its own, which counts among the outer norms.
    """

    def __init__(self, head: Any, heads: int) -> None:
        """Takes over the modules of a transformers `SiglipMultiheadAttentionPoolingHead`."""
        super().__init__()
        self.probe = head.probe
        self.attention = head.attention
        self.norm = head.layernorm
        self.fc1, self.fc2 = head.mlp.fc1, head.mlp.fc2
        self.activation = head.mlp.activation_fn
        self.heads = heads

    def forward(self, tokens: Tensor) -> Tensor:
        """The pooled token of each image."""
        width = tokens.shape[-1]
        weight, bias = self.attention.in_proj_weight, self.attention.in_proj_bias
        # The query is the same for every image, so it is projected once.
        query = F.linear(self.probe, weight[:width], bias[:width]).expand(tokens.shape[0], -1, -1)
        keys, values = F.linear(tokens, weight[width:], bias[width:]).chunk(2, dim=-1)
        q, k, v = (split_heads(x, self.heads) for x in (query, keys, values))
        pooled = merge_heads(attention(q, k, v))
        pooled = self.attention.out_proj(pooled)
        pooled = pooled + self.fc2(self.activation(self.fc1(self.norm(pooled))))
        return pooled[:, 0]


class ImageTower(Tower):
    """Patches, positions, blocks, norm of every patch, attention pooling."""

    def __init__(self, model: Any) -> None:
        """Takes over the modules of a transformers `SiglipVisionModel`."""
        config = model.config
        super().__init__(
            [block_from(layer, config.num_attention_heads) for layer in model.encoder.layers],
            config.hidden_size,
        )
        self.patch_embedding = model.embeddings.patch_embedding
        self.position_embedding = model.embeddings.position_embedding.weight
        self.norm_post = model.post_layernorm
        self.pooling = AttentionPooling(model.head, config.num_attention_heads)
        # The pooled token is the embedding; a method may put a projection here.
        self.projection = nn.Identity()

    def forward(
        self, pixels: Tensor, context: Tensor | None = None, deep: DeepPrompts | None = None
    ) -> Tensor:
        """Image embeddings, not normalised, (batch, dim); arguments as `pooled`."""
        return self.projection(self.pooled(pixels, context, deep))

    def pooled(
        self, pixels: Tensor, context: Tensor | None = None, deep: DeepPrompts | None = None
    ) -> Tensor:
        """What the projection makes an embedding of, (batch, width).

        `context` (n, width) or (batch, n, width) is appended after the patch tokens before block
        0; `deep` takes its place before later blocks. The pooling reads the patches only: with
        a class token, prompts act through attention and are dropped at the end, and of the ways
        to pool a tower that has none, leaving the prompts out is the one that Jia et al., Visual
        Prompt Tuning, ECCV 2022, find not to hurt.
        """
        return self.pooling(self.norm_post(self._states(pixels, context, deep, 0)))

    def with_prompts(self, pixels: Tensor, deep: DeepPrompts) -> tuple[Tensor, Tensor]:
        """`forward` with inserted prompts, and their last states, normed, (batch, n, width)."""
        count = deep.tokens[0].shape[-2]
        tokens = self.norm_post(self._states(pixels, None, deep, count))
        return self.projection(self.pooling(tokens[:, :-count])), tokens[:, -count:]

    def _states(
        self, pixels: Tensor, context: Tensor | None, deep: DeepPrompts | None, prompts: int
    ) -> Tensor:
        """What the last block makes of the patches and the first `prompts` tokens behind them."""
        pixels = pixels.to(self.patch_embedding.weight.dtype)
        tokens = self.patch_embedding(pixels).flatten(2).transpose(1, 2) + self.position_embedding
        layout = PatchLayout(tokens.shape[1] + prompts)
        if context is not None:
            tokens = torch.cat([tokens, per_image(context, tokens)], dim=1)
        enter = None if deep is None else append_prompts(deep)
        return self.run_blocks(tokens, layout, read_last=True, enter=enter)


class TextTower(Tower):
    """Tokens, positions, blocks without a mask, norm of the last token, linear head."""

    # There is no start-of-text token for a learned context to follow.
    context_start = 0

    def __init__(self, model: Any, pad: int) -> None:
        """Takes over the modules of a transformers `SiglipTextModel`; `pad` is the padding id."""
        config = model.config
        super().__init__(
            [block_from(layer, config.num_attention_heads) for layer in model.encoder.layers],
            config.hidden_size,
        )
        self.token_embedding = model.embeddings.token_embedding
        self.position_embedding = model.embeddings.position_embedding.weight
        self.norm_final = model.final_layer_norm
        self.projection = model.head
        self.pad = pad

    @property
    def max_length(self) -> int:
        """The most tokens that a text may have, the end included."""
        return self.position_embedding.shape[0]

    def prepare(self, texts: Sequence[Sequence[int]]) -> PaddedText:
        """Token ids, end included, in the form that `forward` takes: padded to `max_length`.

        Raises:
            DataError: for a text longer than the tower's context.
        """
        for text in texts:
            if len(text) > self.max_length:
                raise DataError(too_long("A text", len(text), self.max_length))
        rows = [[*text, *[self.pad] * (self.max_length - len(text))] for text in texts]
        return PaddedText(torch.tensor(rows))

    def traced(self, ids: Tensor, end: Tensor) -> PaddedText:
        """One text for `forward`, of `max_length` token ids; its end is read where it always is."""
        return PaddedText(ids[None])

    def forward(
        self, texts: PaddedText, context: Tensor | None = None, deep: DeepPrompts | None = None
    ) -> Tensor:
        """Text embeddings, not normalised, (texts, dim) or, per group, (groups, texts, dim).

        `context` (n, width) or (groups, n, width) takes the place of the first token embeddings;
        `deep` that of the states there before later blocks.
        """
        tokens = self.token_embedding(texts.ids)
        if context is not None:
            # (groups, 1, n, width) or (1, n, width), to stand at the front of every text.
            tokens = _overwrite(tokens, context.unsqueeze(-3))
        tokens = tokens + self.position_embedding

        def enter(tokens: Tensor, layout: Layout, index: int) -> tuple[Tensor, Layout]:
            new = None if deep is None else deep.entering(index)
            if deep is None or new is None:
                return tokens, layout
            if deep.makes_room(index):
                return torch.cat([per_image(new, tokens), tokens], dim=-2), layout
            new = blended(new, tokens[..., : new.shape[-2], :], deep.share)
            return _overwrite(tokens, new if new.dim() > 2 else new[None]), layout

        tokens = self.run_blocks(tokens, texts, read_last=True, enter=enter)
        return self.projection(self.norm_final(tokens)).squeeze(-2)


def _overwrite(tokens: Tensor, context: Tensor) -> Tensor:
    """`tokens` (..., texts, length, width) with the first of each text replaced."""
    rest = tokens[..., context.shape[-2] :, :]
    groups = torch.broadcast_shapes(context.shape[:-2], rest.shape[:-2])
    parts = (context.to(tokens.dtype), rest)
    return torch.cat([part.expand(*groups, -1, -1) for part in parts], dim=-2)


def tokenize(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """Token ids of each text, with an end and no start, as in training.

    Both generations were trained on lower-case text. Every published SigLIP 2 checkpoint names
    Gemma's tokenizer, which keeps capitals, so that is done here. The first generation, known by
    padding with its end token, also drops punctuation; not all of its tokenizers do so.
    """
    texts = [text.lower() for text in texts]
    end, start = tokenizer.eos_token_id, tokenizer.bos_token_id
    if tokenizer.pad_token_id == end:
        texts = [" ".join(text.translate(_NO_PUNCTUATION).split()) for text in texts]
    rows = [list(row) for row in tokenizer(texts)["input_ids"]]
    rows = [row[1:] if start is not None and row[:1] == [start] else row for row in rows]
    return [row if row[-1:] == [end] else [*row, end] for row in rows]


def text_rules(tokenizer: Any) -> dict[str, Any]:
    """What `tokenize` and `prepare` do besides calling the tokenizer, as values."""
    end = tokenizer.eos_token_id
    return {
        "pad": tokenizer.pad_token_id,
        "lower": True,
        "drop_punctuation": tokenizer.pad_token_id == end,
        "drop_start": tokenizer.bos_token_id,
        "end": end,
    }


def towers(model: Any, tokenizer: Any) -> tuple[ImageTower, TextTower]:
    """The two towers of a transformers `SiglipModel`.

    The padding id is the tokenizer's: the config's default is that of the first generation, and
    the checkpoints of the second do not correct it.

    Raises:
        DataError: for an image model without its pooling head, or a tokenizer without padding.
    """
    # Earlier versions of transformers say so only where there is none.
    if not getattr(model.config.vision_config, "vision_use_head", True):
        raise DataError("This SigLIP model has no pooling head, so no image embedding.")
    if tokenizer.pad_token_id is None or tokenizer.eos_token_id is None:
        raise DataError("The tokenizer of a SigLIP model needs a padding and an end token.")
    return ImageTower(model.vision_model), TextTower(model.text_model, tokenizer.pad_token_id)
