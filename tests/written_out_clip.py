"""CLIP written out from its equations, padding and all: what methods are compared with.

Works on a transformers `CLIPModel`'s own tensors, without its code and without ours. Beside it,
support sets whose batches are given.
"""

import itertools
import random
from collections.abc import Callable, Iterator, Sequence

import torch
from conftest import SPEC, WordTokenizer, tiny_clip
from torch import Tensor
from torch.nn import functional as F

from shotfit.data.dataset import Example, Split
from shotfit.data.prefetch import Batch
from shotfit.data.support_set import SupportSet
from shotfit.data.transforms import CROP_SCALE

NAMES = ("red", "green", "blue")


def pictures(batch=4, seed=7):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, 3, SPEC.size, SPEC.size, generator=generator)


class PlainCLIP:
    """`tensors` may be replaced; `extra(tower, index, x, norm1)` is added to a block's output."""

    def __init__(self, seed=0):
        model = tiny_clip(seed)
        self.tensors = {name: p.detach().clone() for name, p in model.named_parameters()}
        self.depth = {"vision": 3, "text": 2}
        self.extra: Callable[[str, int, Tensor], Tensor | float] | None = None

    @property
    def scale(self):
        return self.tensors["logit_scale"].exp()

    def _linear(self, x, name):
        return x @ self.tensors[f"{name}.weight"].T + self.tensors[f"{name}.bias"]

    def _norm(self, x, name):
        return F.layer_norm(
            x, x.shape[-1:], self.tensors[f"{name}.weight"], self.tensors[f"{name}.bias"]
        )

    def _blocks(self, x, tower, mask):
        for index in range(self.depth[tower]):
            at = f"{tower}_model.encoder.layers.{index}"
            normed = self._norm(x, f"{at}.layer_norm1")
            q, k, v = (
                self._linear(normed, f"{at}.self_attn.{n}_proj").unflatten(-1, (4, -1))
                for n in "qkv"
            )
            scores = torch.einsum("bihd,bjhd->bhij", q, k) / q.shape[-1] ** 0.5 + mask
            mixed = torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), v).flatten(2)
            out = x + self._linear(mixed, f"{at}.self_attn.out_proj")
            hidden = self._linear(self._norm(out, f"{at}.layer_norm2"), f"{at}.mlp.fc1")
            hidden = hidden * torch.sigmoid(1.702 * hidden)
            out = out + self._linear(hidden, f"{at}.mlp.fc2")
            if self.extra is not None:
                out = out + self.extra(tower, index, normed)
            x = out
        return x

    def images(self, pixels):
        t = self.tensors
        at = "vision_model.embeddings"
        patches = F.conv2d(pixels, t[f"{at}.patch_embedding.weight"], stride=8)
        patches = patches.flatten(2).transpose(1, 2)
        first = t[f"{at}.class_embedding"].expand(len(pixels), 1, -1)
        x = torch.cat([first, patches], 1) + t[f"{at}.position_embedding.weight"]
        x = self._blocks(self._norm(x, "vision_model.pre_layrnorm"), "vision", 0.0)
        x = self._norm(x[:, 0], "vision_model.post_layernorm")
        return x @ t["visual_projection.weight"].T

    def texts(self, texts):
        t = self.tensors
        ids = WordTokenizer()(texts)["input_ids"]
        padded = torch.tensor([line + [line[-1]] * (77 - len(line)) for line in ids])
        at = "text_model.embeddings"
        x = t[f"{at}.token_embedding.weight"][padded] + t[f"{at}.position_embedding.weight"]
        mask = torch.full((77, 77), -torch.inf).triu(1)
        x = self._norm(self._blocks(x, "text", mask), "text_model.final_layer_norm")
        ends = torch.tensor([len(line) - 1 for line in ids])
        return x[torch.arange(len(ids)), ends] @ t["text_projection.weight"].T

    def logits(self, pixels, names=NAMES, template="a photo of a {}."):
        images = F.normalize(self.images(pixels), dim=-1)
        texts = F.normalize(self.texts([template.format(name) for name in names]), dim=-1)
        return self.scale * images @ texts.T


class FixedSupport(SupportSet):
    """A support set that gives the batches it was given, over and over, and opens no image.

    One pass is the first of them, and what is augmented is like it, or with `several` views the
    next one each time. There are as many images as in that pass, or `images`.
    """

    def __init__(
        self,
        made: Sequence[Batch],
        names: Sequence[str] = NAMES,
        *,
        images: int | None = None,
        several: bool = False,
    ) -> None:
        labels = [int(label) for _, batch in made for label in batch]
        count = len(made[0][1]) if images is None else images
        examples = (Example(str(n), label, b"") for n, label in enumerate(labels[:count]))
        super().__init__(Split(tuple(names), tuple(examples)), SPEC, random.Random(5))
        self.made = tuple(made)
        self._views = itertools.cycle(made if several else made[:1])

    def batches(
        self,
        batch_size: int,
        *,
        drop_last: bool = False,
        crop_scale: tuple[float, float] = CROP_SCALE,
    ) -> Iterator[Batch]:
        return itertools.cycle(self.made)

    def augmented_once(
        self, batch_size: int = 256, crop_scale: tuple[float, float] = CROP_SCALE
    ) -> Iterator[Batch]:
        return iter([next(self._views)])

    def plain(self, batch_size: int = 256) -> Iterator[Batch]:
        return iter(self.made[:1])


def fixed_passes(batches: int = 5, size: int = 6, classes: int = len(NAMES)) -> list[Batch]:
    """Passes over so many images, the classes in turn, that are the same for everyone."""
    return [(pictures(size, seed), torch.arange(size) % classes) for seed in range(batches)]


def fixed_support(batches: int = 5, size: int = 6, names: Sequence[str] = NAMES) -> FixedSupport:
    """A support set whose batches, views and order are the same for everyone who asks."""
    return FixedSupport(fixed_passes(batches, size, len(names)), names)
