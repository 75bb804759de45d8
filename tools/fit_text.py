"""Fit the text tower of the embedded model to the caption vectors that the images learned.

    python tools/fit_text.py package work/pairs work/run work/text --teacher minilm --seconds 300

Step 2 of 3. Text only, so minutes: each caption, put into one of several templates, must come out
nearest to its own vector. Captions of all training sets take part, also those too rare to be
trained on with images: their vectors follow from their sentence embeddings, which is what gives
names never seen with a drawing a sensible place.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from pathlib import Path
from typing import Any

import torch
from captions import caption
from iconclip import TEMPLATES, build
from iconset import collections, icon_names, read_set
from pretrain import CHECKPOINT, CaptionVectors, FusedQuickGELU, _part, optimisers, vocabulary
from safetensors.torch import load_file, save_file
from splits import HELD_OUT
from teacher import sentence_embeddings
from tokenizer import build_tokenizer
from torch import nn
from torch.nn.functional import cross_entropy, normalize

COMMON = 0.75
"""Share of each batch from captions that were trained with images."""


RARE = 15_000
"""Captions without images that take part; the sentence embeddings of more would cost minutes."""


def all_captions(package: Path, trained: list[str]) -> list[str]:
    """Trained captions first, then ``RARE`` others of at most six words."""
    known, others = set(trained), set()
    for prefix, info in collections(package).items():
        if prefix in HELD_OUT or info.get("category") == "Logos":
            continue
        others |= {caption(name) for name in icon_names(read_set(package, prefix))}
    rare = sorted(text for text in others - known if len(text.split()) <= 6)
    return trained + random.Random(0).sample(rare, min(RARE, len(rare)))


def targets(args: argparse.Namespace, trained: list[str], texts: list[str]) -> torch.Tensor:
    """Vectors of all captions in the space that the image step learned."""
    cache = args.output / "teacher.safetensors"
    if not cache.exists():
        known = load_file(args.run / "teacher.safetensors")["captions"]
        rare = sentence_embeddings(args.teacher, texts[len(trained) :])
        save_file({"captions": torch.cat([known, rare])}, cache)
    embeddings = load_file(cache)["captions"]
    table = CaptionVectors(embeddings[: len(trained)], trained, vocabulary(trained))
    table.load_state_dict(_part(load_file(args.run / CHECKPOINT), "table."))
    with torch.no_grad():
        return table.vectors(embeddings - table.mean, [table.bag(text) for text in texts])


class TextTower(nn.Module):
    """Text tower and projection of the CLIP, with the tokenizer's output precomputed."""

    def __init__(self, texts: list[str], output: Path) -> None:
        super().__init__()
        folder = output / "tokenizer"
        if not folder.exists():
            lines = [template.format(text) for text in texts for template in TEMPLATES[:2]]
            build_tokenizer(lines).save_pretrained(folder)
        from transformers import AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        model: Any = build(len(self.tokenizer))
        for layer in model.text_model.encoder.layers:
            layer.mlp.activation_fn = FusedQuickGELU()
        self.tower, self.projection = model.text_model, model.text_projection

    def forward(self, texts: list[str]) -> torch.Tensor:
        """Unit text embeddings, padded to the longest of the batch."""
        batch = self.tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
        batch = batch.to(self.projection.weight.device)
        return normalize(self.projection(self.tower(**batch).pooler_output), dim=-1)


def fit(tower: TextTower, texts: list[str], goal: torch.Tensor, common: int, args) -> None:
    """Cross-entropy among the captions of the batch, plus the distance to the caption's vector."""
    steps = optimisers(tower, [], args.lr)
    generator = torch.Generator().manual_seed(0)
    begin, number, scale = time.monotonic(), 0, 20.0
    while (elapsed := time.monotonic() - begin) < args.seconds:
        progress = elapsed / args.seconds
        factor = min(1.0, (number + 1) / 30) * (1 + math.cos(math.pi * progress)) / 2
        near = torch.randint(common, (int(COMMON * args.batch),), generator=generator)
        far = torch.randint(len(texts), (args.batch - len(near),), generator=generator)
        rows = torch.unique(torch.cat([near, far]))
        # One template a batch: all texts are then of about one length, and little is padded.
        draw = torch.rand((), generator=generator).item()
        template = TEMPLATES[0] if draw < 0.5 else TEMPLATES[int(draw * 1000) % len(TEMPLATES)]
        embeds = tower([template.format(texts[row]) for row in rows.tolist()])
        goals = goal[rows].to(embeds.device)
        logits = scale * embeds @ goals.T
        loss = cross_entropy(logits, torch.arange(len(rows), device=embeds.device))
        distance = (1 - (embeds * goals).sum(-1)).mean()
        (loss + 5 * distance).backward()
        for optimiser in steps:
            for group in optimiser.param_groups:
                group["lr"] = group["peak"] * factor
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        number += 1
        if number % 50 == 0:
            line = {"seconds": round(elapsed), "texts": number * args.batch}
            print({**line, "loss": round(loss.item(), 4), "1-cos": round(distance.item(), 4)})


@torch.no_grad()
def caption_table(tower: TextTower, captions: list[str]) -> torch.Tensor:
    """Embeddings of the captions in the default template: what images are compared with."""
    order = sorted(range(len(captions)), key=lambda index: len(captions[index]))
    table = torch.empty(len(captions), tower.projection.out_features)
    for start in range(0, len(order), 512):
        rows = order[start : start + 512]
        table[rows] = tower([TEMPLATES[0].format(captions[row]) for row in rows]).cpu()
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("package", type=Path, help="unpacked @iconify/json folder")
    parser.add_argument("pairs", type=Path, help="folder written by training_list.py")
    parser.add_argument("run", type=Path, help="folder of the image step's checkpoint")
    parser.add_argument("output", type=Path, help="folder for the tower and the caption table")
    parser.add_argument("--teacher", type=Path, help="folder of the sentence-embedding model")
    parser.add_argument("--start", type=Path, help="fitted tower to continue from")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    args.output.mkdir(parents=True, exist_ok=True)
    trained = sorted(set(json.loads((args.pairs / "pairs.json").read_text())["captions"]))
    texts = all_captions(args.package, trained)
    goal = targets(args, trained, texts)
    tower = TextTower(texts, args.output)
    if args.start:
        tower.load_state_dict(_part(load_file(args.start), "text."), strict=False)
    fit(tower, texts, goal, len(trained), args)
    tensors = {f"text.{name}": t.contiguous() for name, t in tower.state_dict().items()}
    save_file(
        {**tensors, "captions": caption_table(tower, trained)}, args.output / "text.safetensors"
    )


if __name__ == "__main__":
    main()
