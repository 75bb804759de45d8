"""Models of the published sizes with random weights, and made-up class names for them."""

import random
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class TowerShape:
    """Width, hidden width of the MLP, blocks and heads of a tower."""

    width: int
    hidden: int
    blocks: int
    heads: int


@dataclass(frozen=True)
class Shape:
    """What decides the arithmetic of a CLIP."""

    name: str
    vision: TowerShape
    text: TowerShape
    patch: int
    image: int
    dim: int
    vocabulary: int = 49_408

    @property
    def image_tokens(self) -> int:
        """Patches and the class token."""
        return (self.image // self.patch) ** 2 + 1


_TEXT = TowerShape(512, 2048, 12, 8)
_BASE = TowerShape(768, 3072, 12, 12)
SHAPES = {
    shape.name: shape
    for shape in (
        Shape("tiny", TowerShape(64, 128, 2, 2), TowerShape(48, 96, 2, 2), 8, 32, 40, 1000),
        Shape("iconclip", TowerShape(192, 768, 6, 3), TowerShape(192, 768, 4, 3), 8, 32, 256, 4096),
        Shape("ViT-B/32", _BASE, _TEXT, 32, 224, 512),
        Shape("ViT-B/16", _BASE, _TEXT, 16, 224, 512),
        Shape(
            "ViT-L/14",
            TowerShape(1024, 4096, 24, 16),
            TowerShape(768, 3072, 12, 12),
            14,
            224,
            768,
        ),
    )
}


def random_clip(shape: Shape) -> Any:
    """A transformers `CLIPModel` of this shape; the same weights every time."""
    from transformers import CLIPConfig, CLIPModel

    def tower(part: TowerShape) -> dict[str, int]:
        return {
            "hidden_size": part.width,
            "intermediate_size": part.hidden,
            "num_hidden_layers": part.blocks,
            "num_attention_heads": part.heads,
        }

    ends = {"bos_token_id": shape.vocabulary - 2, "eos_token_id": shape.vocabulary - 1}
    text = {**tower(shape.text), **ends, "vocab_size": shape.vocabulary}
    vision = {**tower(shape.vision), "image_size": shape.image, "patch_size": shape.patch}
    torch.manual_seed(0)
    config = CLIPConfig(
        text_config={**text, "max_position_embeddings": 77},
        vision_config=vision,
        projection_dim=shape.dim,
    )
    return CLIPModel(config).eval()


class Words:
    """A tokenizer with a token for each word, so that a name has as many tokens as words."""

    def __init__(self, vocabulary: int) -> None:
        self.bos_token_id = vocabulary - 2
        self.eos_token_id = self.pad_token_id = vocabulary - 1

    def __call__(self, texts: Sequence[str]) -> dict[str, list[list[int]]]:
        """Token ids of each text, between the two ends."""
        return {"input_ids": [self._ids(text) for text in texts]}

    def _ids(self, text: str) -> list[int]:
        words = re.findall(r"\w+|[^\w\s]", text)
        ids = [zlib.crc32(word.encode()) % self.bos_token_id for word in words]
        return [self.bos_token_id, *ids, self.eos_token_id]


def class_names(count: int, seed: int = 0) -> tuple[str, ...]:
    """Different names of one to three words: 40, 45 and 15 %, so that the longest prompt has ten
    tokens, about as in the published benchmarks."""
    draw = random.Random(seed)
    lengths = draw.choices((1, 2, 3), (40, 45, 15), k=count)
    return tuple(
        " ".join(f"w{seed}x{number}x{word}" for word in range(length))
        for number, length in enumerate(lengths)
    )


def random_batch(shape: Shape, batch: int, classes: int) -> tuple[Tensor, Tensor]:
    """Pixels (batch, 3, image, image) and labels (batch,)."""
    draw = torch.Generator().manual_seed(0)
    pixels = torch.randn(batch, 3, shape.image, shape.image, generator=draw)
    return pixels, torch.randint(classes, (batch,), generator=draw)
