"""The transformer blocks of a dual encoder, and the two ways in which tokens see each other.

A `Block` holds what acts on each token alone (norms, projections, MLP); a layout holds how tokens
are arranged and which of them attend to which. Text needs no padding that way: texts lie end to
end, their shared prefix lies there once, and the last block computes only the tokens that are read.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shotfit.backbone.activation import quick_gelu, recomputed

LINEAR = ("q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2")
"""The linear layers of a block, as transformers names them."""


def too_long(what: str, tokens: int, most: int) -> str:
    """What is said of a text with more tokens than a tower has positions."""
    return (
        f"{what} has {tokens} tokens; this model reads {most}. "
        "Shorten the class name or the template."
    )


class Layout(Protocol):
    """How the tokens of a batch are arranged, and who attends to whom."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, heads: int, read: bool) -> Tensor:
        """Multi-head attention; with `read`, `q` holds only the picked tokens."""
        ...

    def pick(self, tokens: Tensor) -> Tensor:
        """The tokens that the tower's embedding is read from."""
        ...


Enter = Callable[[Tensor, Any, int], tuple[Tensor, Any]]
"""What may change before a block: tokens, their layout and the block's index to both anew."""


@dataclass(frozen=True, eq=False)
class DeepPrompts:
    """Learned tokens that enter a tower at later blocks than the first.

    `tokens[i]` stands before block `first` + i, counted from 0, in the places of the context. It is
    (n, width) or, in the text tower, (texts, n, width): each text its own.
    """

    tokens: tuple[Tensor, ...]
    first: int = 1
    inserted: bool = False
    """There is no context: the first tokens make places for themselves, the later ones take these
    (MMRL)."""
    share: float = 1.0
    """Share of the tokens in the places that they take; the rest is what the block below left there
    (MMRL++)."""

    def entering(self, index: int) -> Tensor | None:
        """The tokens that enter before block `index`."""
        at = index - self.first
        return self.tokens[at] if 0 <= at < len(self.tokens) else None

    def makes_room(self, index: int) -> bool:
        """Whether those tokens are added to what is there, not put in its place."""
        return self.inserted and index == self.first

    def of(self, rows: slice | list[int]) -> "DeepPrompts":
        """The tokens for some of the texts."""
        chosen = tuple(part[rows] if part.dim() == 3 else part for part in self.tokens)
        return replace(self, tokens=chosen)


def append_prompts(deep: DeepPrompts) -> Enter:
    """Puts prompts at the end of an image's tokens, (batch, length, width)."""

    def enter(tokens: Tensor, layout: Layout, index: int) -> tuple[Tensor, Layout]:
        new = deep.entering(index)
        if new is None:
            return tokens, layout
        new = per_image(new, tokens)
        if deep.makes_room(index):
            return torch.cat([tokens, new], dim=1), layout
        count = new.shape[1]
        new = blended(new, tokens[:, -count:], deep.share)
        return torch.cat([tokens[:, :-count], new], dim=1), layout

    return enter


def per_image(prompt: Tensor, tokens: Tensor) -> Tensor:
    """A prompt (n, width) or (batch, n, width) for every image of `tokens`."""
    return prompt.to(tokens.dtype).expand(tokens.shape[0], -1, -1)


def blended(new: Tensor, old: Tensor, share: float) -> Tensor:
    """`new`, of which only a share takes the place of `old`."""
    return new if share == 1 else share * new + (1 - share) * old


class DenseLayout:
    """Every token of a sequence sees every other: tokens (batch, length, width), token 0 read."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, heads: int, read: bool) -> Tensor:
        """Softmax attention without a mask."""
        q, k, v = (split_heads(x, heads) for x in (q, k, v))
        return merge_heads(attention(q, k, v))

    def pick(self, tokens: Tensor) -> Tensor:
        """The first token, (batch, 1, width)."""
        return tokens[:, :1]


class Block(nn.Module):
    """One pre-norm transformer block, CLIP's and SigLIP's alike."""

    def __init__(
        self,
        norms: tuple[nn.LayerNorm, nn.LayerNorm],
        projections: dict[str, nn.Linear],
        mlp: tuple[nn.Linear, nn.Linear],
        activation: Callable[[Tensor], Tensor],
        heads: int,
    ) -> None:
        super().__init__()
        self.norm1, self.norm2 = norms
        self.q_proj = projections["q_proj"]
        self.k_proj = projections["k_proj"]
        self.v_proj = projections["v_proj"]
        self.out_proj = projections["out_proj"]
        self.fc1, self.fc2 = mlp
        self.activation = activation
        self.heads = heads
        self._cast: dict[str, tuple[Tensor, Tensor | None]] = {}

    def forward(self, tokens: Tensor, layout: Layout, read: bool = False) -> Tensor:
        """The block's output for every token or, with `read`, only for those that are read."""
        normed = self.norm1(tokens)
        queries = layout.pick(normed) if read else normed
        residual = layout.pick(tokens) if read else tokens
        attended = layout.attend(*self._queries_keys_values(queries, normed), self.heads, read)
        tokens = residual + self._linear("out_proj", attended)
        hidden = self.activation(self._linear("fc1", self.norm2(tokens)))
        return tokens + self._linear("fc2", hidden)

    def cache_cast(self, dtype: torch.dtype | None) -> None:
        """Keeps the weights of frozen layers in `dtype` too, for passes under autocast, which
        casts them anew in every pass otherwise. None drops them, which is needed whenever a weight
        changes.

        Queries, keys and values become one product: the same sums, and one cast of its input.
        """
        self._cast = {}
        if dtype is None:
            return
        for name in LINEAR:
            layer = getattr(self, name)
            # Layers that a method put in place of the model's own do more than one product.
            if type(layer) is nn.Linear and not any(p.requires_grad for p in layer.parameters()):
                bias = None if layer.bias is None else layer.bias.detach().to(dtype)
                self._cast[name] = layer.weight.detach().to(dtype), bias
        parts = [self._cast.get(name) for name in LINEAR[:3]]
        whole = [part for part in parts if part is not None and part[1] is not None]
        if len(whole) == 3:
            weights, biases = zip(*whole, strict=True)
            self._cast["qkv"] = torch.cat(weights), torch.cat(biases)

    def _linear(self, name: str, x: Tensor) -> Tensor:
        cast = self._cast.get(name)
        if cast is None or not torch.is_autocast_enabled(x.device.type):
            return getattr(self, name)(x)
        return F.linear(x, *cast)

    def _queries_keys_values(
        self, queries: Tensor, normed: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        device = normed.device.type
        if queries is normed and "qkv" in self._cast and torch.is_autocast_enabled(device):
            q, k, v = self._linear("qkv", normed).chunk(3, dim=-1)
        else:
            q = self._linear("q_proj", queries)
            k, v = self._linear("k_proj", normed), self._linear("v_proj", normed)
        return q, k, v


class Tower(nn.Module):
    """A stack of blocks; the family's embedding before it and pooling after it are its own."""

    def __init__(self, blocks: Sequence[Block], width: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.width = width
        # Recompute activations in the backward pass instead of keeping them: less memory, one more
        # forward pass.
        self.checkpointing = False
        # About what a training step keeps of one token for the gradient, in bytes at fp32: per
        # block both residual states, queries, keys, values, the attended token, the hidden layer.
        self.token_bytes = 4 * sum(6 * width + block.fc1.out_features for block in blocks)

    def run_blocks(
        self,
        tokens: Tensor,
        layout: Layout,
        *,
        read_last: bool,
        enter: Enter | None = None,
    ) -> Tensor:
        """`tokens` through all blocks; `enter` may change what enters a block."""
        for index, block in enumerate(self.blocks):
            if enter is not None:
                tokens, layout = enter(tokens, layout, index)
            read = read_last and index == len(self.blocks) - 1
            if self.checkpointing:
                tokens = recomputed(block, tokens, layout, read)
            else:
                tokens = block(tokens, layout, read)
        return tokens


def attention(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    """Scaled dot-product attention; on a processor in fp32 whatever the precision around it.

    There the gradient of short sequences in half precision takes seven times as long (PyTorch
    2.13), and the casts cost next to nothing.
    """
    if q.device.type != "cpu" or not torch.is_autocast_enabled("cpu"):
        return F.scaled_dot_product_attention(q, k, v, **options)
    with torch.autocast("cpu", enabled=False):
        return F.scaled_dot_product_attention(q.float(), k.float(), v.float(), **options)


def block_from(layer: Any, heads: int) -> Block:
    """A `Block` of a transformers encoder layer; CLIP and SigLIP name its modules alike."""
    attention, mlp = layer.self_attn, layer.mlp
    activation = mlp.activation_fn
    # By name: importing transformers takes seconds, and some errors come before it is needed.
    if type(activation).__name__ == "QuickGELUActivation":
        activation = quick_gelu
    return Block(
        norms=(layer.layer_norm1, layer.layer_norm2),
        projections={name: getattr(attention, name) for name in LINEAR[:4]},
        mlp=(mlp.fc1, mlp.fc2),
        activation=activation,
        heads=heads,
    )


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(..., length, width) to (..., heads, length, width / heads)."""
    return x.unflatten(-1, (heads, -1)).transpose(-2, -3)


def merge_heads(x: Tensor) -> Tensor:
    """(..., heads, length, head width) to (..., length, width)."""
    return x.transpose(-2, -3).flatten(-2)
