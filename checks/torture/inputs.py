"""What is fed to every reader: good files of each kind, and how they are read."""

import contextlib
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import safetensors.numpy
from PIL import Image

from shotfit import saving
from shotfit.config import from_dict, read_yaml
from shotfit.data.benchmark.matfile import read_mat
from shotfit.data.benchmark.split_files import classnames_of, read_split
from shotfit.data.images import FORMATS, open_image
from shotfit.data.sources import csv, folder
from shotfit.errors import DataError
from shotfit.experiment import Experiment
from shotfit.records import read_record
from shotfit.records.dynamics import read_dynamics
from shotfit.records.gain import read_gain
from shotfit.runtime.manifest import Manifest
from shotfit.saved_settings import CONFIG
from shotfit.training.checkpoint import read_checkpoint

REPOSITORY = Path(__file__).parent.parent.parent
FORMATS_SO_FAR = REPOSITORY / "tests/formats"


@dataclass(frozen=True)
class Reader:
    """What reads a kind of file. `name` is the file's; `seeds` are good contents of it."""

    read: Callable[[Path], object]
    name: str
    seeds: list[bytes]
    beside: dict[str, bytes] = field(default_factory=dict)
    """Files that lie in the same folder."""
    signed: bool = False
    """JSON whose checksum is made to fit again: else nothing behind it would be reached."""


def readers() -> dict[str, Reader]:
    """Every reader of files that others may have made, by name."""
    found = dict(_tables())
    found.update(_json_files())
    found.update(_archives())
    found.update({f"image {name}": Reader(open_image, "image.png", [content])
                  for name, content in images().items()})  # fmt: skip
    return found


def images() -> dict[str, bytes]:
    """A small picture in every format that can be written here."""
    Image.init()
    noise = np.random.default_rng(0).integers(0, 256, (12, 10, 3), dtype=np.uint8)
    found = {}
    for name in FORMATS:
        content = io.BytesIO()
        if name in Image.SAVE:
            Image.fromarray(noise).save(content, name)
            found[name] = content.getvalue()
    found["PNG 16 bits"] = _saved(Image.fromarray(noise[:, :, 0].astype(np.uint16) * 257))
    found["PNG palette"] = _saved(Image.fromarray(noise).quantize(8))
    return found


def _saved(picture: Image.Image) -> bytes:
    content = io.BytesIO()
    picture.save(content, "PNG")
    return content.getvalue()


def _tables() -> Iterator[tuple[str, Reader]]:
    png = images()["PNG"]
    table = b"path,label,split\na.png,cat,train\na.png,dog,train\na.png,cat,test\n"
    numbers = b"path,label\na.png,0\na.png,1\n"
    lines = b'{"path": "a.png", "label": "cat"}\n{"path": "a.png", "label": "dog"}\n'
    beside = {"a.png": png}
    yield "manifest .csv", Reader(_load_csv, "all.csv", [table, numbers], beside)
    yield "manifest .jsonl", Reader(_load_csv, "all.jsonl", [lines], beside)
    names = b'{"cat": "a cat", "dog": "a dog"}'
    beside = {"cat/a.png": png, "dog/a.png": png}
    yield "classnames.json", Reader(_load_folder, "classnames.json", [names], beside)
    split = {part: [["a.jpg", 0, "cat"], ["b.jpg", 1, "dog"]] for part in ("train", "val", "test")}
    yield "split file", Reader(_load_split, "split.json", [json.dumps(split).encode()])


def _json_files() -> Iterator[tuple[str, Reader]]:
    options = b"method: 2sfs\nshots: 4\noptions: {a: [1, 2.5, null]}\nseed: 1\n"
    yield "options .yaml", Reader(read_yaml, "options.yaml", [options])
    record = (FORMATS_SO_FAR / "record.json").read_bytes()
    yield "record", Reader(read_record, "record.json", [record])
    experiment = json.dumps(json.loads(record)["experiment"]).encode()
    yield "experiment", Reader(_experiment, "experiment.json", [experiment])
    for name, read in (("curve", read_dynamics), ("gain", read_gain)):
        yield name, Reader(read, f"{name}.json", [(FORMATS_SO_FAR / f"{name}.json").read_bytes()])
    saved = FORMATS_SO_FAR / "saved"
    beside = {path.name: path.read_bytes() for path in saved.iterdir() if path.name != CONFIG}
    seeds = [(saved / CONFIG).read_bytes()]
    yield "saved classifier", Reader(_load_saved, CONFIG, seeds, beside, signed=True)
    manifest = (FORMATS_SO_FAR / "export.json").read_bytes()
    yield "export", Reader(_load_export, "export.json", [manifest])


def _archives() -> Iterator[tuple[str, Reader]]:
    from shotfit.backbone.convert.tensor_files import read_source

    checkpoint = (FORMATS_SO_FAR / "checkpoint.safetensors").read_bytes()
    yield "checkpoint", Reader(read_checkpoint, "checkpoint.safetensors", [checkpoint])
    weights = (FORMATS_SO_FAR / "saved/model.safetensors").read_bytes()
    tensors = safetensors.numpy.save({"a": np.zeros((2, 3), np.float32), "b": np.ones(4, np.int64)})
    yield "tensors", Reader(_load_tensors, "model.safetensors", [weights, tensors])
    archive = (FORMATS_SO_FAR / "scripted.pt").read_bytes()
    yield "TorchScript", Reader(read_source, "model.pt", [archive])
    yield ".mat", Reader(read_mat, "labels.mat", [(FORMATS_SO_FAR / "labels.mat").read_bytes()])


def _load_csv(path: Path) -> object:
    return csv.load(str(path))


def _load_folder(path: Path) -> object:
    return folder.load(str(path.parent))


def _load_split(path: Path) -> object:
    entries = read_split(path)
    return classnames_of(entries, path)


def _experiment(path: Path) -> object:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise DataError("no JSON") from None
    return from_dict(Experiment, values) if isinstance(values, dict) else None


def _load_saved(path: Path) -> object:
    from shotfit.apps.commands.info import info
    from shotfit.classifier import FewShotClassifier

    with contextlib.redirect_stdout(io.StringIO()):
        info(path.parent)
    backbone = str(FORMATS_SO_FAR / "backbone")
    return FewShotClassifier.from_pretrained(path.parent, backbone=backbone)


def _load_tensors(path: Path) -> object:
    return saving._read_tensors(path.parent, path.name)


def _load_export(path: Path) -> object:
    return Manifest.read(path.parent)
