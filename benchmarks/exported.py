"""An exported classifier beside PyTorch: start, memory, speed, and what 8 bits cost in accuracy.

    python benchmarks/exported.py            # measures, and keeps results/export/*.json
    python benchmarks/exported.py --write docs/export.md

The model has the shapes of ViT-B/32 and random weights, since only time and memory are asked for.
Every start is a process of its own, the kinds in turn, and the median is reported.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

REPOSITORY = Path(__file__).parent.parent
RESULTS = REPOSITORY / "results" / "export"
NAMES = tuple(f"class {number}" for number in range(100))
STARTS, ROUNDS, IMAGES = 5, 5, 64
TASKS = ("animals", "digits", "flags", "food", "symbols")
KINDS = ("pytorch", "onnx", "onnx int8")
MARK = "<!-- figures -->"

START = """
import json, pathlib, resource, sys, time
folder, image, began = sys.argv[2], sys.argv[3], float(sys.argv[4])
if sys.argv[1] == "pytorch":
    from shotfit import FewShotClassifier
    answer = FewShotClassifier.from_pretrained(folder, device="cpu").predict(image)
else:
    from shotfit.runtime import ExportedClassifier
    answer = ExportedClassifier.load(folder).predict(image)
seconds = time.time() - began
used = resource.getrusage(resource.RUSAGE_SELF)
# Not ru_maxrss, which begins at what the process that started this one has.
status = pathlib.Path("/proc/self/status").read_text()
peak = 1024 * int(status.partition("VmHWM:")[2].split()[0])
facts = {"seconds": seconds, "processor": used.ru_utime + used.ru_stime, "peak_bytes": peak}
print(json.dumps(facts))
"""


def checkpoint(folder: Path) -> Path:
    """A random CLIP with the shapes of ViT-B/32, as a folder, with the embedded tokenizer."""
    import shutil

    import torch
    from transformers import CLIPConfig, CLIPModel

    from shotfit.backbone import EMBEDDED

    torch.manual_seed(0)
    CLIPModel(CLIPConfig()).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(Path(EMBEDDED["iconclip"]) / name, folder)
    facts = {"size": {"shortest_edge": 224}, "crop_size": {"height": 224, "width": 224}}
    (folder / "preprocessor_config.json").write_text(json.dumps(facts))
    return folder


def folders(scratch: Path) -> dict[str, Path]:
    """The same classifier as a saved folder and as two exports."""
    from shotfit.backbone import Backbone
    from shotfit.classifier import FewShotClassifier
    from shotfit.export.onnx import OnnxOptions, export_onnx
    from shotfit.methods.zero_shot import ZeroShot

    model = str(checkpoint(scratch / "model"))
    method = ZeroShot(Backbone.from_pretrained(model))
    classifier = FewShotClassifier(model).take(method, added=NAMES)
    found = {kind: scratch / kind.replace(" ", "-") for kind in KINDS}
    classifier.save_pretrained(found["pytorch"])
    export_onnx(classifier, found["onnx"])
    export_onnx(classifier, found["onnx int8"], OnnxOptions(int8=True))
    return found


def starts(found: dict[str, Path], image: Path) -> dict[str, Any]:
    """Seconds from the start of a process to its first answer, and its peak memory."""
    rows: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
    for _ in range(STARTS + 1):
        for kind, folder in found.items():
            command = [sys.executable, "-c", START, kind, folder, image, str(time.time())]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            rows[kind].append(json.loads(done.stdout.splitlines()[-1]))
    # The first of each reads from the disk what the others find in memory.
    return {
        kind: {
            "seconds": statistics.median(row["seconds"] for row in kept[1:]),
            "processor": statistics.median(row["processor"] for row in kept[1:]),
            "first_seconds": kept[0]["seconds"],
            "peak_bytes": statistics.median(row["peak_bytes"] for row in kept[1:]),
        }
        for kind, kept in rows.items()
    }


def speeds(found: dict[str, Path], threads: int) -> dict[str, float]:
    """Images a second through the image tower, 16 at once; the kinds in turn."""
    import torch

    from shotfit import FewShotClassifier
    from shotfit.runtime import ExportedClassifier

    torch.set_num_threads(threads)
    pixels = np.random.default_rng(0).standard_normal((16, 3, 224, 224), np.float32)
    scorer = FewShotClassifier.from_pretrained(found["pytorch"], device="cpu").scorer()
    runs = {"pytorch": lambda: scorer(torch.from_numpy(pixels)).logits.numpy()}
    for kind in KINDS[1:]:
        classifier = ExportedClassifier.load(found[kind], threads=threads)
        graphs, matrix = classifier.encoder, classifier.matrix
        runs[kind] = lambda graphs=graphs, matrix=matrix: matrix.scores(graphs.features(pixels))
    times: dict[str, list[float]] = {kind: [] for kind in runs}
    for number in range(ROUNDS + 1):
        for kind, run in runs.items():
            began = time.perf_counter()
            run()
            if number:
                times[kind].append(time.perf_counter() - began)
    return {kind: len(pixels) / statistics.median(seconds) for kind, seconds in times.items()}


def accuracies(scratch: Path) -> dict[str, dict[str, float]]:
    """Percent right on the test images of embedded tasks, exact and in 8 bits."""
    from shotfit.classifier import FewShotClassifier
    from shotfit.data.sources import load_dataset
    from shotfit.export.onnx import OnnxOptions, export_onnx
    from shotfit.runtime import ExportedClassifier

    rows = {}
    for task in TASKS:
        dataset = load_dataset("demo", name=task)
        classifier = FewShotClassifier(preset="fast")
        classifier.fit(dataset, shots=4, verbose=False)
        images = [example.image for example in dataset.test]
        right = np.array([example.label for example in dataset.test])
        labels = {name: number for number, name in enumerate(dataset.classnames)}
        answers = {"pytorch": classifier.predict(images)}
        for kind in KINDS[1:]:
            folder = scratch / f"{task}-{kind}".replace(" ", "-")
            export_onnx(classifier, folder, OnnxOptions(int8=kind != "onnx", text=False))
            answers[kind] = ExportedClassifier.load(folder).predict(images)
        found = {kind: np.array([labels[n] for n in names]) for kind, names in answers.items()}
        rows[task] = {kind: 100 * float((f == right).mean()) for kind, f in found.items()}
        rows[task]["images"] = len(right)
        rows[task]["same answer"] = 100 * float((found["onnx int8"] == found["pytorch"]).mean())
        print(task, rows[task], flush=True)
    return rows


def measure() -> dict[str, Any]:
    """All figures, and where they were taken."""
    from PIL import Image

    with tempfile.TemporaryDirectory() as scratch:
        room = Path(scratch)
        image = room / "photo.jpg"
        noise = np.random.default_rng(0).integers(0, 255, (480, 640, 3), np.uint8)
        Image.fromarray(noise).save(image)
        found = folders(room)
        sizes = {k: {p.name: p.stat().st_size for p in f.iterdir()} for k, f in found.items()}
        began = starts(found, image)
        print(began, flush=True)
        speed = {str(threads): speeds(found, threads) for threads in (1, 2)}
        print(speed, flush=True)
        return {
            "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores",
            "sizes": sizes,
            "starts": began,
            "images_per_second": speed,
            "accuracy": accuracies(room),
        }


def page(facts: dict[str, Any]) -> str:
    """The figures as Markdown tables."""
    lines = [
        "| ViT-B/32 shapes | first answer after | processor seconds | peak memory | image tower | "
        "images/s, 1 thread | 2 threads |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind in KINDS:
        start, sizes = facts["starts"][kind], facts["sizes"][kind]
        tower = sum(size for name, size in sizes.items() if name.startswith("image.onnx"))
        speed = [facts["images_per_second"][n][kind] for n in ("1", "2")]
        lines.append(
            f"| {kind} | {start['seconds']:.2f} s | {start['processor']:.2f} | "
            f"{start['peak_bytes'] / 1e6:.0f} MB | "
            f"{f'{tower / 1e6:.0f} MB' if tower else '-'} | "
            f"{speed[0]:.1f} | {speed[1]:.1f} |"
        )
    lines.append("| adaptshot 0.3 (MobileNet, its README) | 0.85 s | | 119 MB | | | |")
    lines += [
        "",
        "| task, 4 shots | test images | PyTorch | onnxruntime | 8 bits | as PyTorch, 8 bits |",
        "|---|---|---|---|---|---|",
    ]
    for task, row in facts["accuracy"].items():
        lines.append(
            f"| {task} | {row['images']} | {row['pytorch']:.1f} | {row['onnx']:.1f} | "
            f"{row['onnx int8']:.1f} | {row['same answer']:.1f} % |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measures, or writes the page from what was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, help="The page to put the tables into.")
    target = parser.parse_args().write
    record = RESULTS / "vit-b-32.json"
    if target is None:
        RESULTS.mkdir(parents=True, exist_ok=True)
        record.write_text(json.dumps(measure(), indent=2) + "\n")
        return
    before, _, rest = target.read_text().partition(MARK)
    after = rest.partition(MARK)[2]
    target.write_text(f"{before}{MARK}\n{page(json.loads(record.read_text()))}\n{MARK}{after}")


if __name__ == "__main__":
    main()
