"""The floating-point operations that a first-stage iteration of LayerNorm tuning cannot do without.

A product of (n, k) and (k, m) is 2 n k m. Counted are the matrix products of both towers:

* Linear layers: forward, and once more in the backward pass for the gradient of the layer's input.
  The weights are frozen, so that no product makes their gradient.
* Attention over pairs of a query and a key it sees: scores and weighted values forward, 2 * 2 width
  a pair; four such products backward (for values, probabilities, queries, keys).
* The last block of a tower: keys and values of all tokens, everything else for the read token only.
* Text: the prefix that all prompts share once, then each prompt's own tokens, no padding.
* Patches are embedded forward only; nothing below the first block trains.

Not counted, and so a loss of the share that is reached: norms, softmax, activation, residual sums,
the optimiser, recomputation.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from speed.shapes import Shape, TowerShape


@dataclass(frozen=True)
class NeededFlops:
    """Floating-point operations of one iteration."""

    image_linear: float
    image_attention: float
    text_linear: float
    text_attention: float
    scores: float

    @property
    def linear(self) -> float:
        """All but attention."""
        return self.image_linear + self.text_linear + self.scores

    @property
    def total(self) -> float:
        """All of them."""
        return self.linear + self.image_attention + self.text_attention


def needed_flops(shape: Shape, batch: int, prompts: Sequence[Sequence[int]]) -> NeededFlops:
    """Operations of an iteration with `batch` images and the tokenised prompts of all classes."""
    tokens = shape.image_tokens
    width, dim = shape.vision.width, shape.dim
    patches = 2 * (tokens - 1) * 3 * shape.patch**2 * width
    image = _linear(shape.vision, tokens, 1) + 2 * 2 * width * dim
    seen = tokens * tokens
    image_attention = _attention(shape.vision, seen, tokens)

    prefix = _shared_prefix(prompts)
    own = [len(prompt) - prefix for prompt in prompts]
    text = _linear(shape.text, packed_tokens(prompts), len(prompts))
    text += 2 * 2 * len(prompts) * shape.text.width * dim
    seen = prefix * (prefix + 1) // 2 + sum(n * prefix + n * (n + 1) // 2 for n in own)
    read = sum(len(prompt) for prompt in prompts)
    return NeededFlops(
        image_linear=batch * (patches + image),
        image_attention=batch * image_attention,
        text_linear=text,
        text_attention=_attention(shape.text, seen, read),
        scores=3 * 2 * batch * len(prompts) * dim,
    )


def packed_tokens(prompts: Sequence[Sequence[int]]) -> int:
    """Tokens that pass the text tower: the shared prefix once, each prompt's own."""
    prefix = _shared_prefix(prompts)
    return prefix + sum(len(prompt) - prefix for prompt in prompts)


def _linear(tower: TowerShape, tokens: int, read: int) -> float:
    """Forward and backward of a tower's blocks for `tokens`, of which `read` pass the last one."""
    square, mlp = tower.width**2, 2 * tower.width * tower.hidden
    full = tokens * (4 * square + mlp)
    last = tokens * 2 * square + read * (2 * square + mlp)
    return 2 * 2 * ((tower.blocks - 1) * full + last)


def _attention(tower: TowerShape, seen: int, read: int) -> float:
    """Forward and backward for `seen` pairs in each block but the last, which has `read`."""
    return (4 + 8) * tower.width * ((tower.blocks - 1) * seen + read)


def _shared_prefix(prompts: Sequence[Sequence[int]]) -> int:
    """The leading tokens that all prompts share; the end of a text is its own."""
    shortest = min(len(prompt) for prompt in prompts)
    length = 0
    while length < shortest - 1 and len({prompt[length] for prompt in prompts}) == 1:
        length += 1
    return length
