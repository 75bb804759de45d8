"""Train the vision tower of the embedded model against caption vectors.

    python tools/pretrain.py work/pairs work/run --teacher minilm --images 4000000
    python tools/pretrain.py work/pairs work/run ...            # the same again resumes

Step 1 of 4. Each drawing is classified among thousands of sampled captions. A caption's vector is a
learned projection of its sentence embedding plus the mean of its learned word vectors. A run in its
constant part can be prolonged, or cooled down from a copy of its folder, by another ``--images``.

With ``--text`` (step 3) the vectors are those of the fitted text tower instead and stay fixed: the
vision tower, started from ``--start``, settles against the embeddings it will be compared with.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path

import numpy as np
import torch
from augment import batch_of
from caption_vectors import CaptionVectors, vocabulary
from checkpoints import part, write
from drawings import Batch, Drawings
from iconclip import DIM, IMAGE_SIZE, PATCH_SIZE, VISION_DEPTH, VISION_WIDTH
from optimising import optimisers, schedule, set_rates, state_of, with_state
from safetensors.torch import load_file, save_file
from teacher import sentence_embeddings
from torch import nn
from torch.nn.functional import cross_entropy
from towers import VisionTower, at_resolution
from validation import Validation, as_input

CHECKPOINT = "image.safetensors"
WARMUP = 20_000
CLOSE = 0.1
"""Temperature of the similarity of sentence embeddings in the targets."""
MILD = 400_000
"""Images over which augmentation grows from mild to full strength."""


def without_other_right(
    logits: torch.Tensor, candidates: torch.Tensor, batch: Batch, captions: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits with a drawing's other right captions out of the running, and its target's column."""
    column = torch.full((captions + 1,), -1)
    column[candidates] = torch.arange(len(candidates))
    target = column[batch.target]
    at = column[batch.right]
    at[(batch.right < 0) | (at == target[:, None])] = -1
    rows, places = (at >= 0).nonzero().T
    out = torch.zeros_like(logits)
    # Not minus infinity: label smoothing multiplies every log-probability.
    out[rows, at[rows, places]] = -10.0
    return logits + out, target


class Trainer:
    """Everything that a checkpoint must bring back."""

    def __init__(self, args: argparse.Namespace) -> None:
        torch.manual_seed(args.seed)
        self.args = args
        self.drawings = Drawings(args.pairs, tuple(args.without))
        captions = self.drawings.captions
        self.validation = Validation(args.validation, captions) if args.validation else None
        self.tower = VisionTower(args.size, args.patch, args.width, args.depth, DIM)
        self.embed = torch.compile(self.tower) if args.compile else self.tower
        self.scale = nn.Parameter(torch.tensor(math.log(20.0)))
        if args.text:
            self.table = nn.Embedding.from_pretrained(load_file(args.text)["captions"])
        else:
            self.table = self._table(captions)
        meanings = load_file(args.run / "teacher.safetensors")["captions"]
        self.meaning = nn.functional.normalize(meanings - meanings.mean(0), dim=-1)
        learned = [p for p in self.table.parameters() if p.requires_grad]
        self.optimisers = optimisers(self.tower, [self.scale, *learned], args.lr)
        self.step, self.seconds = 0, 0.0
        path = args.run / CHECKPOINT
        if path.exists():
            self.restore(load_file(path))
        elif args.start:
            start = load_file(args.start)
            weights = at_resolution(part(start, "average."), self.tower.tokens)
            self.tower.load_state_dict(weights)
            if not args.text:
                self.table.load_state_dict(part(start, "table."))
            self.scale.data.copy_(start["scale"])
        if not path.exists():
            self.average = {n: p.detach().clone() for n, p in self.tower.named_parameters()}

    def _table(self, captions: list[str]) -> CaptionVectors:
        cache = self.args.run / "teacher.safetensors"
        if not cache.exists():
            save_file({"captions": sentence_embeddings(self.args.teacher, captions)}, cache)
        return CaptionVectors(load_file(cache)["captions"], captions, vocabulary(captions))

    def save(self) -> None:
        """Towers, table, averages, moments and clock."""
        tensors = {f"tower.{n}": p for n, p in self.tower.state_dict().items()}
        tensors |= {f"average.{n}": p for n, p in self.average.items()}
        tensors |= {f"table.{n}": p for n, p in self.table.state_dict().items()}
        clock = torch.tensor([self.step, self.seconds], dtype=torch.float64)
        tensors |= {"scale": self.scale, "clock": clock}
        write(tensors | state_of(self.optimisers), self.args.run / CHECKPOINT)

    def restore(self, tensors: dict[str, torch.Tensor]) -> None:
        """Continue where ``save`` stopped."""
        self.tower.load_state_dict(part(tensors, "tower."))
        self.table.load_state_dict(part(tensors, "table."))
        self.average = part(tensors, "average.")
        self.scale.data.copy_(tensors["scale"])
        self.step, self.seconds = int(tensors["clock"][0]), tensors["clock"][1].item()
        with_state(self.optimisers, tensors)

    def train_step(self) -> float:
        """One batch: cross-entropy among sampled captions."""
        args, drawings, seen = self.args, self.drawings, self.step * self.args.batch
        torch.manual_seed(args.seed * 1_000_003 + self.step)
        batch = drawings.draw(args.batch, np.random.default_rng((args.seed, self.step)))
        emoji = drawings.emoji[torch.randperm(len(drawings.emoji))[: args.candidates // 3]]
        extra = torch.randint(len(drawings.captions), (args.candidates - len(emoji),))
        candidates = torch.unique(torch.cat([batch.target, emoji, extra]))
        strength = args.strength * (1.0 if args.start else min(1.0, seen / MILD))
        images = batch_of(batch, strength, args.size)
        set_rates(self.optimisers, schedule(seen, args.images, WARMUP, args.cooldown))
        embeds = self.embed(images.bfloat16())
        logits = self.scale.exp() * embeds @ self.table(candidates).T
        logits, target = without_other_right(logits, candidates, batch, len(drawings.captions))
        wanted = self.blurred(batch.target, candidates, target)
        loss = cross_entropy(logits, wanted, label_smoothing=0.05)
        loss.backward()
        nn.utils.clip_grad_norm_(self.tower.parameters(), 1.0)
        for optimiser in self.optimisers:
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        self.scale.data.clamp_(0, math.log(100))
        decay = min(0.999, (1 + self.step) / (10 + self.step))
        with torch.no_grad():
            for name, parameter in self.tower.named_parameters():
                self.average[name].lerp_(parameter, 1 - decay)
        self.step += 1
        return loss.item()

    @torch.no_grad()
    def blurred(
        self, wanted: torch.Tensor, candidates: torch.Tensor, column: torch.Tensor
    ) -> torch.Tensor:
        """Target probabilities (B, C): most on the target, the rest on captions of like meaning."""
        part, meaning = self.args.blur, self.meaning
        soft = part * (meaning[wanted] @ meaning[candidates].T / CLOSE).softmax(1)
        return soft.scatter_add(1, column[:, None], torch.full((len(soft), 1), 1 - part))

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        """Averaged weights: top-1 among all captions on left-out drawings, and left-out styles."""
        drawings, size = self.drawings, self.args.size
        vectors = self.table(torch.arange(len(drawings.captions)))
        kept = {n: p.detach().clone() for n, p in self.tower.named_parameters()}
        self.tower.load_state_dict(self.average)
        right = []
        for rows in drawings.validation.split(500):
            batch = drawings.take(rows)
            images = as_input(batch.pixels[:, :3] + 1 - batch.pixels[:, 3:], size)
            guess = (self.tower(images.bfloat16()) @ vectors.T).argmax(-1)
            right.append((batch.right == guess[:, None]).any(1))
        result = {"top1": round(100 * torch.cat(right).float().mean().item(), 2)}
        if self.validation:
            inputs = as_input(self.validation.images, size).bfloat16()
            embeds = torch.cat([self.tower(images) for images in inputs.split(500)])
            result |= self.validation.accuracy(embeds, vectors)
        self.tower.load_state_dict(kept)
        return result

    def run(self) -> None:
        """Train until all images are seen, with a log line and checkpoint now and then."""
        steps = self.args.images // self.args.batch
        begin, worked, losses = time.monotonic(), time.process_time(), []
        while self.step < steps:
            losses.append(self.train_step())
            if not math.isfinite(losses[-1]):
                raise FloatingPointError(f"loss is {losses[-1]} at step {self.step}")
            now = time.monotonic()
            if now - begin > self.args.every or self.step == steps:
                self.seconds += now - begin
                images = len(losses) * self.args.batch
                line = {
                    "seconds": round(self.seconds),
                    "images": self.step * self.args.batch,
                    "rate": round(images / (now - begin)),
                    "rate_of_a_core": round(images / (time.process_time() - worked)),
                    "loss": round(sum(losses) / len(losses), 4),
                    "scale": round(self.scale.exp().item(), 2),
                }
                self.save()
                line |= self.validate()
                print(json.dumps(line), flush=True)
                with (self.args.run / "log.jsonl").open("a") as log:
                    log.write(json.dumps(line) + "\n")
                begin, worked, losses = time.monotonic(), time.process_time(), []


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pairs", type=Path, help="folder written by training_list.py")
    parser.add_argument("run", type=Path, help="folder for checkpoints and the log")
    parser.add_argument("--teacher", type=Path, help="folder of the sentence-embedding model")
    parser.add_argument("--text", type=Path, help="caption table of the fitted text tower")
    parser.add_argument(
        "--start", type=Path, help="checkpoint whose averaged weights to start from"
    )
    parser.add_argument("--images", type=int, default=4_000_000, help="seen in all")
    parser.add_argument("--cooldown", type=int, default=1_000_000, help="of them, the rate falling")
    parser.add_argument("--every", type=float, default=60, help="seconds between log lines")
    parser.add_argument("--size", type=int, default=IMAGE_SIZE)
    parser.add_argument("--patch", type=int, default=PATCH_SIZE)
    parser.add_argument("--width", type=int, default=VISION_WIDTH)
    parser.add_argument("--depth", type=int, default=VISION_DEPTH)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--candidates", type=int, default=2048)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--blur", type=float, default=0.0, help="of targets, over like captions")
    parser.add_argument("--strength", type=float, default=1.0, help="of augmentation")
    parser.add_argument("--without", nargs="*", default=[], help="sets, or set:name, left out")
    parser.add_argument("--validation", type=Path, help="folder of left-out styles")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    return parser


def main() -> None:
    args = parser().parse_args()
    torch.set_num_threads(args.threads)
    args.run.mkdir(parents=True, exist_ok=True)
    Trainer(args).run()


if __name__ == "__main__":
    main()
