"""What is fed to every reader: good files of each kind, and how they are read."""

import contextlib
import hashlib
import io
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import safetensors.numpy
from PIL import Image

from shotfit import saving
from shotfit.apps.fit_options import FitOptions
from shotfit.apps.options import merged
from shotfit.apps.predict.output_file import PredictionFile
from shotfit.apps.words import chosen_words
from shotfit.backbone import Backbone
from shotfit.config import from_dict, read_yaml
from shotfit.data.benchmark.matfile import read_mat
from shotfit.data.benchmark.split_files import classnames_of, read_split
from shotfit.data.dataset import Dataset, Example
from shotfit.data.fewshot_lists import fewshot_path, read_fewshot, write_fewshot
from shotfit.data.images import FORMATS, open_image
from shotfit.data.sources import csv, folder
from shotfit.errors import DataError
from shotfit.experiment import Experiment
from shotfit.records import read_record
from shotfit.records.dynamics import read_dynamics
from shotfit.records.gain import read_gain
from shotfit.runtime.manifest import Manifest
from shotfit.runtime.tensors import read_tensors
from shotfit.saved_settings import CONFIG, SHOTS, WEIGHTS, checksum, sha256
from shotfit.system.parsing import parse_json
from shotfit.training.checkpoint import read_checkpoint

REPOSITORY = Path(__file__).parent.parent.parent
FORMATS_SO_FAR = REPOSITORY / "tests/formats"
PICTURE = [Image.new("RGB", (16, 16), "red")]
QUESTION = {"model": "pets", "top": 1, "classes": None}
NOTHING = hashlib.sha256(b"").hexdigest()[:16]
ROWS = [{"image": f"{name}.png", "answers": [["cat", 0.5]], "content": NOTHING} for name in "ab"]


@dataclass(frozen=True)
class Reader:
    """What reads a kind of file. `name` is the file's; `seeds` are good contents of it."""

    read: Callable[[Path], object]
    name: str
    seeds: list[bytes]
    beside: dict[str, bytes] = field(default_factory=dict)
    """Files that lie in the same folder."""
    sign: Callable[[bytes], bytes] | None = None
    """Makes a sum within the file fit again: else nothing behind it would be reached."""
    share: float = 1.0
    """Of the inputs that are asked for: the rest would take hours where a model is loaded."""

    def signed(self, content: bytes) -> bytes:
        """`content` with the sum that a file of it has."""
        return content if self.sign is None else self.sign(content)


def readers() -> dict[str, Reader]:
    """Every reader of files that others may have made, by name."""
    found = dict(_tables())
    found.update(_json_files())
    found.update(_saved())
    found.update(_model_folders())
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
    found["PNG 16 bits"] = _png(Image.fromarray(noise[:, :, 0].astype(np.uint16) * 257))
    found["PNG palette"] = _png(Image.fromarray(noise).quantize(8))
    return found


def _png(picture: Image.Image) -> bytes:
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
    ours, published = (write(_shapes()) for write in (_our_list, _published_list))
    name = fewshot_path("", 1, 1, "train").name
    yield "few-shot list", Reader(_load_list, name, [ours, published], sign=_sign_list)
    templates = b"a photo of a {}.\nan image of the {}.\n"
    yield "templates .txt", Reader(_load_templates, "templates.txt", [templates])
    yield "templates .json", Reader(_load_templates, "templates.json", [b'["a {}", "the {}."]'])
    sentences = b'{"cat": ["a cat has whiskers", "it purrs"], "dog": ["it barks"]}'
    yield "descriptions", Reader(_load_descriptions, "words.json", [sentences])


def _json_files() -> Iterator[tuple[str, Reader]]:
    options = b"method: 2sfs\nshots: 4\noptions: {a: [1, 2.5, null]}\nseed: 1\n"
    yield "options .yaml", Reader(read_yaml, "options.yaml", [options])
    record = (FORMATS_SO_FAR / "record.json").read_bytes()
    yield "record", Reader(read_record, "record.json", [record])
    experiment = json.dumps(json.loads(record)["experiment"]).encode()
    yield "experiment", Reader(_experiment, "experiment.json", [experiment])
    for name, read in (("curve", read_dynamics), ("gain", read_gain)):
        yield name, Reader(read, f"{name}.json", [(FORMATS_SO_FAR / f"{name}.json").read_bytes()])
    manifest = (FORMATS_SO_FAR / "export.json").read_bytes()
    yield "export", Reader(_load_export, "export.json", [manifest])
    fit = b"method: 2sfs:lora\nshots: 4\nminutes: null\noption: {rank: 4, training.lr: 0.001}\n"
    yield "options of fit", Reader(_load_fit_options, "config.yaml", [fit])
    note = json.dumps(QUESTION).encode()
    rows = b"".join(json.dumps(row).encode() + b"\n" for row in ROWS)
    name = "out.jsonl.partial"
    beside = {f"{name}.json": note, "a.png": b"", "b.png": b"", "c.png": b""}
    yield "interrupted rows", Reader(_go_on, name, [rows], beside)
    beside = {**beside, name: rows}
    yield "interrupted note", Reader(_go_on, f"{name}.json", [note], beside)


def _saved() -> Iterator[tuple[str, Reader]]:
    saved = {path.name: path.read_bytes() for path in (FORMATS_SO_FAR / "saved").iterdir()}
    for name, file, sign in (
        ("saved classifier", CONFIG, _sign_config),
        ("saved tensors", WEIGHTS, None),
        ("saved shots", SHOTS, None),
        ("saved classes", "classes.safetensors", None),
    ):
        beside = {other: content for other, content in saved.items() if other != file}
        yield name, Reader(_load_saved, file, [saved[file]], beside, sign, share=0.02)
    yield "saved record", Reader(_load_provenance, saving.RECORD, [saved[saving.RECORD]])


def _model_folders() -> Iterator[tuple[str, Reader]]:
    model = {path.name: path.read_bytes() for path in (FORMATS_SO_FAR / "backbone").iterdir()}
    hints = b'{"crop_scale_min": 0.5, "classifier_lr_scale": 1.0}'
    for name in (*model, "shotfit.json"):
        beside = {other: content for other, content in model.items() if other != name}
        seeds = [model.get(name, hints)]
        yield f"model {name}", Reader(_load_model, name, seeds, beside, share=0.02)


def _archives() -> Iterator[tuple[str, Reader]]:
    from shotfit.backbone.convert.tensor_files import read_source

    checkpoint = (FORMATS_SO_FAR / "checkpoint.safetensors").read_bytes()
    yield "checkpoint", Reader(read_checkpoint, "checkpoint.safetensors", [checkpoint])
    weights = (FORMATS_SO_FAR / "saved/model.safetensors").read_bytes()
    tensors = safetensors.numpy.save({"a": np.zeros((2, 3), np.float32), "b": np.ones(4, np.int64)})
    yield "tensors", Reader(_load_tensors, "model.safetensors", [weights, tensors])
    archive = (FORMATS_SO_FAR / "scripted.pt").read_bytes()
    yield "TorchScript", Reader(read_source, "model.pt", [archive])
    yield "tensors without torch", Reader(read_tensors, "classes.safetensors", [tensors])
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
        values = parse_json(path.read_text(encoding="utf-8"))
    except ValueError:
        raise DataError("no JSON") from None
    return from_dict(Experiment, values) if isinstance(values, dict) else None


def _load_saved(path: Path) -> object:
    """As `info` and `predict` do; what the config says of the file's hash is made to fit."""
    from shotfit.apps.commands.info import info
    from shotfit.classifier import FewShotClassifier

    if path.name in (WEIGHTS, SHOTS, "classes.safetensors"):
        _name_hash(path)
    with contextlib.redirect_stdout(io.StringIO()):
        info(path.parent)
    backbone = str(FORMATS_SO_FAR / "backbone")
    return FewShotClassifier.from_pretrained(path.parent, backbone=backbone).predict(PICTURE)


def _load_provenance(path: Path) -> object:
    """What every command that opens a classifier does with its record, without the classifier."""
    return saving.is_unfinished(saving.read_provenance(path.parent))


def _name_hash(path: Path) -> None:
    config = path.parent / CONFIG
    settings = json.loads(config.read_bytes())
    if path.name in settings["files"]:
        settings["files"][path.name] = sha256(path)
    else:
        settings["classes"] = sha256(path)
    config.write_bytes(_sign_config(json.dumps(settings).encode()))


def _sign_config(content: bytes) -> bytes:
    try:
        values = json.loads(content)
        values["checksum"] = checksum(values)
        return json.dumps(values).encode()
    except (ValueError, TypeError, AttributeError, RecursionError):
        return content


def _load_model(path: Path) -> object:
    return Backbone.from_pretrained(str(path.parent))


def _load_templates(path: Path) -> object:
    return chosen_words((), str(path), None)


def _load_descriptions(path: Path) -> object:
    return chosen_words(("a {}",), None, str(path))


def _load_fit_options(path: Path) -> object:
    return merged(path, FitOptions(data="digits")).experiment("cpu")


def _go_on(path: Path) -> object:
    """What `predict` does with the rows of an interrupted one. It ends with the file, so that the
    rest is put back."""
    out = path.with_name("out.jsonl")
    partial = out.with_name(f"{out.name}.partial")
    files = (partial, partial.with_name(f"{partial.name}.json"))
    kept = {file: file.read_bytes() for file in files}
    images = [str(path.with_name(f"{name}.png")) for name in "abc"]
    try:
        with PredictionFile(out, QUESTION) as file:
            file.keep_unchanged(iter(images), 1)
            file.write({"image": name, "answers": []} for name in images[file.rows :])
            file.finish()
    finally:
        for place, content in kept.items():
            place.write_bytes(content)
    return [json.loads(line) for line in out.read_text().split("\n") if line]


def _shapes() -> Dataset:
    examples = tuple(Example(f"{name}.png", label, Path(f"{name}.png"))
                     for label, name in enumerate(("cat", "dog")))  # fmt: skip
    return Dataset("shapes", ("cat", "dog"), examples)


def _our_list(dataset: Dataset) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return write_fewshot(dataset, folder, 1, 1, (dataset.train, ()))[0].read_bytes()


def _published_list(dataset: Dataset) -> bytes:
    rows = ({"_impath": one.key, "_label": one.label, "_classname": dataset.classnames[one.label]}
            for one in dataset.train)  # fmt: skip
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def _sign_list(content: bytes) -> bytes:
    head, end, body = content.partition(b"\n")
    return re.sub(rb'("sha256": )"[^"]*"', rb'\1"%s"' % _digest(body), head) + end + body


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def _load_list(path: Path) -> object:
    return read_fewshot(_shapes(), path.parent, 1, 1)


def _load_tensors(path: Path) -> object:
    return saving._read_tensors(path.parent, path.name)


def _load_export(path: Path) -> object:
    return Manifest.read(path.parent)
