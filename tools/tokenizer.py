"""Train the byte-level BPE of the embedded model, in the format of CLIP's tokenizer."""

from __future__ import annotations

from iconclip import CONTEXT, VOCAB_SIZE
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import CLIPTokenizer

START, END, SUFFIX = "<|startoftext|>", "<|endoftext|>", "</w>"
PIECES = r"'s|'t|'re|'ve|'m|'ll|'d|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+"


def learn_merges(texts: list[str], count: int) -> list[tuple[str, str]]:
    """The first ``count`` merges of a byte-level BPE whose words end in ``</w>``."""
    learner = Tokenizer(models.BPE(end_of_word_suffix=SUFFIX, continuing_subword_prefix=""))
    learner.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    learner.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), "removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=count + 512,
        end_of_word_suffix=SUFFIX,
        continuing_subword_prefix="",
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    learner.train_from_iterator(texts, trainer)
    import json

    merges = json.loads(learner.to_str())["model"]["merges"]
    return [tuple(merge) for merge in merges][:count]


def build_tokenizer(texts: list[str]) -> CLIPTokenizer:
    """Vocabulary in CLIP's order: bytes, bytes at a word's end, merges, the two specials last.

    End-of-text has the highest index, where CLIP's pooling expects it.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = [*alphabet, *(letter + SUFFIX for letter in alphabet)]
    merges = []
    for left, right in learn_merges(texts, VOCAB_SIZE):
        if len(pieces) == VOCAB_SIZE - 2:
            break
        if left + right not in pieces:
            merges.append((left, right))
            pieces.append(left + right)
    vocab = {piece: index for index, piece in enumerate([*pieces, START, END])}
    return CLIPTokenizer(
        vocab=vocab,
        merges=merges,
        bos_token=START,
        eos_token=END,
        unk_token=END,
        pad_token=END,
        model_max_length=CONTEXT,
    )
