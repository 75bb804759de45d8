"""Fit the text tower of the embedded model to the caption vectors that the images learned.

    python tools/fit_text.py package work/pairs work/run work/text --teacher minilm --texts 4000000
    python tools/fit_text.py package work/pairs work/run ...       # the same again resumes

Step 2 of 4. Text only: each caption, put into one of several templates, must come out nearest to
its own vector. Captions that are too rare to be trained on with images take part: their vectors
follow from their sentence embeddings, which gives names never seen with a drawing a place.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path

import numpy as np
import torch
from caption_vectors import CaptionVectors, vocabulary
from captions import caption
from checkpoints import part, write
from drawings import Drawings
from iconclip import CONTEXT, DIM, TEMPLATES, TEXT_DEPTH, TEXT_WIDTH, VOCAB_SIZE
from iconset import collections, icon_names, read_set
from optimising import optimisers, schedule, set_rates, state_of, with_state
from safetensors.torch import load_file, save_file
from splits import HELD_OUT
from teacher import sentence_embeddings
from tokenizer import build_tokenizer
from torch.nn.functional import cross_entropy
from towers import TextTower

CHECKPOINT = "text.safetensors"
COMMON = 0.75
"""Share of each batch from first captions and emoji, which are what images are named by."""
RARE = 15_000
"""Captions without images that take part; the sentence embeddings of more would cost minutes."""


def rare_captions(package: Path, known: list[str]) -> list[str]:
    """``RARE`` captions of at most six words that no image was trained with."""
    others: set[str] = set()
    for prefix, info in collections(package).items():
        if prefix in HELD_OUT or info.get("category") == "Logos":
            continue
        others |= {caption(name) for name in icon_names(read_set(package, prefix))}
    rare = sorted(text for text in others - set(known) if len(text.split()) <= 6)
    order = np.random.default_rng(0).permutation(len(rare))[:RARE]
    return [rare[number] for number in sorted(order)]


def targets(args: argparse.Namespace, trained: list[str], rare: list[str]) -> torch.Tensor:
    """Vectors of all captions in the space that the image step learned."""
    cache = args.output / "rare.safetensors"
    if not cache.exists():
        save_file({"captions": sentence_embeddings(args.teacher, rare)}, cache)
    known = load_file(args.run / "teacher.safetensors")["captions"]
    table = CaptionVectors(known, trained, vocabulary(trained))
    table.load_state_dict(part(load_file(args.run / "image.safetensors"), "table."))
    embeddings = torch.cat([known, load_file(cache)["captions"]])
    with torch.no_grad():
        bags = [table.bag(text) for text in [*trained, *rare]]
        return table.vectors(embeddings - table.mean, bags)


class Fitting:
    """The tower, its texts as token ids, and what a checkpoint must bring back."""

    def __init__(self, args: argparse.Namespace, texts: list[str]) -> None:
        torch.manual_seed(0)
        self.args = args
        folder = args.output / "tokenizer"
        if not folder.exists():
            build_tokenizer([t.format(x) for x in texts for t in TEMPLATES[:2]]).save_pretrained(
                folder
            )
        from transformers import AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.ids = [self.tokenizer([t.format(x) for x in texts])["input_ids"] for t in TEMPLATES]
        self.tower = TextTower(VOCAB_SIZE, CONTEXT, TEXT_WIDTH, TEXT_DEPTH, DIM)
        self.optimisers = optimisers(self.tower, [], args.lr)
        self.step = 0
        path = args.output / CHECKPOINT
        if path.exists():
            tensors = load_file(path)
            self.tower.load_state_dict(part(tensors, "text."))
            if "step" in tensors and int(tensors["step"]) * args.batch < args.texts:
                self.step = int(tensors["step"])
                with_state(self.optimisers, tensors)

    def padded(self, template: int, rows: list[int]) -> torch.Tensor:
        """Token ids (B, T) of texts in one template, padded with end-of-text."""
        lists = [self.ids[template][row][:CONTEXT] for row in rows]
        batch = torch.full((len(lists), max(map(len, lists))), VOCAB_SIZE - 1)
        for row, ids in enumerate(lists):
            batch[row, : len(ids)] = torch.tensor(ids)
        return batch

    def train_step(self, goal: torch.Tensor, common: torch.Tensor) -> tuple[float, float]:
        """Cross-entropy among the captions of the batch, plus the distance to the vector."""
        args, rng = self.args, np.random.default_rng(self.step)
        near = common[torch.from_numpy(rng.integers(len(common), size=int(COMMON * args.batch)))]
        far = torch.from_numpy(rng.integers(len(goal), size=args.batch - len(near)))
        rows = torch.unique(torch.cat([near, far]))
        # One template a batch: all texts are then of about one length, and little is padded.
        template = 0 if rng.random() < 0.5 else int(rng.integers(len(TEMPLATES)))
        seen = self.step * args.batch
        set_rates(self.optimisers, schedule(seen, args.texts, 40_000, int(0.4 * args.texts)))
        embeds = self.tower(self.padded(template, rows.tolist()), torch.bfloat16)
        goals = goal[rows]
        loss = cross_entropy(20.0 * embeds @ goals.T, torch.arange(len(rows)))
        distance = (1 - (embeds * goals).sum(-1)).mean()
        (loss + 5 * distance).backward()
        for optimiser in self.optimisers:
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        self.step += 1
        return loss.item(), distance.item()

    def save(self) -> None:
        """Tower, optimisers and clock in one piece."""
        tensors = {f"text.{name}": t for name, t in self.tower.state_dict().items()}
        step = {"step": torch.tensor(self.step)}
        write(tensors | state_of(self.optimisers) | step, self.args.output / CHECKPOINT)

    def run(self, goal: torch.Tensor, common: torch.Tensor) -> None:
        """Train until all texts are seen, with a log line and checkpoint now and then."""
        begin, sums = time.monotonic(), []
        steps = self.args.texts // self.args.batch
        while self.step < steps:
            sums.append(self.train_step(goal, common))
            if time.monotonic() - begin > self.args.every or self.step == steps:
                loss, distance = (sum(values) / len(sums) for values in zip(*sums, strict=True))
                line = {"texts": self.step * self.args.batch, "loss": round(loss, 4)}
                line |= {"1-cos": round(distance, 4)}
                print(json.dumps(line), flush=True)
                with (self.args.output / "log.jsonl").open("a") as log:
                    log.write(json.dumps(line) + "\n")
                if not math.isfinite(loss):
                    raise FloatingPointError(f"loss is {loss} at step {self.step}")
                self.save()
                begin, sums = time.monotonic(), []


@torch.no_grad()
def caption_table(fitting: Fitting, count: int) -> torch.Tensor:
    """Embeddings of the first captions in the default template: what images are compared with."""
    order = sorted(range(count), key=lambda row: len(fitting.ids[0][row]))
    table = torch.empty(count, DIM)
    for start in range(0, count, 512):
        rows = order[start : start + 512]
        table[rows] = fitting.tower(fitting.padded(0, rows), torch.float32)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("package", type=Path, help="unpacked @iconify/json folder")
    parser.add_argument("pairs", type=Path, help="folder written by training_list.py")
    parser.add_argument("run", type=Path, help="folder of the image step's checkpoint")
    parser.add_argument("output", type=Path, help="folder for the tower and the caption table")
    parser.add_argument("--teacher", type=Path, help="folder of the sentence-embedding model")
    parser.add_argument("--texts", type=int, default=4_000_000)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--lr", type=float, default=1.5e-3)
    parser.add_argument("--every", type=float, default=60, help="seconds between log lines")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    args.output.mkdir(parents=True, exist_ok=True)
    drawings = Drawings(args.pairs)
    rare = rare_captions(args.package, drawings.captions)
    fitting = Fitting(args, [*drawings.captions, *rare])
    common = torch.unique(torch.cat([drawings.right[:, 0], drawings.emoji]))
    fitting.run(targets(args, drawings.captions, rare), common)
    table = caption_table(fitting, len(drawings.captions))
    save_file({"captions": table}, args.output / "table.safetensors")


if __name__ == "__main__":
    main()
