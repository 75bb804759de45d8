"""Zero-shot accuracy of the embedded model on each task of the suite, beside two simple floors.

    python tools/zero_shot_suite.py src/shotfit/assets            # a table
    python tools/zero_shot_suite.py src/shotfit/assets --json numbers.json

Zero-shot: all classes, the base half (the first ceil(K/2) labels) and the novel half, each among
its own names. Floors: nearest class mean of four training images a class, in pixels and in image
embeddings, mean of seeds 1, 2, 3.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.nn.functional import normalize

os.environ.setdefault("HF_HUB_OFFLINE", "1")

SHOTS = 4
SEEDS = (1, 2, 3)


def read_task(path: Path) -> tuple[dict, list[Image.Image]]:
    """Manifest and RGB images of a task."""
    with zipfile.ZipFile(path) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        images = [
            Image.open(io.BytesIO(archive.read(entry["file"]))).convert("RGB")
            for entry in manifest["images"]
        ]
    return manifest, images


class Model:
    """The embedded CLIP, loaded as any hub checkpoint is."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoTokenizer, CLIPModel

        self.clip: Any = CLIPModel.from_pretrained(folder, dtype=torch.float32).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.config = json.loads((folder / "preprocessor_config.json").read_text())

    @torch.inference_mode()
    def images(self, images: list[Image.Image]) -> torch.Tensor:
        """Unit image embeddings; resized and normalised as the stored preprocessor says."""
        size = self.config["size"]["shortest_edge"]
        small = [
            np.asarray(image.resize((size, size), Image.Resampling.BICUBIC)) for image in images
        ]
        pixels = torch.from_numpy(np.stack(small)).permute(0, 3, 1, 2).float() / 255
        mean = torch.tensor(self.config["image_mean"])[:, None, None]
        std = torch.tensor(self.config["image_std"])[:, None, None]
        output = self.clip.get_image_features(pixel_values=(pixels - mean) / std)
        return normalize(output.pooler_output, dim=-1)

    @torch.inference_mode()
    def texts(self, texts: list[str]) -> torch.Tensor:
        """Unit text embeddings."""
        batch = self.tokenizer(texts, padding=True, return_tensors="pt")
        return normalize(self.clip.get_text_features(**batch).pooler_output, dim=-1)


def accuracy(scores: torch.Tensor, labels: torch.Tensor) -> float:
    """Percent of rows whose highest score is at the label."""
    return 100 * (scores.argmax(1) == labels).float().mean().item()


def class_mean_accuracy(features: torch.Tensor, entries: list[dict], classes: int) -> float:
    """Nearest class mean of ``SHOTS`` training images a class, averaged over the seeds."""
    labels = torch.tensor([entry["label"] for entry in entries])
    test = torch.tensor([entry["split"] == "test" for entry in entries])
    results = []
    for seed in SEEDS:
        rng, means = random.Random(seed), []
        for label in range(classes):
            pool = ((labels == label) & ~test).nonzero()[:, 0].tolist()
            means.append(features[rng.sample(pool, SHOTS)].mean(0))
        distance = torch.cdist(features[test], torch.stack(means))
        results.append(accuracy(-distance, labels[test]))
    return sum(results) / len(results)


def evaluate_task(model: Model, path: Path) -> dict[str, float]:
    """All numbers of one task."""
    manifest, images = read_task(path)
    entries, names = manifest["images"], manifest["classnames"]
    test = torch.tensor([entry["split"] == "test" for entry in entries])
    labels = torch.tensor([entry["label"] for entry in entries])
    embeds = model.images(images)
    scores = embeds @ model.texts([manifest["template"].format(name) for name in names]).T
    half = (len(names) + 1) // 2
    base, novel = test & (labels < half), test & (labels >= half)
    pixels = torch.stack(
        [torch.from_numpy(np.array(i.resize((32, 32)))).float().flatten() / 255 for i in images]
    )
    return {
        "all": accuracy(scores[test], labels[test]),
        "base": accuracy(scores[base][:, :half], labels[base]),
        "novel": accuracy(scores[novel][:, half:], labels[novel] - half),
        "pixel_mean": class_mean_accuracy(pixels, entries, len(names)),
        "embedding_mean": class_mean_accuracy(embeds, entries, len(names)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("assets", type=Path, help="folder with iconclip/ and suite/")
    parser.add_argument("--model", type=Path, help="another model folder")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    args = parser.parse_args()
    torch.set_num_threads(1)
    model = Model(args.model or args.assets / "iconclip")
    table = {
        path.stem: evaluate_task(model, path) for path in sorted(args.assets.glob("suite/*.zip"))
    }
    columns = list(next(iter(table.values())))
    print(f"| task | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    for task, numbers in table.items():
        print(f"| {task} | {' | '.join(f'{numbers[c]:.1f}' for c in columns)} |")
    if args.json:
        args.json.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
