"""Train the vision tower of the embedded model against caption vectors.

    python tools/pretrain.py work/pairs work/run --teacher minilm --seconds 3600
    python tools/pretrain.py work/pairs work/run ...            # the same again resumes

Step 1 of 3 (then ``fit_text.py``, then ``export.py``). Each drawing is classified among thousands
of sampled captions. A caption's vector is a learned projection of its sentence embedding plus the
sum of its learned word vectors, so that a rare caption shares what its words learned elsewhere.
With ``--text`` the vectors are those of the fitted text tower instead, and stay fixed: the vision
tower then settles against exactly the embeddings that it will be compared with.

Everything runs on any device; the schedule is in seconds, so it ends when it should.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from augment import batch_of
from iconclip import DIM, build
from safetensors.torch import load_file, save_file
from teacher import sentence_embeddings, whitening
from torch import nn
from torch.nn.functional import cross_entropy, embedding_bag, normalize

CHECKPOINT = "image.safetensors"


class Pairs:
    """Drawings in memory and captions as class indices, with sampling weights."""

    def __init__(self, folder: Path) -> None:
        meta = json.loads((folder / "pairs.json").read_text())
        self.mono = torch.from_numpy(np.load(folder / "mono.npy"))
        self.colour = torch.from_numpy(np.load(folder / "colour.npy"))
        self.captions = sorted(set(meta["captions"]))
        index = {text: number for number, text in enumerate(self.captions)}
        self.labels = torch.tensor([index[text] for text in meta["captions"]])
        sets = [icon.split(":")[0] for icon in meta["icons"]]
        self.weights = self._weights(meta["captions"], sets)
        generator = torch.Generator().manual_seed(0)
        order = torch.randperm(len(self.labels), generator=generator)
        self.validation = order[:2000]
        self.weights[self.validation] = 0

    def _weights(self, captions: list[str], sets: list[str]) -> torch.Tensor:
        """Rare captions and coloured sets more often than their share: both are hard and few."""
        counts = Counter(captions)
        boost = {"twemoji": 10.0, "fxemoji": 6.0, "streamline-emojis": 4.0}
        weights = [
            boost.get(prefix, 1.0 if row < len(self.mono) else 3.0) * counts[text] ** -0.4
            for row, (text, prefix) in enumerate(zip(captions, sets, strict=True))
        ]
        return torch.tensor(weights)

    def take(self, rows: torch.Tensor, device: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Premultiplied RGBA in 0..1 of the rows, and which of them are one-colour."""
        mono = rows < len(self.mono)
        pixels = torch.zeros(len(rows), 4, 64, 64, device=device)
        pixels[mono, 3] = self.mono[rows[mono]].to(device).float() / 255
        rgba = self.colour[rows[~mono] - len(self.mono)].to(device).float() / 255
        rgba[..., :3] *= rgba[..., 3:]
        pixels[~mono] = rgba.permute(0, 3, 1, 2)
        return pixels, mono.to(device)


class FusedQuickGELU(nn.Module):
    """QuickGELU through SiLU: the same function, but fused, and 25 % off the step on a CPU."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.silu(1.702 * x) / 1.702


class CaptionVectors(nn.Module):
    """Unit vectors of captions: projected sentence embedding plus the mean of word vectors."""

    mean: torch.Tensor
    embeddings: torch.Tensor

    def __init__(self, embeddings: torch.Tensor, captions: list[str], words: list[str]) -> None:
        super().__init__()
        mean, axes = whitening(embeddings, DIM)
        centred = embeddings - mean
        self.register_buffer("mean", mean)
        self.register_buffer("embeddings", centred, persistent=False)
        self.projection = nn.Parameter(axes / (centred @ axes).norm(dim=-1).mean())
        self.words = nn.Parameter(torch.zeros(len(words), DIM))
        self.index = {word: number for number, word in enumerate(words)}
        self.bags = [self.bag(text) for text in captions]

    def bag(self, text: str) -> list[int]:
        """Indices of the known words of a caption."""
        return [self.index[word] for word in text.split() if word in self.index]

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Unit vectors of the captions numbered ``rows``."""
        return self.vectors(self.embeddings[rows], [self.bags[row] for row in rows.tolist()])

    def vectors(self, centred: torch.Tensor, bags: list[list[int]]) -> torch.Tensor:
        """Unit vectors from centred sentence embeddings and word indices."""
        lengths = torch.tensor([len(bag) for bag in bags])
        flat = torch.tensor([word for bag in bags for word in bag], device=centred.device)
        offsets = (lengths.cumsum(0) - lengths).to(centred.device)
        words = embedding_bag(flat, self.words, offsets, mode="mean")
        return normalize(centred @ self.projection + words, dim=-1)


def vocabulary(captions: list[str]) -> list[str]:
    """Words of at least two captions, in a fixed order."""
    counts = Counter(word for text in captions for word in set(text.split()))
    return sorted(word for word, count in counts.items() if count >= 2)


def optimisers(vision: nn.Module, others: list[nn.Parameter], lr: float) -> list:
    """Muon for the blocks' matrices, which learns this tower in half the steps; else AdamW."""
    blocks = {id(p) for n, p in vision.named_parameters() if "layers" in n and p.ndim == 2}
    matrices = [p for p in vision.parameters() if id(p) in blocks]
    rest = [p for p in vision.parameters() if id(p) not in blocks]
    muon = torch.optim.Muon(matrices, lr=2 * lr, weight_decay=0.05, adjust_lr_fn="match_rms_adamw")
    groups = [{"params": rest}, {"params": others, "lr": 2 * lr}]
    adam = torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.98), weight_decay=0.02)
    for optimiser in (muon, adam):
        for group in optimiser.param_groups:
            group["peak"] = group["lr"]
    return [muon, adam]


def schedule(progress: float) -> float:
    """Warm-up over 2 % of the time, then a cosine to 2 %."""
    if progress < 0.02:
        return 0.05 + 0.95 * progress / 0.02
    return 0.02 + 0.98 * (1 + math.cos(math.pi * min(progress, 1))) / 2


def strength(progress: float) -> float:
    """Augmentation stays mild until something is learned, then grows."""
    return 0.0 if progress < 0.3 else min(1.0, (progress - 0.3) / 0.5)


class Trainer:
    """Everything that a checkpoint must bring back."""

    def __init__(self, args: argparse.Namespace) -> None:
        torch.manual_seed(args.seed)
        self.args, self.device = args, args.device
        self.pairs = Pairs(args.pairs)
        captions = self.pairs.captions
        model: Any = build()
        for layer in model.vision_model.encoder.layers:
            layer.mlp.activation_fn = FusedQuickGELU()
        self.vision = nn.ModuleDict(
            {"tower": model.vision_model, "projection": model.visual_projection}
        ).to(self.device)
        self.scale = nn.Parameter(torch.tensor(math.log(20.0), device=self.device))
        self.table = self._table(captions).to(self.device)
        others = [self.scale, *self.table.parameters()]
        self.optimisers = optimisers(self.vision, others, args.lr)
        self.average = {n: p.detach().clone() for n, p in self.vision.named_parameters()}
        self.seconds, self.step = 0.0, 0
        path = args.run / CHECKPOINT
        if path.exists():
            self.restore(load_file(path))
        elif args.start:
            start = load_file(args.start)
            self.vision.load_state_dict(_part(start, "average."), strict=False)
            self.average = {n: p.detach().clone() for n, p in self.vision.named_parameters()}
            self.scale.data.copy_(start["scale"])

    def _table(self, captions: list[str]) -> nn.Module:
        if self.args.text:
            weight = load_file(self.args.text)["captions"]
            return nn.Embedding.from_pretrained(weight, freeze=True)
        cache = self.args.run / "teacher.safetensors"
        if not cache.exists():
            save_file({"captions": sentence_embeddings(self.args.teacher, captions)}, cache)
        return CaptionVectors(load_file(cache)["captions"], captions, vocabulary(captions))

    def state(self) -> dict[str, torch.Tensor]:
        """All tensors by name; optimiser moments too, so that resuming changes nothing."""
        tensors = {f"vision.{n}": p for n, p in self.vision.state_dict().items()}
        tensors |= {f"average.{n}": p for n, p in self.average.items()}
        tensors |= {f"table.{n}": p for n, p in self.table.state_dict().items()}
        tensors["scale"] = self.scale.detach()
        tensors["clock"] = torch.tensor([self.seconds, float(self.step)], dtype=torch.float64)
        for number, optimiser in enumerate(self.optimisers):
            for row, moments in optimiser.state_dict()["state"].items():
                for name, value in moments.items():
                    tensors[f"optimiser{number}.{row}.{name}"] = torch.as_tensor(value)
        return {name: tensor.detach().contiguous() for name, tensor in tensors.items()}

    def restore(self, tensors: dict[str, torch.Tensor]) -> None:
        """Continue where ``state`` was taken."""
        self.vision.load_state_dict(_part(tensors, "vision."), strict=False)
        self.table.load_state_dict(_part(tensors, "table."))
        self.average = {n: t.to(self.device) for n, t in _part(tensors, "average.").items()}
        self.scale.data.copy_(tensors["scale"])
        self.seconds, self.step = tensors["clock"][0].item(), int(tensors["clock"][1])
        for number, optimiser in enumerate(self.optimisers):
            state: dict[int, dict] = {}
            for key, value in _part(tensors, f"optimiser{number}.").items():
                row, name = key.split(".", 1)
                state.setdefault(int(row), {})[name] = value
            full = optimiser.state_dict()
            full["state"] = state
            optimiser.load_state_dict(full)

    def save(self) -> None:
        """Write the checkpoint in one piece, so that an interruption leaves the old one whole."""
        target = self.args.run / CHECKPOINT
        save_file(self.state(), target.with_suffix(".new"))
        target.with_suffix(".new").replace(target)

    def embed(self, images: torch.Tensor) -> torch.Tensor:
        """Unit image embeddings."""
        hidden = self.vision["tower"](pixel_values=images).pooler_output
        return normalize(self.vision["projection"](hidden), dim=-1)

    def train_step(self, progress: float) -> float:
        """One batch: cross-entropy among sampled captions."""
        args, pairs = self.args, self.pairs
        rows = torch.multinomial(pairs.weights, args.batch, replacement=True)
        labels = pairs.labels[rows]
        extra = torch.randint(len(pairs.captions), (args.candidates,))
        candidates, target = torch.unique(torch.cat([labels, extra]), return_inverse=True)
        images = batch_of(*pairs.take(rows, self.device), strength(progress) * args.strength)
        factor = schedule(progress)
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = group["peak"] * factor
        with torch.autocast(self.device, torch.bfloat16, enabled=args.bf16):
            embeds = self.embed(images)
        vectors = self.table(candidates.to(self.device))
        logits = self.scale.exp() * embeds.float() @ vectors.T
        loss = cross_entropy(logits, target[: len(rows)].to(self.device), label_smoothing=0.05)
        loss.backward()
        nn.utils.clip_grad_norm_(self.vision.parameters(), 1.0)
        for optimiser in self.optimisers:
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        self.scale.data.clamp_(0, math.log(100))
        decay = min(0.999, (1 + self.step) / (10 + self.step))
        with torch.no_grad():
            for name, parameter in self.vision.named_parameters():
                self.average[name].lerp_(parameter, 1 - decay)
        return loss.item()

    @torch.no_grad()
    def validate(self) -> tuple[float, float]:
        """Top-1 among all captions on pairs left out, with plain weights: all, and coloured."""
        pairs = self.pairs
        vectors = self.table(torch.arange(len(pairs.captions), device=self.device))
        right = []
        for rows in pairs.validation.split(500):
            images = batch_of(*pairs.take(rows, self.device), -1)
            guess = (self.embed(images) @ vectors.T).argmax(-1).cpu()
            right.append(guess == pairs.labels[rows])
        hit = torch.cat(right).float()
        coloured = pairs.validation >= len(pairs.mono)
        return 100 * hit.mean().item(), 100 * hit[coloured].mean().item()

    def run(self) -> None:
        """Train until the schedule's time is used up, with a log line and checkpoint a minute."""
        log = (self.args.run / "log.jsonl").open("a")
        last, written, losses = time.monotonic(), time.monotonic(), []
        while self.seconds < self.args.seconds:
            loss = self.train_step(self.seconds / self.args.seconds)
            if not math.isfinite(loss):
                raise FloatingPointError(f"loss is {loss} at step {self.step}")
            losses.append(loss)
            self.step += 1
            now = time.monotonic()
            # A machine that sleeps or stalls must not eat the schedule.
            self.seconds += min(now - last, 30.0)
            last = now
            if now - written > self.args.every or self.seconds >= self.args.seconds:
                everything, coloured = self.validate()
                line = {
                    "seconds": round(self.seconds),
                    "images": self.step * self.args.batch,
                    "rate": round(len(losses) * self.args.batch / (now - written)),
                    "loss": round(sum(losses) / len(losses), 4),
                    "scale": round(self.scale.exp().item(), 2),
                    "top1": round(everything, 2),
                    "top1_colour": round(coloured, 2),
                }
                print(json.dumps(line), file=log, flush=True)
                print(line, flush=True)
                self.save()
                last = written = time.monotonic()
                losses = []


def _part(tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {k[len(prefix) :]: v for k, v in tensors.items() if k.startswith(prefix)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pairs", type=Path, help="folder written by training_list.py")
    parser.add_argument("run", type=Path, help="folder for checkpoints and the log")
    parser.add_argument("--teacher", type=Path, help="folder of the sentence-embedding model")
    parser.add_argument("--text", type=Path, help="caption vectors of the fitted text tower")
    parser.add_argument(
        "--start", type=Path, help="checkpoint whose averaged weights to start from"
    )
    parser.add_argument("--seconds", type=float, default=3600, help="length of the schedule")
    parser.add_argument("--every", type=float, default=60, help="seconds between log lines")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--candidates", type=int, default=4096)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--strength", type=float, default=1.0, help="of late augmentation")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--bf16", action="store_true", help="bfloat16 autocast in the vision tower")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    args.run.mkdir(parents=True, exist_ok=True)
    Trainer(args).run()


if __name__ == "__main__":
    main()
