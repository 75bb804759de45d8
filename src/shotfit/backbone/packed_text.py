"""Tokenised texts laid end to end, and causal attention over them.

A causal text tower reads its embedding at the end-of-text token, which nothing after it can
change: padding is work nobody uses. And every text begins alike ("a photo of a"): in a causal
tower the shared prefix has the same states for all, so it is computed once, with gradient.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from shotfit.backbone.tower import attention, merge_heads, split_heads


@dataclass(frozen=True, eq=False)
class PackedText:
    """C texts as one shared prefix of P tokens and T suffix tokens laid end to end.

    Tokens of a batch are (groups, P + T, width): the prefix rows, then the suffix of text 0, of
    text 1, and so on. Groups share the suffix tokens and differ in their learned context. It is
    also the layout of their causal attention.
    """

    ids: Tensor  # (P + T,) token ids
    positions: Tensor  # (P + T,) position of each token in its text
    prefix: int  # P
    lengths: tuple[int, ...]  # tokens of each suffix; their sum is T
    gather: Tensor  # (C, S) row among the T suffix rows; padding repeats a row
    scatter: Tensor  # (T,) where each suffix row lies in the flattened (C, S)
    ends: Tensor  # (C,) row of the end-of-text token among the T suffix rows
    mask: Tensor  # (S, P + S) what a suffix token sees
    end_mask: Tensor  # (C, 1, 1, P + S) what the end-of-text token sees

    def __len__(self) -> int:
        """The number of texts."""
        return len(self.lengths)

    def to(self, device: torch.device) -> "PackedText":
        """The same texts on another device."""
        moved = {
            name: value.to(device)
            for name, value in vars(self).items()
            if isinstance(value, Tensor)
        }
        return replace(self, **moved)

    def lengthened(self, start: int, count: int) -> "PackedText":
        """The layout after `count` tokens, the same in all texts, were put at place `start` of
        the prefix. They have no ids."""
        new = torch.arange(start, start + count, device=self.ids.device)
        after = self.positions[start:] + count
        return replace(
            self,
            ids=torch.cat([self.ids[:start], torch.full_like(new, -1), self.ids[start:]]),
            positions=torch.cat([self.positions[:start], new, after]),
            prefix=self.prefix + count,
            mask=torch.cat([_seen(count, like=self.mask), self.mask], dim=-1),
            end_mask=torch.cat([_seen(count, like=self.end_mask), self.end_mask], dim=-1),
        )

    @cached_property
    def apart(self) -> "PackedText":
        """The layout in which texts share their first token only. Its `ids` are rows of this
        one's tokens."""
        rows, end = [], self.prefix
        for length in self.lengths:
            rows.append([*range(self.prefix), *range(end, end + length)])
            end += length
        return pack(rows, shared=1).to(self.ids.device)

    def pick(self, tokens: Tensor) -> Tensor:
        """The end-of-text tokens: (groups, P + T, width) to (groups, C, width)."""
        return tokens.index_select(1, self.ends + self.prefix)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, heads: int, read: bool) -> Tensor:
        """Causal attention within each text; with `read`, only of its end-of-text token."""
        texts = len(self.ends)
        keys, values = (self._pad(x, texts, heads) for x in (k, v))
        if read:
            queries = split_heads(q.unsqueeze(2), heads)
            return merge_heads(attention(queries, keys, values, attn_mask=self.end_mask)).squeeze(2)
        head, tail = q[:, : self.prefix], q[:, self.prefix :]
        queries = split_heads(self._rows(tail), heads)
        after = attention(queries, keys, values, attn_mask=self.mask)
        tail = merge_heads(after).flatten(1, 2).index_select(1, self.scatter)
        if self.prefix == 0:
            return tail
        q, k, v = (split_heads(x[:, : self.prefix], heads) for x in (head, k, v))
        return torch.cat([merge_heads(attention(q, k, v, is_causal=True)), tail], dim=1)

    def _rows(self, tail: Tensor) -> Tensor:
        """Suffix rows (groups, T, width) padded to (groups, C, S, width)."""
        return tail.index_select(1, self.gather.flatten()).unflatten(1, self.gather.shape)

    def _pad(self, x: Tensor, texts: int, heads: int) -> Tensor:
        """Keys or values of every text: the prefix and its own suffix."""
        head = x[:, None, : self.prefix].expand(-1, texts, -1, -1)
        return split_heads(torch.cat([head, self._rows(x[:, self.prefix :])], dim=2), heads)


@dataclass(frozen=True, eq=False)
class TracedText(PackedText):
    """One text whose tokens are values of a graph, as an exporter needs it."""

    @cached_property
    def apart(self) -> "TracedText":
        """The same layout: a single text shares nothing with others."""
        return replace(self, ids=torch.arange(len(self.positions), device=self.ids.device))


def traced_text(ids: Tensor, end: Tensor) -> TracedText:
    """The layout of one text of token ids (length,) whose end-of-text token is at place `end`, a
    scalar; what stands behind it changes nothing."""
    plain = pack([[0] * len(ids)], shared=1)
    ends = (end - plain.prefix).reshape(1)
    rows = torch.arange(plain.gather.shape[1], device=ids.device)
    seen = torch.cat([_seen(plain.prefix, like=plain.end_mask[0, 0, 0]), rows <= ends])
    known = {
        name: value for name, value in vars(plain).items() if name in PackedText.__annotations__
    }
    changed = {"ids": ids, "ends": ends, "end_mask": seen[None, None, None]}
    return TracedText(**{**known, **changed})


def _seen(count: int, like: Tensor) -> Tensor:
    """What every token of a mask's rows sees of `count` tokens in front: all of them."""
    return like.new_ones(*like.shape[:-1], count)


def pack(texts: Sequence[Sequence[int]], shared: int | None = None) -> PackedText:
    """Token id lists, each ending with its end-of-text token, as `PackedText`, whose prefix has
    `shared` tokens at most."""
    shortest = min(len(text) for text in texts)
    if shared is not None:
        shortest = min(shortest, shared + 1)
    prefix = 0
    # The end-of-text token must stay in the suffix: it is what the embedding is read from.
    while prefix < shortest - 1 and len({text[prefix] for text in texts}) == 1:
        prefix += 1
    lengths = torch.tensor([len(text) - prefix for text in texts])
    longest = int(lengths.max())
    ends = lengths.cumsum(0) - 1
    starts = ends - lengths + 1
    column = torch.arange(longest)
    gather = starts[:, None] + torch.minimum(column, lengths[:, None] - 1)
    inside = column < lengths[:, None]
    seen = torch.ones(longest, longest, dtype=torch.bool).tril()
    see_prefix = torch.ones(longest, prefix, dtype=torch.bool)
    return PackedText(
        ids=torch.tensor([*texts[0][:prefix], *(t for p in texts for t in p[prefix:])]),
        positions=torch.cat([torch.arange(prefix), prefix + column.expand_as(inside)[inside]]),
        prefix=prefix,
        lengths=tuple(lengths.tolist()),
        gather=gather,
        scatter=inside.flatten().nonzero().squeeze(1),
        ends=ends,
        mask=torch.cat([see_prefix, seen], dim=1),
        end_mask=torch.cat([see_prefix[:1].expand(len(lengths), -1), inside], 1)[:, None, None],
    )
