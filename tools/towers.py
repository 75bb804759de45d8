"""The towers of the embedded model written out for pretraining: CLIP's parameters, bf16 products.

Weights are kept in fp32 and cast where they are used, so that an optimiser's small steps are not
rounded away. Attention is written as two matrix products with an fp32 softmax between them: at 17
tokens that is three times as fast on a CPU with bf16 units as the library's fused attention, whose
gradient is slow there. ``transformers_weights`` gives the tensors under CLIP's names.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import layer_norm, linear, normalize, silu

HEAD = 64
"""Width of an attention head, as in every CLIP."""
EPS = 1e-5


def _weight(out: int, inner: int, std: float) -> nn.Parameter:
    return nn.Parameter(torch.randn(out, inner) * std)


class Block(nn.Module):
    """Pre-LayerNorm transformer block; queries, keys and values of one product."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.heads = width // HEAD
        spread, out = width**-0.5, width**-0.5 * (2 * depth) ** -0.5
        self.norm1, self.norm2 = nn.LayerNorm(width, EPS), nn.LayerNorm(width, EPS)
        self.q = _weight(width, width, out)
        self.k = _weight(width, width, out)
        self.v = _weight(width, width, out)
        self.qkv_bias = nn.Parameter(torch.zeros(3 * width))
        self.out = _weight(width, width, spread)
        self.out_bias = nn.Parameter(torch.zeros(width))
        self.fc1 = _weight(4 * width, width, (2 * width) ** -0.5)
        self.fc1_bias = nn.Parameter(torch.zeros(4 * width))
        self.fc2 = _weight(width, 4 * width, out)
        self.fc2_bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """(B, N, W) to (B, N, W) in the type of ``x``; ``mask`` is added to the fp32 scores."""
        batch, tokens, width = x.shape
        y = _norm(x, self.norm1)
        weight = torch.cat([self.q, self.k, self.v])
        qkv = linear(y, weight.to(x.dtype), self.qkv_bias.to(x.dtype))
        q, k, v = qkv.view(batch, tokens, 3, self.heads, HEAD).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2)).float() * HEAD**-0.5
        if mask is not None:
            scores = scores + mask
        y = scores.softmax(-1).to(x.dtype) @ v
        y = y.transpose(1, 2).reshape(batch, tokens, width)
        x = x + linear(y, self.out.to(x.dtype), self.out_bias.to(x.dtype))
        y = linear(_norm(x, self.norm2), self.fc1.to(x.dtype), self.fc1_bias.to(x.dtype))
        # QuickGELU, x * sigmoid(1.702 x), through the fused SiLU.
        y = silu(1.702 * y) / 1.702
        return x + linear(y, self.fc2.to(x.dtype), self.fc2_bias.to(x.dtype))


def _norm(x: torch.Tensor, norm: nn.LayerNorm) -> torch.Tensor:
    return layer_norm(x, norm.normalized_shape, norm.weight.to(x.dtype), norm.bias.to(x.dtype), EPS)


class VisionTower(nn.Module):
    """Images to unit embeddings."""

    def __init__(self, size: int, patch: int, width: int, depth: int, dim: int) -> None:
        super().__init__()
        self.size, self.patch, self.width = size, patch, width
        self.tokens = (size // patch) ** 2 + 1
        self.classes = nn.Parameter(torch.randn(width) * width**-0.5)
        self.patches = _weight(width, 3 * patch * patch, 0.02)
        self.positions = nn.Parameter(torch.randn(self.tokens, width) * 0.02)
        self.first, self.last = nn.LayerNorm(width, EPS), nn.LayerNorm(width, EPS)
        self.blocks = nn.ModuleList([Block(width, depth) for _ in range(depth)])
        self.projection = _weight(dim, width, width**-0.5)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(B, 3, S, S) to (B, D) unit fp32; computes in the type of ``images``."""
        batch, side, kind = len(images), self.size // self.patch, images.dtype
        cut = images.view(batch, 3, side, self.patch, side, self.patch)
        cut = cut.permute(0, 2, 4, 1, 3, 5).reshape(batch, side * side, -1)
        x = linear(cut, self.patches.to(kind))
        x = torch.cat([self.classes.to(kind).expand(batch, 1, -1), x], 1)
        x = _norm(x + self.positions.to(kind), self.first)
        for block in self.blocks:
            x = block(x, None)
        x = layer_norm(x[:, 0].float(), (self.width,), self.last.weight, self.last.bias, EPS)
        return normalize(linear(x, self.projection), dim=-1)


def at_resolution(tensors: dict[str, torch.Tensor], tokens: int) -> dict[str, torch.Tensor]:
    """Weights of a vision tower for another number of tokens: position embeddings resampled."""
    old = tensors["positions"]
    if len(old) == tokens:
        return tensors
    side, new = round((len(old) - 1) ** 0.5), round((tokens - 1) ** 0.5)
    grid = old[1:].T.reshape(1, -1, side, side)
    grid = nn.functional.interpolate(grid, (new, new), mode="bicubic", align_corners=False)
    return tensors | {"positions": torch.cat([old[:1], grid.reshape(-1, new * new).T])}


class TextTower(nn.Module):
    """Token ids to unit embeddings, causal, read at end-of-text."""

    def __init__(self, vocab: int, context: int, width: int, depth: int, dim: int) -> None:
        super().__init__()
        self.width, self.end = width, vocab - 1
        self.pieces = nn.Parameter(torch.randn(vocab, width) * 0.02)
        self.positions = nn.Parameter(torch.randn(context, width) * 0.01)
        self.last = nn.LayerNorm(width, EPS)
        self.blocks = nn.ModuleList([Block(width, depth) for _ in range(depth)])
        self.projection = _weight(dim, width, width**-0.5)

    def forward(self, ids: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
        """(B, T) ids, padded with end-of-text, to (B, D) unit fp32; computes in ``kind``."""
        tokens = ids.shape[1]
        x = (nn.functional.embedding(ids, self.pieces) + self.positions[:tokens]).to(kind)
        mask = torch.full((tokens, tokens), float("-inf")).triu(1)
        for block in self.blocks:
            x = block(x, mask)
        ends = (ids == self.end).int().argmax(1)
        x = x[torch.arange(len(ids)), ends].float()
        x = layer_norm(x, (self.width,), self.last.weight, self.last.bias, EPS)
        return normalize(linear(x, self.projection), dim=-1)


def _block_weights(block: Block, prefix: str) -> dict[str, torch.Tensor]:
    biases = block.qkv_bias.chunk(3)
    named = {
        "self_attn.q_proj": (block.q, biases[0]),
        "self_attn.k_proj": (block.k, biases[1]),
        "self_attn.v_proj": (block.v, biases[2]),
        "self_attn.out_proj": (block.out, block.out_bias),
        "mlp.fc1": (block.fc1, block.fc1_bias),
        "mlp.fc2": (block.fc2, block.fc2_bias),
        "layer_norm1": (block.norm1.weight, block.norm1.bias),
        "layer_norm2": (block.norm2.weight, block.norm2.bias),
    }
    tensors = {f"{prefix}.{name}.weight": weight for name, (weight, _) in named.items()}
    return tensors | {f"{prefix}.{name}.bias": bias for name, (_, bias) in named.items()}


def transformers_weights(vision: VisionTower, text: TextTower) -> dict[str, torch.Tensor]:
    """All weights of both towers under the names of ``transformers.CLIPModel``."""
    patch = vision.patch
    tensors = {
        "vision_model.embeddings.class_embedding": vision.classes,
        "vision_model.embeddings.patch_embedding.weight": vision.patches.view(-1, 3, patch, patch),
        "vision_model.embeddings.position_embedding.weight": vision.positions,
        "vision_model.pre_layrnorm.weight": vision.first.weight,
        "vision_model.pre_layrnorm.bias": vision.first.bias,
        "vision_model.post_layernorm.weight": vision.last.weight,
        "vision_model.post_layernorm.bias": vision.last.bias,
        "visual_projection.weight": vision.projection,
        "text_model.embeddings.token_embedding.weight": text.pieces,
        "text_model.embeddings.position_embedding.weight": text.positions,
        "text_model.final_layer_norm.weight": text.last.weight,
        "text_model.final_layer_norm.bias": text.last.bias,
        "text_projection.weight": text.projection,
    }
    for name, tower in (("vision_model", vision), ("text_model", text)):
        for number, block in enumerate(tower.blocks):
            assert isinstance(block, Block)
            tensors |= _block_weights(block, f"{name}.encoder.layers.{number}")
    return {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
