"""Learned prompt tokens: what they start from, and the text that holds their places."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from shotfit.errors import UsageError

if TYPE_CHECKING:
    from shotfit.backbone import Backbone

PLACEHOLDER = "X"
"""The word that stands in a prompt where a learned token will be (CoOp's choice)."""

STD = 0.02
"""Standard deviation of randomly started prompt tokens, in all the prompt papers."""


class TextContext(nn.Module):
    """Learned tokens in front of class names: "[v_1] ... [v_n] (rest of the prefix) name."

    `prefix` is text whose first n tokens the learned ones replace; tokens beyond stay as they are.
    """

    def __init__(self, prefix: str, ctx: Tensor) -> None:
        super().__init__()
        self.prefix = prefix
        self.ctx = nn.Parameter(ctx)

    def texts(self, names: Sequence[str]) -> list[str]:
        """The text of every class, full stop included; underscores become spaces."""
        return prefixed(self.prefix, names)

    def starts_as(self, template: str) -> bool:
        """Whether the untrained prompts are those of `template`."""
        return f"{self.prefix} {{}}." == template


def prefixed(prefix: str, names: Sequence[str]) -> list[str]:
    """ "prefix name." for every name; underscores become spaces."""
    return [f"{prefix} {name.replace('_', ' ')}." for name in names]


def text_context(
    backbone: "Backbone", phrase: str | None, n_ctx: int | None, generator: torch.Generator
) -> TextContext:
    """`n_ctx` tokens started at the first ones of `phrase` (None: all of them), or at random.

    Raises:
        UsageError: when the phrase has too few tokens, or without a phrase when the placeholder is
            not one token.
    """
    if phrase is None:
        count = _positive(n_ctx)
        ctx = random_prompts((count, backbone.text.width), generator, backbone.device)
        return TextContext(placeholders(backbone, count), ctx)
    embeddings = phrase_embeddings(backbone, phrase)
    count = len(embeddings) if n_ctx is None else _positive(n_ctx)
    if not 0 < count <= len(embeddings):
        raise UsageError(
            f"The phrase {phrase!r} has {len(embeddings)} tokens and cannot start {count} learned "
            "ones. Give a longer ctx_init, ctx_init=none to start at random, or a smaller n_ctx."
        )
    return TextContext(phrase, embeddings[:count].clone())


def _positive(n_ctx: int | None) -> int:
    if n_ctx is None or n_ctx < 1:
        raise UsageError(f"n_ctx must be at least 1, got {n_ctx}.")
    return n_ctx


def placeholders(backbone: "Backbone", count: int) -> str:
    """Text of exactly `count` tokens.

    Raises:
        UsageError: when the tokeniser makes anything but one token of a placeholder.
    """
    if count == 0:
        return ""
    text = " ".join([PLACEHOLDER] * count)
    tokens = len(phrase_ids(backbone, text))
    if tokens != count:
        raise UsageError(
            f"{count} placeholders {PLACEHOLDER!r} are {tokens} tokens to the tokeniser of "
            f"{backbone.name or 'this model'}, so learned tokens would miss their places. "
            "Give a phrase to start from (ctx_init) and no more tokens (n_ctx) than it has."
        )
    return text


def phrase_ids(backbone: "Backbone", phrase: str) -> list[int]:
    """Token ids of a phrase without the start and end tokens."""
    ids = backbone.tokenize([phrase])[0]
    return ids[backbone.text.context_start : len(ids) - 1]


def phrase_embeddings(backbone: "Backbone", phrase: str) -> Tensor:
    """The frozen token embeddings of a phrase, (tokens, text width)."""
    ids = torch.tensor(phrase_ids(backbone, phrase), dtype=torch.long, device=backbone.device)
    return backbone.text.token_embedding(ids).detach()


def started_at(
    backbone: "Backbone", phrase: str, n_ctx: int
) -> tuple[tuple[int, ...], str, Tensor]:
    """Ids of a phrase's tokens after the first `n_ctx`, its text, and those first ones' embeddings
    (n_ctx, text width). A shorter phrase has placeholders, which start at the end-of-text."""
    ids = phrase_ids(backbone, phrase)
    missing = max(0, n_ctx - len(ids))
    prefix = f"{placeholders(backbone, missing)} {phrase}".strip()
    end = backbone.tokenize([phrase])[0][-1]
    first = torch.tensor([*ids, *[end] * missing][:n_ctx], device=backbone.device)
    return tuple(ids[n_ctx:]), prefix, backbone.text.token_embedding(first).detach()


def random_prompts(
    shape: tuple[int, ...], generator: torch.Generator, device: torch.device
) -> Tensor:
    """Normal values of standard deviation 0.02. Drawn on the CPU: the same on any device."""
    return (STD * torch.randn(shape, generator=generator)).to(device)


def deep_prompts(
    count: int, n_ctx: int, width: int, generator: torch.Generator, device: torch.device
) -> nn.ParameterList:
    """`count` randomly started prompts (n_ctx, width), one for each block after the first."""
    return nn.ParameterList(
        nn.Parameter(random_prompts((n_ctx, width), generator, device)) for _ in range(count)
    )


class IndependentPrompts(NamedTuple):
    """Learned tokens of both encoders' first blocks, independent of each other (IVLP)."""

    context: TextContext
    vision_ctx: nn.Parameter
    deep: nn.ParameterList
    vision_deep: nn.ParameterList


def independent_prompts(
    backbone: "Backbone",
    phrase: str | None,
    counts: tuple[int, int],
    depth: int,
    generator: torch.Generator,
) -> IndependentPrompts:
    """Text and image tokens for the first `depth` blocks of each encoder, or for all that it has.
    The first text context starts from `phrase`, everything else at random.

    Raises:
        UsageError: as `text_context` and `prompt_depth`.
    """
    text, vision, device = backbone.text, backbone.vision, backbone.device
    n_ctx, n_ctx_vision = counts
    blocks = [prompt_depth(depth, len(tower.blocks)) for tower in (text, vision)]
    shape = (n_ctx_vision, vision.width)
    return IndependentPrompts(
        text_context(backbone, phrase, n_ctx, generator),
        nn.Parameter(random_prompts(shape, generator, device)),
        deep_prompts(blocks[0] - 1, n_ctx, text.width, generator, device),
        deep_prompts(blocks[1] - 1, *shape, generator, device),
    )


def prompt_depth(depth: int, *blocks: int) -> int:
    """How many blocks get prompts: the published depth, or all blocks where there are fewer.

    Raises:
        UsageError: for a depth below 1.
    """
    if depth < 1:
        raise UsageError(f"The prompt depth must be at least 1, got {depth}.")
    return min(depth, *blocks)


def random_linear(
    inputs: int, outputs: int, generator: torch.Generator, device: torch.device
) -> nn.Linear:
    """A linear layer with torch's default start, drawn from `generator` instead of globally.

    Weights and bias are uniform in +-1/sqrt(inputs).
    """
    bound = inputs**-0.5

    def uniform(*shape: int) -> Tensor:
        return (torch.rand(shape, generator=generator) * 2 - 1).mul(bound).to(device)

    layer = nn.Linear(inputs, outputs, device="meta")
    layer.weight = nn.Parameter(uniform(outputs, inputs))
    layer.bias = nn.Parameter(uniform(outputs))
    return layer
