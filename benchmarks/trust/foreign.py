"""What unrelated names cost on images of domains that the embedded model does not know.

python -m trust.foreign            # again, it goes on
python -m trust.foreign --write    # the part of docs/trust.md

No image is in the repository: they are read from the wheels that bring them along, scikit-learn,
scikit-image 0.26.0 and conformal-clip-data 0.1.4 (`make foreign-study` installs what is missing).

- surfaces: squares of photographs, a class for each photograph
- handwriting: the test set of Alpaydin and Kaynak, ten digits of 8 x 8 pixels
- textiles: cloth without a fault, with a local one and with a global one
"""

import argparse
import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from page import put
from PIL import Image

from shotfit.averages import estimate, mean
from shotfit.backbone import Backbone
from shotfit.backbone.fingerprint import position_fingerprint
from shotfit.config import to_dict
from shotfit.data.dataset import Dataset, Example
from shotfit.data.images import ImageSource
from shotfit.evaluation.unknown_names import plain
from shotfit.report.paired import signed
from shotfit.system.files import write_atomically
from shotfit.system.memory import reused_memory
from trust import rules
from trust.cell import UNRELATED, right
from trust.fits import Fit, kept_fit, names_and_images_of_others

RESULTS = Path("results/trust-foreign")
SQUARE = 64
SURFACES = {
    "brick wall": "skimage brick.png",
    "grass": "skimage grass.png",
    "gravel": "skimage gravel.png",
    "coins": "skimage coins.png",
    "surface of the moon": "skimage moon.png",
    "stained tissue": "skimage ihc.png",
    "retina": "skimage retina.jpg",
    "galaxies": "skimage hubble_deep_field.jpg",
    "fur of a cat": "skimage chelsea.png",
    "cup of coffee": "skimage coffee.png",
    "motorcycle": "skimage motorcycle_left.png",
    "rocket launch": "skimage rocket.jpg",
    "temple roof": "sklearn china.jpg",
    "dahlia": "sklearn flower.jpg",
}
FOLDERS = {"skimage": ("skimage", "data"), "sklearn": ("sklearn", "datasets/images")}
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
FAULTS = ("nominal", "local", "global")
NAMES = (3, UNRELATED)
"""How many unrelated names are added."""
DRAWS = 10


def main(arguments: Sequence[str] | None = None) -> None:
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3, 4, 5])
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--fits", type=Path, help="keep what the fits leave behind in this folder")
    parser.add_argument("--page", type=Path, default=Path("docs/trust.md"))
    parser.add_argument("--write", action="store_true", help="only write the page of the records")
    options = parser.parse_args(arguments)
    if not options.write:
        run_missing(options.seeds, options.results, options.fits)
        return
    records = [json.loads(path.read_text()) for path in sorted(options.results.glob("*.json"))]
    if not records:
        parser.error(f"no records in {options.results}; run the study first")
    put(options.page, "foreign", table(records))


@reused_memory()
def run_missing(seeds: Sequence[int], results: Path, fits: Path | None) -> None:
    """Every cell without a record of this model."""
    torch.set_num_threads(1)
    chosen: dict[str, Any] = {"shots": 4, "iters_per_shot": 100, "precision": "bf16"}
    chosen |= {"backbone": "iconclip", "setting": "all_to_all"}
    chosen["model"] = position_fingerprint(Backbone.from_pretrained("iconclip"))
    domains: dict[str, Callable[[], Dataset]] = {
        "surfaces": surfaces,
        "handwriting": handwriting,
        "textiles": textiles,
    }
    for seed in seeds:
        for name, made in domains.items():
            path = results / f"{name}-seed{seed}.json"
            if path.exists() and json.loads(path.read_text())["options"] == chosen:
                continue
            started = time.perf_counter()
            dataset = made()
            found = cell(kept_fit(dataset, seed, chosen, fits), dataset)
            write_atomically(path, json.dumps(found) + "\n")
            print(f"{path.stem}: {time.perf_counter() - started:.0f} s", flush=True)


def surfaces() -> Dataset:
    """Eight squares to draw shots from and sixteen to test on, of each photograph."""
    found: dict[str, list[ImageSource]] = {}
    for name, place in SURFACES.items():
        package, file = place.split()
        root, folder = FOLDERS[package]
        with Image.open(str(files(root) / folder / file)) as opened:
            picture = opened.convert("RGB")
        corners = [
            (x, y)
            for x in range(0, picture.width - SQUARE + 1, SQUARE)
            for y in range(0, picture.height - SQUARE + 1, SQUARE)
        ]
        random.Random(f"surfaces {name}").shuffle(corners)
        found[name] = [picture.crop((x, y, x + SQUARE, y + SQUARE)) for x, y in corners]
    return _dataset("surfaces", found, 8, 16)


def handwriting() -> Dataset:
    """Sixteen images of each digit to draw shots from, forty to test on."""
    from sklearn.datasets import load_digits

    features, labels = load_digits(return_X_y=True)
    pixels = np.round(255 / 16 * np.reshape(features, (-1, 8, 8))).astype(np.uint8)
    found: dict[str, list[ImageSource]] = {
        f"handwritten {name}": [
            Image.fromarray(one).convert("RGB") for one in pixels[labels == label]
        ]
        for label, name in enumerate(DIGITS)
    }
    return _dataset("handwriting", found, 16, 40)


def textiles() -> Dataset:
    """Forty images of each kind to draw shots from, a hundred to test on."""
    root = Path(str(files("conformal_clip_data"))) / "data" / "textile_images" / "simulated"
    found: dict[str, list[Path]] = {}
    for name in FAULTS:
        found[name] = sorted((root / name).glob("*.jpg"))
        random.Random(f"textiles {name}").shuffle(found[name])
    return _dataset("textiles", found, 40, 100)


def _dataset(
    name: str, images: Mapping[str, Sequence[ImageSource]], train: int, test: int
) -> Dataset:
    parts: list[list[Example]] = [[], []]
    for label, (key, own) in enumerate(images.items()):
        examples = [Example(f"{key}/{place}", label, image) for place, image in enumerate(own)]
        parts[0] += examples[:train]
        parts[1] += examples[train : train + test]
    return Dataset(name, tuple(images), tuple(parts[0]), (), tuple(parts[1]))


def cell(fit: Fit, dataset: Dataset) -> dict[str, Any]:
    """The record of a domain and a seed."""
    assessment = fit.assess()
    trained = rules.Trained.of(fit)
    images, labels = fit.base.numpy(), fit.base_labels.numpy()
    others = fit.other_names.numpy()[unrelated(dataset)]
    found: dict[str, Any] = {}
    made = {
        "published": rules.published(trained),
        "fitted": rules.fitted(trained, assessment),
    }
    for rule, scores in made.items():
        alone = right(scores(images, others[:0])[0], labels)
        lost = {}
        for count in NAMES:
            rng = np.random.default_rng(fit.seed)
            draws = [others[rng.permutation(len(others))[:count]] for _ in range(DRAWS)]
            beside = [
                right(np.concatenate(scores(images, names), axis=1), labels) for names in draws
            ]
            lost[str(count)] = {"mean": alone - mean(beside), "worst": alone - min(beside)}
        found[rule] = {"trained": alone, "lost": lost}
    return {
        "domain": fit.task,
        "seed": fit.seed,
        "options": fit.options,
        "classes": len(fit.rows),
        "images": len(labels),
        "rules": found,
        "calibration": to_dict(assessment.calibration),
        "environment": fit.environment,
    }


def unrelated(dataset: Dataset) -> list[int]:
    """Which names of the embedded tasks have no word in common with a class of the dataset: "three"
    would be a good answer for a handwritten three."""
    own = {word for name in dataset.classnames for word in plain(name).split()}
    names, _ = names_and_images_of_others(dataset)
    return [place for place, name in enumerate(names) if own.isdisjoint(plain(name).split())]


def table(records: Sequence[Mapping[str, Any]]) -> str:
    """Each domain's mean over seeds, and the loss of the fitted rule with its interval."""
    domains = list(dict.fromkeys(record["domain"] for record in records))
    lines = [
        "| domain | classes | images | trained classes, published | fitted | 3 unrelated names "
        "cost, published | fitted | 100 cost, published | fitted |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for domain in domains:
        own = [record for record in records if record["domain"] == domain]
        cells = [domain, str(own[0]["classes"]), str(own[0]["images"])]
        cells += [
            f"{mean([one['rules'][rule]['trained'] for one in own]):.1f}"
            for rule in ("published", "fitted")
        ]
        for count in NAMES:
            for rule in ("published", "fitted"):
                lost = [one["rules"][rule]["lost"][str(count)]["mean"] for one in own]
                cells.append(signed(estimate(lost), 1).removeprefix("+"))
        lines.append(f"| {' | '.join(cells)} |")
    seeds = sorted({record["seed"] for record in records})
    return (
        "\n".join(lines)
        + f"\n\n{len(records)} runs, seeds {', '.join(map(str, seeds))}, {DRAWS} draws of names "
        "each; intervals are of 95 % over seeds."
    )


if __name__ == "__main__":
    main()
