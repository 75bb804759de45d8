"""ShotFit's jobs: generators that load, yield, and then do one unit a step."""

import itertools
import os
import random
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from shotfit.apps.cli import app
from shotfit.backbone import Backbone
from shotfit.data.dataset import Dataset, Example, Split
from shotfit.data.prefetch import Batch, Loading
from shotfit.data.sources import load_dataset
from shotfit.data.support_set import SupportSet
from shotfit.data.task import make_task
from shotfit.data.transforms import CROP_SCALE, ImageSpec
from shotfit.experiment import Experiment, fit_task
from shotfit.methods.base import Method
from shotfit.methods.layernorm import LayerNorm
from shotfit.methods.linear import LinearClassifier, LinearConfig
from shotfit.methods.published import TrainConfig
from shotfit.recipe import Overrides, two_stage
from shotfit.system.memory import reused_memory
from shotfit.training.loop import train
from speed.shapes import SHAPES, Words, class_names, random_batch, random_clip

ENDLESS = 1_000_000


class Pixels(SupportSet):
    """A support set of one batch of random pixels, so that nothing is decoded or augmented."""

    def __init__(self, request: dict[str, Any]) -> None:
        shape = SHAPES[request["shape"]]
        split = Split(class_names(request["classes"]), ())
        super().__init__(split, ImageSpec(size=shape.image), random.Random(1))
        self.batch = random_batch(shape, request["batch"], request["classes"])

    def __len__(self) -> int:
        return len(self.batch[1])

    @property
    def labels(self) -> Tensor:
        """Of the batch's images."""
        return self.batch[1]

    def batches(self, batch_size: int, **options: Any) -> Iterator[Batch]:
        """The batch, again and again."""
        return itertools.repeat(self.batch)

    def augmented_once(
        self, batch_size: int = 256, crop_scale: tuple[float, float] = CROP_SCALE
    ) -> Iterator[Batch]:
        """The batch, once."""
        return iter([self.batch])


def stage1(request: dict[str, Any]) -> Iterator[None]:
    """A unit is one iteration of the first stage."""
    method, support = _loaded(request)
    with reused_memory():
        yield
        for _ in train(method, support, _training(request)):
            yield


def stage2(request: dict[str, Any]) -> Iterator[None]:
    """A unit is one iteration of the second stage on cached views."""
    method, support = _loaded(request)
    classifier = LinearClassifier(method, LinearConfig(views=1)).to(request["device"])
    with reused_memory():
        classifier.setup(support)
        yield
        for _ in train(classifier, support, _training(request)):
            yield


def views(request: dict[str, Any]) -> Iterator[None]:
    """A unit is what starting the second stage takes for one batch of views and all names."""
    method, support = _loaded(request)
    with reused_memory():
        yield
        while True:
            LinearClassifier(method, LinearConfig(views=1)).setup(support)
            yield


@torch.no_grad()
def names(request: dict[str, Any]) -> Iterator[None]:
    """A unit is embedding so many class names, none seen before."""
    method, _ = _loaded({**request, "classes": 1})
    yield
    with _autocast(request):
        for seed in itertools.count(1):
            method.encode_classes(class_names(request["classes"], seed))
            yield


@torch.no_grad()
def predict(request: dict[str, Any]) -> Iterator[None]:
    """A unit is scoring one batch of pixels against classes that are embedded already."""
    method, support = _loaded(request)
    method.eval()
    classes = method.encode_classes(support.classnames)
    pixels = support.batch[0].to(request["device"])
    yield
    with _autocast(request):
        while True:
            method(pixels, classes)
            yield


def fit(request: dict[str, Any]) -> Iterator[None]:
    """A unit is a whole `fit` of the embedded model on an embedded task, images decoded."""
    dataset = load_dataset("demo", name=request["task"])
    dataset = first_classes(dataset, request["classes"])
    options = {"training.precision": request["precision"]}
    if request["views"] is not None:
        options["linear.views"] = request["views"]
    recipe = Overrides({"iters_per_shot": request["iters_per_shot"]}, options).applied(two_stage())
    experiment = Experiment(setting="all_to_all", shots=request["shots"], recipe=recipe)
    yield
    while True:
        task = make_task(dataset, "all_to_all", request["shots"], experiment.seed)
        fit_task(experiment, task, device=request["device"])
        yield


def loader(request: dict[str, Any]) -> Iterator[None]:
    """A unit is one augmented batch, with nothing that trains on it."""
    # As many threads as the step it is held against.
    threads = request["threads"]
    loading = Loading(memory=request["memory"], disk=request.get("disk", 0), workers=threads)
    with tempfile.TemporaryDirectory() as folder:
        if request["task"] is None:
            split = photographs(Path(folder), request)
        else:
            split = load_dataset("demo", name=request["task"])
            split = make_task(split, "all_to_all", 4, 1).support
        size = SHAPES[request["shape"]].image
        scale = (request.get("smallest_crop", CROP_SCALE[0]), 1.0)
        with SupportSet(
            split,
            ImageSpec(size=size, resize=size),
            random.Random(1),
            loading,
            smallest_crop=scale[0],
        ) as support:
            batches = support.batches(request["batch"], crop_scale=scale)
            with warnings.catch_warnings():
                # That images are decoded anew each time is what some of the cases are about.
                warnings.simplefilter("ignore", UserWarning)
                support.decode()
            yield
            for _ in batches:
                yield


def decoding(request: dict[str, Any]) -> Iterator[None]:
    """A unit is what a fit does once: decoding all photographs."""
    size = SHAPES[request["shape"]].image
    spec = ImageSpec(size=size, resize=size)
    with tempfile.TemporaryDirectory() as folder:
        split = photographs(Path(folder), request)
        yield
        while True:
            with SupportSet(
                split, spec, random.Random(1), smallest_crop=request["smallest_crop"]
            ) as support:
                support.decode()
            yield


def folder(request: dict[str, Any]) -> Iterator[None]:
    """A unit is `shotfit predict` on a folder of so many images, files of their own names."""
    with tempfile.TemporaryDirectory() as place:
        fitted, images = Path(place, "fitted"), Path(place, "images")
        images.mkdir()
        photos = [
            example.image
            for example in _photos(Path(place), request["photos"])
            if isinstance(example.image, Path)
        ]
        for number in range(request["images"]):
            os.link(photos[number % len(photos)], images / f"{number:06}.jpg")
        # In another process: the peak memory here is to be that of predicting.
        fit = [sys.executable, "-m", "shotfit", "fit", request["task"], "--method", "zero_shot"]
        subprocess.run([*fit, "--shots", "1", "--out", fitted], check=True, capture_output=True)
        yield
        for number in itertools.count():
            lines = Path(place, f"{number}.jsonl")
            app(["predict", str(fitted), str(images), "--out", str(lines)], standalone_mode=False)
            yield


def matmul(request: dict[str, Any]) -> Iterator[float]:
    """A unit tries every size once and yields the best rate, in floating-point operations a
    second."""
    from time import perf_counter

    device = torch.device(request["device"])
    dtype = torch.bfloat16 if request["precision"] == "bf16" else torch.float32
    pairs = [
        (torch.ones(n, k, device=device, dtype=dtype), torch.ones(k, m, device=device, dtype=dtype))
        for n, k, m in request["sizes"]
    ]
    yield 0.0
    while True:
        rates = []
        for left, right in pairs:
            for _ in range(3):
                _wait(device)
                started = perf_counter()
                torch.matmul(left, right)
                _wait(device)
                flops = 2 * left.shape[0] * left.shape[1] * right.shape[1]
                rates.append(flops / (perf_counter() - started))
        yield max(rates)


def copy(request: dict[str, Any]) -> Iterator[float]:
    """A unit copies a gigabyte and yields the bytes moved a second, read and written."""
    from time import perf_counter

    device = torch.device(request["device"])
    source = torch.ones(1 << 28, device=device)
    target = torch.empty_like(source)
    yield 0.0
    while True:
        _wait(device)
        started = perf_counter()
        target.copy_(source)
        _wait(device)
        yield 2 * source.numel() * 4 / (perf_counter() - started)


JOBS = {
    "stage1": stage1,
    "stage2": stage2,
    "views": views,
    "names": names,
    "predict": predict,
    "fit": fit,
    "loader": loader,
    "decoding": decoding,
    "folder": folder,
    "matmul": matmul,
    "copy": copy,
}


def photographs(folder: Path, request: dict[str, Any]) -> Split:
    """A class of so many photographs, written into `folder`."""
    photos = _photos(folder, request["photos"], request.get("sizes", IMAGENET))
    return Split(("photo",), tuple(photos), reduced=request.get("reduced", False))


# A photograph of ImageNet.
IMAGENET = ((500, 375),)


def _photos(
    folder: Path, count: int, sizes: Sequence[tuple[int, int]] = IMAGENET
) -> Iterator[Example]:
    """JPEGs of these sizes in turns, compressed as those of ImageNet: 500 x 375 in some 100 kB."""
    draw = random.Random(0)
    for number in range(count):
        path = folder / f"photo{number}.jpg"
        size = sizes[number % len(sizes)]
        # Coarse noise, enlarged, and a little fine noise: edges and grain as photographs have.
        coarse = Image.frombytes("RGB", (50, 38), draw.randbytes(50 * 38 * 3))
        fine = Image.frombytes("RGB", size, draw.randbytes(size[0] * size[1] * 3))
        picture = Image.blend(coarse.resize(size, Image.Resampling.BICUBIC), fine, 0.1)
        picture.save(path, quality=90)
        yield Example(path.name, 0, path)


def first_classes(dataset: Dataset, count: int) -> Dataset:
    """`dataset` with its first `count` classes."""
    return Dataset(
        dataset.name,
        dataset.classnames[:count],
        tuple(example for example in dataset.train if example.label < count),
        test=tuple(example for example in dataset.test if example.label < count),
        template=dataset.template,
    )


def tokenized_prompts(shape: str, classes: int) -> list[list[int]]:
    """Token ids of the prompts that a job with so many classes embeds."""
    tokenizer = Words(SHAPES[shape].vocabulary)
    return tokenizer([f"a photo of a {name}." for name in class_names(classes)])["input_ids"]


def _loaded(request: dict[str, Any]) -> tuple[Method, Pixels]:
    shape = SHAPES[request["shape"]]
    spec = ImageSpec(size=shape.image, resize=shape.image)
    backbone = Backbone.from_model(random_clip(shape), Words(shape.vocabulary), spec)
    return LayerNorm(backbone.to(torch.device(request["device"]))), Pixels(request)


def _training(request: dict[str, Any]) -> TrainConfig:
    return TrainConfig(
        iterations=ENDLESS,
        batch_size=request["batch"],
        precision=request["precision"],
        compile=request.get("compile", False),
    )


def _autocast(request: dict[str, Any]) -> torch.autocast:
    kind = torch.device(request["device"]).type
    return torch.autocast(kind, torch.bfloat16, enabled=request["precision"] == "bf16")


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()
