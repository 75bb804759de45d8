"""A fitted classifier as a folder, and back: safetensors, JSON and a model card, no pickles."""

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError

from shotfit import __version__
from shotfit.backbone import EMBEDDED, Backbone
from shotfit.backbone.fingerprint import check_finite, fingerprint, position_fingerprint
from shotfit.backbone.reference import Reference
from shotfit.card import EXAMPLE, EXAMPLE_PIXELS, hub_config, model_card
from shotfit.classes import ClassList
from shotfit.config import from_dict, to_dict
from shotfit.data.images import ImageSource
from shotfit.data.thumbnails import small_picture
from shotfit.errors import DataError, UsageError
from shotfit.experiment import Experiment, pick_device
from shotfit.methods import get_method
from shotfit.methods.base import Method
from shotfit.methods.linear import LinearClassifier
from shotfit.probe import probe_facts, probe_scores
from shotfit.records import Record, record_text
from shotfit.saved_settings import (
    CONFIG,
    FORMAT,
    SHOTS,
    WEIGHTS,
    checksum,
    is_saved,
    read_settings,
    sha256,
    words_of,
)
from shotfit.sharing import OPTIONS, RECORD, shared_experiment, shared_provenance
from shotfit.system.folders import (
    check_writable,
    folder_written_whole,
    is_empty,
    is_fixed,
    keep_other_files,
    readable_as_its_folder,
    recover,
)
from shotfit.system.model_hub import Pull, Push, download, upload
from shotfit.system.parsing import parse_json
from shotfit.system.paths import file_inside

CARD = "README.md"
# The embeddings of the classes: what the rest of the folder gives anyway, and only saves the text
# tower. They count while their hash is the one in the config, which names all they depend on.
CLASSES = "classes.safetensors"
# What an evaluation of these very classes found; a folder whose classes change loses it.
EVALUATION, PREDICTIONS = "evaluation.json", "predictions.jsonl"
OWN_FILES = (CONFIG, WEIGHTS, CARD, CLASSES, SHOTS, RECORD, OPTIONS, EVALUATION, PREDICTIONS)


@dataclass(frozen=True)
class Fitted:
    """What is kept of a fitted classifier.

    `embeds` are the tensors of all names' embeddings, by their names in `ClassEmbeddings`; None
    where the text tower has to compute them. `provenance` has the files, `RECORD` and `OPTIONS`, by
    which it was made, as far as there are any. `shots` has what is kept of images: hashes of those
    that trained it, and of what `saved_assessment` and `KnownClasses` make of images. `assessment`
    has the numbers of the first.
    """

    experiment: Experiment
    method: Method
    classes: ClassList
    metrics: dict[str, float]
    embeds: dict[str, torch.Tensor] | None
    provenance: dict[str, bytes] = field(default_factory=dict)
    shots: dict[str, torch.Tensor] = field(default_factory=dict)
    assessment: dict[str, Any] | None = None


def save(fitted: Fitted, folder: Path, *, shared: bool = False) -> Path:
    """Writes `folder`; see `FewShotClassifier.save_pretrained`."""
    folder = folder.expanduser()
    check_target(folder)
    try:
        with folder_written_whole(folder) as made:
            _write(fitted, made, None if shared else _reference(fitted, folder))
            keep_other_files(folder, made, OWN_FILES)
    except OSError as error:
        raise DataError(f"Cannot write {folder}: {error}") from error
    return folder


def provenance_of(record: Record) -> dict[str, bytes]:
    """What is kept of a record, by its file's name."""
    return {RECORD: f"{record_text(record)}\n".encode()}


def check_target(folder: Path, *, overwrite: bool = True) -> None:
    """Refuses to save where something else is, or nothing can be; worth asking before a long fit.

    Raises:
        DataError: when `folder` is a file, a folder that holds something else than a saved
            classifier, or a finished one and not `overwrite`; or when it cannot be written.
    """
    folder = folder.expanduser()
    try:
        recover(folder)
        there = folder.exists() and not (folder.is_dir() and is_empty(folder))
        if there and (not folder.is_dir() or not is_saved(folder)):
            raise DataError(f"{folder} exists and is not a saved classifier; it is left as it is.")
        if there and not overwrite and not is_unfinished(read_provenance(folder)):
            raise DataError(f"{folder} holds a classifier already: --overwrite replaces it.")
        if there and is_fixed(folder):
            raise DataError(
                f"{folder} holds a classifier and cannot be exchanged for another (a mount, or in "
                "a folder that you may not change): save in a new folder, in it for instance."
            )
        check_writable(folder)
    except OSError as error:
        raise DataError(f"Cannot write {folder}: {error}") from error


def load(
    name: str, *, device: str | None, pull: Pull | None = None, backbone_name: str | None = None
) -> Fitted:
    """Reads a saved folder; see `FewShotClassifier.from_pretrained`."""
    folder = find(name, pull)
    settings = read_settings(folder)
    state = _read_tensors(folder, WEIGHTS)
    experiment = _experiment(folder, settings)
    model = _resolve(folder, settings, backbone_name)
    try:
        backbone = Backbone.from_pretrained(
            model, experiment.revision if model == experiment.backbone else None
        )
    except DataError as error:
        raise DataError(f"{folder} was fitted with a model that is needed: {error}") from error
    if position_fingerprint(backbone) != settings["backbone_fingerprint"]:
        raise _other_model(model, folder)
    backbone = backbone.to(pick_device(device))
    method: Method | None = None
    for stage in settings["stages"]:
        method_class = get_method(stage["method"])
        config = from_dict(method_class.Config, stage["config"])
        if method is None:
            method = method_class(backbone, config, words_of(settings))
        else:
            method = LinearClassifier(method, config)
    assert method is not None
    try:
        method.restore(state, settings["trained_names"])
    except (KeyError, ValueError) as error:
        raise DataError(f"The tensors in {folder} do not fit its config: {error}") from error
    # Classifiers that were saved before it was known have the position embeddings' alone.
    if settings.get("frozen_fingerprint") not in (None, fingerprint(_untrained(method))):
        raise _other_model(model, folder)
    return Fitted(
        experiment=experiment,
        method=method.to(backbone.device),
        classes=ClassList.saved(settings),
        metrics=settings["metrics"],
        embeds=_read_classes(folder, settings.get("classes")),
        provenance=read_provenance(folder),
        shots=_read_tensors(folder, SHOTS) if SHOTS in settings["files"] else {},
        assessment=settings.get("assessment"),
    )


def pretrained_model(name: str) -> str:
    """The pretrained model that a saved classifier refers to: a folder, or a name.

    Raises:
        OutsideModelError: when it is only for the user to say that this one is to be used.
        DataError: for a folder that is not a saved classifier.
    """
    folder = find(name)
    return _resolve(folder, read_settings(folder), None)


def _experiment(folder: Path, settings: dict[str, Any]) -> Experiment:
    try:
        return from_dict(Experiment, settings["experiment"])
    except UsageError as error:
        raise DataError(f"{folder / CONFIG} has options that cannot be: {error}") from error


def _resolve(folder: Path, settings: dict[str, Any], given: str | None) -> str:
    experiment = _experiment(folder, settings)
    reference = Reference(experiment.backbone, experiment.revision, settings.get("backbone_folder"))
    return reference.resolve(folder, settings.get("signature"), given)


def _other_model(model: str, folder: Path) -> DataError:
    return DataError(
        f"The model {model!r} found here is not the one that {folder} was fitted "
        "with: its weights differ."
    )


def _untrained(method: Method) -> dict[str, torch.Tensor]:
    """What a method took from its pretrained model as it was."""
    learned = set(method.learned_names())
    return {name: value for name, value in method.state_dict().items() if name not in learned}


def find(name: str, pull: Pull | None = None) -> Path:
    """The folder of a saved classifier; downloaded when `name` is not a local folder.

    Raises:
        DataError: when there is no such folder and no such repository.
    """
    folder = Path(name).expanduser()
    with contextlib.suppress(OSError):
        recover(folder)
    return folder if folder.is_dir() else download(name, pull or Pull(), OWN_FILES)


@dataclass(frozen=True)
class Example:
    """An image that goes along with a classifier, and the names that it answers with, likeliest
    first, with their probabilities."""

    image: ImageSource
    answers: dict[str, float]


def push(fitted: Fitted, repo_id: str, wanted: Push, example: Example | None = None) -> str:
    """Uploads a saved folder; see `FewShotClassifier.push_to_hub`."""

    def write(folder: Path) -> None:
        _write(fitted, folder, None, example=example)

    return upload(write, repo_id, wanted, hub_config(fitted.experiment, fitted.classes.names))


def _reference(fitted: Fitted, folder: Path) -> Reference:
    """The model, and where it lies as seen from `folder`, so that both can be used from anywhere
    and moved together; that is None when it is embedded or comes from the hub."""
    experiment, name = fitted.experiment, fitted.method.backbone.name
    model, beside = Path(name).expanduser(), None
    if name not in EMBEDDED and model.is_dir():
        with contextlib.suppress(ValueError):  # on another drive
            beside = Path(os.path.relpath(model.resolve(), folder.resolve())).as_posix()
    return Reference(experiment.backbone, experiment.revision, beside)


def _write(
    fitted: Fitted,
    folder: Path,
    reference: Reference | None,
    *,
    example: Example | None = None,
) -> None:
    """Writes a classifier that finds its model by `reference`; without one, for others, who are
    told names and no places."""
    method, own = fitted.method, reference is not None
    experiment = shared_experiment(fitted.experiment, keep_model=own)
    learned = method.learned_state()
    check_finite(learned)
    files = {WEIGHTS: _write_tensors(learned, folder / WEIGHTS)}
    if fitted.shots:
        files[SHOTS] = _write_tensors(fitted.shots, folder / SHOTS)
    classes, device = None, method.backbone.device.type
    if fitted.embeds is not None:
        tensors = {name: v.detach().cpu().contiguous() for name, v in fitted.embeds.items()}
        classes = _write_tensors(tensors, folder / CLASSES)
    settings = {
        "format": FORMAT,
        "shotfit": __version__,
        "backbone_fingerprint": position_fingerprint(method.backbone),
        "frozen_fingerprint": fingerprint(_untrained(method)),
        "backbone_folder": reference.beside if reference else None,
        "signature": reference.signed() if reference else None,
        "stages": [
            {"method": type(stage).__module__.rsplit(".", 1)[1], "config": to_dict(stage.config)}
            for stage in _stages(method)
        ],
        "experiment": to_dict(experiment),
        "trained_names": list(method.trained_names),
        "added_names": list(fitted.classes.added),
        "added_images": list(fitted.classes.images),
        "kept": list(fitted.classes.active),
        "template": method.template,
        "words": method.words.plain() if method.words.several else None,
        "metrics": fitted.metrics,
        "assessment": fitted.assessment,
        "files": files,
        "classes": classes,
        "probe": probe_facts(
            probe_scores(method, fitted.classes.everything, fitted.embeds), device
        ),
    }
    settings["checksum"] = checksum(settings)
    text = json.dumps(settings, indent=2, ensure_ascii=False) + "\n"
    (folder / CONFIG).write_text(text, encoding="utf-8")
    card = model_card(
        fitted.experiment,
        fitted.classes.names,
        fitted.metrics,
        unfinished=is_unfinished(fitted.provenance),
        example=None if example is None else example.answers,
    )
    if example is not None:
        small_picture(example.image, EXAMPLE_PIXELS).save(folder / EXAMPLE)
    (folder / CARD).write_text(card, encoding="utf-8")
    for name, content in shared_provenance(fitted.provenance, keep_options=own).items():
        (folder / name).write_bytes(content)


def _write_tensors(tensors: dict[str, torch.Tensor], path: Path) -> str:
    """Writes a file of tensors and gives its hash."""
    safetensors.torch.save_file(tensors, path)
    readable_as_its_folder(path)
    return sha256(path)


def read_provenance(folder: Path) -> dict[str, bytes]:
    """The record and the options that lie in a saved folder, as they are."""
    there = [name for name in (RECORD, OPTIONS) if (folder / name).exists()]
    return {name: file_inside(folder, name).read_bytes() for name in there}


def is_unfinished(provenance: Mapping[str, bytes]) -> bool:
    """Whether the record among these files is that of an interrupted fit."""
    with contextlib.suppress(ValueError, AttributeError):
        return parse_json(provenance.get(RECORD, b"{}")).get("status") == "interrupted"
    return False


def _stages(method: Method) -> list[Method]:
    return [method.inner, method] if isinstance(method, LinearClassifier) else [method]


def _read_classes(folder: Path, expected: str | None) -> dict[str, torch.Tensor] | None:
    """The saved embeddings; None when they are missing or not those that the config names."""
    try:
        if expected is None or sha256(file_inside(folder, CLASSES)) != expected:
            return None
    except FileNotFoundError:
        return None
    tensors = _read_tensors(folder, CLASSES)
    # Folders saved before this name was chosen say "views".
    return {"per_prompt" if name == "views" else name: x for name, x in tensors.items()}


def _read_tensors(folder: Path, name: str) -> dict[str, torch.Tensor]:
    try:
        tensors = safetensors.torch.load_file(file_inside(folder, name))
    except (OSError, SafetensorError) as error:
        raise DataError(f"{folder / name} cannot be read: {error}") from error
    check_finite(tensors)
    return tensors
