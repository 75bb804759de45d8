"""Tokens that both encoders share in their upper blocks, and what is read from them.

Guo and Gu, MMRL: Multi-Modal Representation Learning for Vision-Language Models, CVPR 2025, and
MMRL++, IJCV 2026. The tokens enter each block in a projection to its width; those of the image
encoder give a second image embedding, through a projection of their own.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shotfit.backbone import Backbone, DeepPrompts
from shotfit.errors import UsageError
from shotfit.layers.anchors import cosine_distance
from shotfit.layers.depth import last_block, scaled_block
from shotfit.layers.prompt_tokens import random_linear, random_prompts

Pair = tuple[Tensor, Tensor]


class RepresentationSpace(nn.Module):
    """Shared tokens (n, r), their projections into the upper blocks of both encoders, and the
    projection of the image encoder's output for them.

    Blocks 6 to 12 of both, or the same share of the shallower one's depth. `projections` makes, of
    a linear layer from r to a width and a number of blocks, the module that gives a list of (n,
    width), one for each block. `share` is that of the tokens in places that the block below has
    left full.
    """

    def __init__(
        self,
        backbone: Backbone,
        shape: tuple[int, int],
        projections: Callable[[nn.Linear, int], nn.Module],
        projection: nn.Module,
        generator: torch.Generator,
        *,
        share: float = 1.0,
    ) -> None:
        super().__init__()
        towers = (backbone.vision, backbone.text)
        depth = min(len(tower.blocks) for tower in towers)
        self.first, self.share = scaled_block(6, depth) - 1, share
        device = backbone.device
        self.projection = projection.to(device)
        self.tokens = nn.Parameter(random_prompts(shape, generator, device))
        layers = [random_linear(shape[1], tower.width, generator, device) for tower in towers]
        blocks = last_block(depth) - self.first
        self.to_vision, self.to_text = (projections(layer, blocks) for layer in layers)

    def images(self, backbone: Backbone, pixels: Tensor) -> Pair:
        """Unit embeddings of images, (batch, dim) each: that of the class token, and that of the
        mean of the shared ones."""
        deep = self._entering(self.to_vision)
        embeds, states = backbone.encode_image_and_prompts(pixels, deep)
        represented = self.projection(states.mean(dim=1), backbone.vision)
        return F.normalize(embeds, dim=-1), F.normalize(represented, dim=-1)

    def texts(self, backbone: Backbone, prompts: Sequence[str]) -> Tensor:
        """Unit embeddings of prompts, (prompts, dim)."""
        embeds = backbone.encode_text(prompts, deep=self._entering(self.to_text))
        return F.normalize(embeds, dim=-1)

    def _entering(self, project: nn.Module) -> DeepPrompts:
        return DeepPrompts(tuple(project(self.tokens)), self.first, inserted=True, share=self.share)


class FreeProjection(nn.Module):
    """A projection (batch, width) to (batch, dim) of its own, normal at the start (MMRL)."""

    def __init__(self, width: int, dim: int, generator: torch.Generator) -> None:
        super().__init__()
        self.weight = nn.Parameter(width**-0.5 * torch.randn(width, dim, generator=generator))

    def forward(self, states: Tensor, tower: Any) -> Tensor:
        """Projects states; the tower's own projection plays no part."""
        return states @ self.weight


class CopiedProjections(nn.ModuleList):
    """A linear layer for each block, all of which start as one (MMRL)."""

    def __init__(self, layer: nn.Linear, blocks: int) -> None:
        super().__init__(copy.deepcopy(layer) for _ in range(blocks))

    def forward(self, tokens: Tensor) -> list[Tensor]:
        """(n, r) to (n, width) for each block."""
        return [layer(tokens) for layer in self]


class LowRank(nn.Module):
    """What is added to a matrix (rows, columns): A B, with A Kaiming-uniform (a = sqrt 5) and B
    zero at the start (MMRL++)."""

    def __init__(self, rows: int, columns: int, rank: int, generator: torch.Generator) -> None:
        super().__init__()
        bound = rank**-0.5
        self.a = nn.Parameter(torch.empty(rows, rank).uniform_(-bound, bound, generator=generator))
        self.b = nn.Parameter(torch.zeros(rank, columns))

    def added_to(self, matrix: Tensor) -> Tensor:
        """The matrix with its own part added."""
        return matrix + self.a @ self.b


class AlignedProjection(LowRank):
    """The tower's own projection with a low-rank part added (MMRL++)."""

    def forward(self, states: Tensor, tower: Any) -> Tensor:
        """(batch, width) to (batch, dim)."""
        return states @ self.added_to(tower.projection.weight.T)


class AlignedProjections(nn.Module):
    """One weight for all blocks; each has a low-rank part and a bias of its own (MMRL++)."""

    def __init__(
        self, layer: nn.Linear, blocks: int, rank: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        sizes, device = layer.weight.shape, layer.weight.device
        self.weight = nn.Parameter(layer.weight.detach().clone())
        own = [LowRank(sizes[0], sizes[1], rank, generator).to(device) for _ in range(blocks)]
        self.own = nn.ModuleList(own)
        self.bias = nn.ParameterList(layer.bias.detach().clone() for _ in range(blocks))

    def forward(self, tokens: Tensor) -> list[Tensor]:
        """(n, r) to (n, width) for each block."""
        parts: Any = zip(self.own, self.bias, strict=True)
        return [F.linear(tokens, own.added_to(self.weight), bias) for own, bias in parts]


def fused(logits: Pair, alpha: float, rows: Sequence[int]) -> Tensor:
    """Logits (batch, classes) of both embeddings: for trained classes, whose row is not negative,
    their mean with weight `alpha` for the class token's, for others the class token's alone.

    Where both kinds are asked for, those of trained classes are shifted together, for each image to
    the level (logsumexp) of the class token's, so that the embedding that both kinds
    have decides between the kinds.
    """
    own, represented = logits
    both = alpha * own + (1 - alpha) * represented
    trained = [column for column, row in enumerate(rows) if row >= 0]
    if len(trained) in (0, len(rows)):
        return both if trained else own
    columns = torch.tensor(trained, device=own.device)
    shared, mixed = (part.index_select(1, columns) for part in (own, both))
    level = shared.logsumexp(dim=1, keepdim=True) - mixed.logsumexp(dim=1, keepdim=True)
    return own.index_copy(1, columns, mixed + level)


def fused_rows(class_embeds: Tensor, alpha: float, rows: Sequence[int]) -> Tensor:
    """What f and g side by side, (batch, 2 dim), are multiplied with for `fused`, (classes, 2 dim).

    Raises:
        UsageError: for trained and novel classes together, whose shift is another for each image.
    """
    trained = rows[0] >= 0
    if any((row >= 0) != trained for row in rows):
        raise UsageError(
            "Trained and novel classes together are set to one level for each image, which is no "
            "product of an image's features with fixed rows: keep classes of one kind."
        )
    shares = (alpha, 1 - alpha) if trained else (1.0, 0.0)
    return torch.cat([share * class_embeds for share in shares], dim=-1)


def anchored_loss(
    logits: Pair, labels: Tensor, anchored: tuple[Pair, Pair], alpha: float, weight: float
) -> Tensor:
    """a CE + (1 - a) CE' + w d + w d': cross-entropies of the logits of both embeddings, and the
    distances of image and class embeddings from their anchors."""
    own, represented = (F.cross_entropy(scores, labels) for scores in logits)
    images, texts = (cosine_distance(*pair) for pair in anchored)
    return alpha * own + (1 - alpha) * represented + weight * images + weight * texts
