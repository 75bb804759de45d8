"""A real CLIP tokenizer of some fifty tokens."""

from typing import Any

from transformers import CLIPTokenizer


def small_tokenizer():
    """A real CLIP tokenizer: byte-level letters, one merge, the two special tokens last."""
    letters = [*"abcdefghijklmnopqrstuvwxyz.!"]
    pieces = [*letters, *[f"{letter}</w>" for letter in letters], "ca", "cat</w>"]
    pieces += ["<|startoftext|>", "<|endoftext|>"]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    merges: Any = [("c", "a"), ("ca", "t</w>")]  # transformers' hint says str, and it wants pairs
    return CLIPTokenizer(vocab=vocabulary, merges=merges, model_max_length=77)
