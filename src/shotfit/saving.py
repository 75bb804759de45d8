"""A fitted classifier as a folder, and back: safetensors, JSON and a model card, no pickles."""

import contextlib
import hashlib
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError

from shotfit import __version__
from shotfit.backbone import EMBEDDED, Backbone
from shotfit.config import from_dict, to_dict
from shotfit.errors import DataError
from shotfit.experiment import Experiment, pick_device
from shotfit.methods import get_method
from shotfit.methods.base import Method
from shotfit.methods.linear import LinearClassifier
from shotfit.system.files import folder_written_whole

FORMAT = 1
CONFIG, WEIGHTS, CARD = "shotfit.json", "model.safetensors", "README.md"
# The embeddings of the classes: what the rest of the folder gives anyway, and only saves the text
# tower. They count while their hash is the one in the config, which names all they depend on.
CLASSES = "classes.safetensors"


@dataclass(frozen=True)
class Fitted:
    """What is kept of a fitted classifier.

    `added` are names without images, behind the trained ones; `active` are the places, among all of
    these, of the names it answers with. `embeds` are the tensors of all names' embeddings, by
    their names in `ClassEmbeddings`; None where the text tower has to compute them.
    """

    experiment: Experiment
    method: Method
    added: list[str]
    active: list[int]
    metrics: dict[str, float]
    embeds: dict[str, torch.Tensor] | None

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that was trained or added."""
        return (*self.method.trained_names, *self.added)


def save(fitted: Fitted, folder: Path) -> Path:
    """Writes `folder`; see `FewShotClassifier.save_pretrained`."""
    folder = folder.expanduser()
    check_target(folder)
    try:
        with folder_written_whole(folder) as made:
            _write(fitted, made, _model_folder(fitted.method.backbone, folder))
    except OSError as error:
        raise DataError(f"Cannot write {folder}: {error}") from error
    return folder


def check_target(folder: Path) -> None:
    """Refuses to save where something else is; worth asking before a long fit.

    Raises:
        DataError: when `folder` is a file, or a folder that holds no saved classifier.
    """
    if folder.exists() and (not folder.is_dir() or _foreign(folder)):
        raise DataError(f"{folder} exists and is not a saved classifier; it is left as it is.")


def load(name: str, *, device: str | None, revision: str | None) -> Fitted:
    """Reads a saved folder; see `FewShotClassifier.from_pretrained`."""
    folder = find(name, revision)
    settings = read_settings(folder)
    state = _read_weights(folder)
    experiment = from_dict(Experiment, settings["experiment"])
    model, beside = experiment.backbone, settings.get("backbone_folder")
    if beside is not None and (folder / beside).is_dir():
        model = str(folder / beside)
    try:
        backbone = Backbone.from_pretrained(model, experiment.revision)
    except DataError as error:
        raise DataError(f"{folder} was fitted with a model that is needed: {error}") from error
    if fingerprint(backbone) != settings["backbone_fingerprint"]:
        raise DataError(
            f"The model {model!r} found here is not the one that {folder} was fitted "
            "with: its weights differ."
        )
    backbone = backbone.to(pick_device(device))
    method: Method | None = None
    for stage in settings["stages"]:
        method_class = get_method(stage["method"])
        config = from_dict(method_class.Config, stage["config"])
        if method is None:
            method = method_class(backbone, config, settings["template"])
        else:
            method = LinearClassifier(method, config)
    assert method is not None
    try:
        method.restore(state, settings["trained_names"])
    except (KeyError, ValueError) as error:
        raise DataError(f"The tensors in {folder} do not fit its config: {error}") from error
    return Fitted(
        experiment=experiment,
        method=method.to(backbone.device),
        added=settings["added_names"],
        active=settings["kept"],
        metrics=settings["metrics"],
        embeds=_read_classes(folder, settings.get("classes")),
    )


def find(name: str, revision: str | None = None) -> Path:
    """The folder of a saved classifier, downloaded when `name` is none.

    Raises:
        DataError: when there is no such folder and no such repository.
    """
    folder = Path(name).expanduser()
    return folder if folder.is_dir() else _download(name, revision)


def read_settings(folder: Path) -> dict[str, Any]:
    """The config of a saved classifier, after every file has been checked against its hash.

    Raises:
        DataError: naming the file that is missing, altered, or of a format not known here.
    """
    path = folder / CONFIG
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{folder} is not a saved classifier: it has no {CONFIG}.") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    if not isinstance(settings, dict) or settings.get("format") != FORMAT:
        found = settings.get("format") if isinstance(settings, dict) else None
        raise DataError(f"{path} has format {found!r}; this version reads format {FORMAT}.")
    if settings.get("checksum") != _checksum(settings):
        raise DataError(f"{path} has been altered since it was saved.")
    for name, expected in settings["files"].items():
        file = folder / name
        if not file.is_file():
            raise DataError(f"{file} is missing.")
        if _sha256(file) != expected:
            raise DataError(f"{file} has been altered since it was saved.")
    return settings


def push(fitted: Fitted, repository: str, *, private: bool) -> str:
    """Uploads a saved folder; see `FewShotClassifier.push_to_hub`."""
    import huggingface_hub

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        _write(fitted, folder, None)
        api = huggingface_hub.HfApi()
        url = api.create_repo(repository, private=private, exist_ok=True)
        api.upload_folder(repo_id=repository, folder_path=folder)
    return str(url)


def fingerprint(backbone: Backbone) -> str:
    """Twelve hex digits that tell one pretrained model from another.

    The position embeddings are enough: small, in every family, and no method trains them.
    """
    digest = hashlib.sha256()
    for tower in (backbone.vision, backbone.text):
        values = tower.position_embedding.detach().cpu().to(torch.float32).contiguous()
        digest.update(values.numpy().tobytes())
    return digest.hexdigest()[:12]


def _model_folder(backbone: Backbone, folder: Path) -> str | None:
    """Where the model lies as seen from `folder`, so that both can be used from anywhere and moved
    together; None when it is embedded or comes from the hub."""
    model = Path(backbone.name).expanduser()
    if backbone.name in EMBEDDED or not model.is_dir():
        return None
    with contextlib.suppress(ValueError):  # on another drive
        return Path(os.path.relpath(model.resolve(), folder.resolve())).as_posix()
    return None


def _write(fitted: Fitted, folder: Path, model_folder: str | None) -> None:
    method = fitted.method
    safetensors.torch.save_file(method.learned_state(), folder / WEIGHTS)
    files = {WEIGHTS: _sha256(folder / WEIGHTS)}
    classes = None
    if fitted.embeds is not None:
        tensors = {name: v.detach().cpu().contiguous() for name, v in fitted.embeds.items()}
        safetensors.torch.save_file(tensors, folder / CLASSES)
        classes = _sha256(folder / CLASSES)
    settings = {
        "format": FORMAT,
        "shotfit": __version__,
        "backbone_fingerprint": fingerprint(method.backbone),
        "backbone_folder": model_folder,
        "stages": [
            {"method": type(stage).__module__.rsplit(".", 1)[1], "config": to_dict(stage.config)}
            for stage in _stages(method)
        ],
        "experiment": to_dict(fitted.experiment),
        "trained_names": list(method.trained_names),
        "added_names": fitted.added,
        "kept": fitted.active,
        "template": method.template,
        "metrics": fitted.metrics,
        "files": files,
        "classes": classes,
    }
    settings["checksum"] = _checksum(settings)
    text = json.dumps(settings, indent=2, ensure_ascii=False) + "\n"
    (folder / CONFIG).write_text(text, encoding="utf-8")
    (folder / CARD).write_text(_card(fitted), encoding="utf-8")


def _stages(method: Method) -> list[Method]:
    return [method.inner, method] if isinstance(method, LinearClassifier) else [method]


def _card(fitted: Fitted) -> str:
    experiment = fitted.experiment
    classes = [fitted.names[place] for place in fitted.active]
    stages = " then ".join(stage.method for stage in experiment.recipe.stages)
    metrics = "\n".join(f"| {key} | {value:.2f} |" for key, value in fitted.metrics.items())
    table = f"| metric | percent |\n|---|---|\n{metrics}\n" if metrics else "Not evaluated.\n"
    shots = "all images" if experiment.shots is None else f"{experiment.shots} images"
    shown = ", ".join(classes[:50])
    rest = len(classes) - 50
    more = f" and {rest} more" if rest > 0 else ""
    return f"""---
library_name: shotfit
base_model: {experiment.backbone}
tags: [image-classification, few-shot, clip]
---

# Few-shot image classifier

Fitted with ShotFit: {stages}, {shots} per class, on `{experiment.backbone}`.

```python
from shotfit import FewShotClassifier

classifier = FewShotClassifier.from_pretrained("path/to/this/folder")
classifier.predict("photo.jpg")
```

## Classes

{shown}{more}.

## Metrics

{table}"""


def _foreign(folder: Path) -> bool:
    return any(folder.iterdir()) and not (folder / CONFIG).is_file()


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _checksum(settings: dict[str, Any]) -> str:
    rest = {key: value for key, value in settings.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _read_classes(folder: Path, expected: str | None) -> dict[str, torch.Tensor] | None:
    """The saved embeddings; None when there are none, or others than the config knows."""
    path = folder / CLASSES
    if expected is None or not path.is_file() or _sha256(path) != expected:
        return None
    tensors = safetensors.torch.load_file(path)
    # Folders saved before this name was chosen say "views".
    return {"per_prompt" if name == "views" else name: x for name, x in tensors.items()}


def _read_weights(folder: Path) -> dict[str, torch.Tensor]:
    try:
        return safetensors.torch.load_file(folder / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise DataError(f"{folder / WEIGHTS} cannot be read: {error}") from error


def _download(name: str, revision: str | None) -> Path:
    import huggingface_hub
    from huggingface_hub.errors import HFValidationError

    try:
        return Path(
            huggingface_hub.snapshot_download(
                name, revision=revision, allow_patterns=[CONFIG, WEIGHTS, CLASSES, CARD]
            )
        )
    except HFValidationError:
        raise DataError(f"There is no saved classifier {name!r}.") from None
    except Exception as error:  # the hub client has many error types and no common base
        raise DataError(f"Cannot download the classifier {name!r}: {error}") from error
