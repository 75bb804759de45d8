"""Checkpoints: embedded in the package, in a local folder, or on the Hugging Face hub."""

import importlib
import importlib.util
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from shotfit.backbone.cached import cached_models
from shotfit.backbone.clip_modules import read_clip
from shotfit.backbone.families import get_family
from shotfit.config import from_dict
from shotfit.data.transforms import ImageSpec
from shotfit.errors import DataError, UsageError
from shotfit.system.parsing import parse_json
from shotfit.system.paths import mistyped_folder

EMBEDDED = {"iconclip": Path(__file__).parent.parent / "assets" / "iconclip"}
"""Models inside the package, by name."""
PATTERNS = ["*.json", "*.txt", "*.model", "*.safetensors"]
"""What is downloaded of a repository; pickled weights and code are not."""
MOST_LAYERS, LARGEST_NUMBER = 1000, 10**8
"""What a config may say of layers, and of anything else: vocabularies have less than a million."""


@dataclass(frozen=True)
class Hints:
    """What a checkpoint asks of training, in its `shotfit.json`; the published values otherwise."""

    crop_scale_min: float = 0.0
    """Training crops keep at least this share of an image's area, whatever the method allows."""
    classifier_lr_scale: float = 1.0
    """Factor on the second stage's learning rate."""


def find_checkpoint(name: str, revision: str | None) -> Path:
    """The local folder that holds the model, fetched from the hub where needed and possible."""
    folder = EMBEDDED.get(name, Path(name).expanduser())
    if folder.is_dir():
        if revision is not None:
            raise UsageError(f"A revision is of a hub id; {name!r} is here already.")
        if not (folder / "config.json").is_file():
            raise DataError(f"The folder {folder} holds no config.json, so no model.")
        return folder
    cached = cached_checkpoint(name, revision)
    if cached is not None:
        return cached
    mistyped = mistyped_folder(name)
    if mistyped is not None:
        raise DataError(
            f"There is no model {name!r}. {mistyped} Embedded: {', '.join(EMBEDDED)}; ids on "
            "the hub have the form user/name."
        )
    import huggingface_hub

    if os.environ.get("HF_HUB_OFFLINE") == "1" or not _hub_reachable():
        here = ", ".join([*EMBEDDED, *cached_models()])
        raise DataError(
            f"The model {name!r} is not in the local cache and the Hugging Face hub cannot be "
            f"reached. Here are: {here}. Give one of these or a local folder, or download it where "
            "there is a network (HF_HUB_OFFLINE=1 makes ShotFit use the cache only)."
        )
    try:
        return Path(
            huggingface_hub.snapshot_download(name, revision=revision, allow_patterns=PATTERNS)
        )
    except Exception as error:  # the hub client has many error types and no common base
        raise DataError(f"Cannot download the model {name!r}: {error}") from error


def cached_checkpoint(name: str, revision: str | None) -> Path | None:
    """The folder of a model that was downloaded before; None when it was not.

    Raises:
        DataError: for a name that cannot be a hub id.
    """
    import huggingface_hub
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(
            huggingface_hub.snapshot_download(
                name, revision=revision, allow_patterns=PATTERNS, local_files_only=True
            )
        )
    except HFValidationError:
        mistyped = mistyped_folder(name) or ""
        raise DataError(
            f"There is no model {name!r}: no such folder, and no valid hub id. {mistyped} "
            f"Embedded models: {', '.join(EMBEDDED)}."
        ) from None
    except LocalEntryNotFoundError:
        return None


def read_checkpoint(name: str, folder: Path) -> tuple[Any, Any]:
    """The modules, as transformers names them, and the tokenizer in a folder; only safetensors
    weights are read.

    Raises:
        UsageError: for a model type that there are no towers for.
        DataError: when a file is missing or cannot be read, or asks for code of its own, or when a
            tensor is missing, has another shape or is not finite; the message says what to do.
    """
    _check_weights(name, folder)
    _check_no_code(name, folder)
    model = read_clip(folder)
    if model is not None and (folder / "tokenizer.json").is_file():
        _check_tokenizer(folder)
        return model, LaterTokenizer(name, folder)
    return read_transformers(name, folder)


def read_transformers(name: str, folder: Path) -> tuple[Any, Any]:
    """The model and the tokenizer in a folder as objects of transformers, for who wants to save
    them; errors as `read_checkpoint`."""
    return _read_model(name, folder), _read_tokenizer(name, folder)


class LaterTokenizer:
    """A folder's tokenizer, which is read when the first text is tokenized: images need none, and
    the embeddings of class names are saved with a classifier."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder

    def __call__(self, texts: list[str]) -> Any:
        """The token ids of texts, as transformers' tokenizers give them.

        Raises:
            DataError: when it cannot be read.
        """
        return self._read(texts)

    @property
    def backend_tokenizer(self) -> Any:
        """The tokenizer of the tokenizers library, as transformers' own have it."""
        return self._read.backend_tokenizer

    @cached_property
    def _read(self) -> Any:
        return _read_tokenizer(self.name, self.folder)


def _read_model(name: str, folder: Path) -> Any:
    from transformers import AutoConfig, AutoModel

    _check_sizes(name, folder)
    with _readable(name, folder), _quiet():
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        get_family(config.model_type)
        model, loaded = AutoModel.from_pretrained(
            folder,
            dtype=torch.float32,
            use_safetensors=True,
            attn_implementation="sdpa",
            trust_remote_code=False,
            output_loading_info=True,
        )
    _check_tensors(name, model, loaded)
    return model.eval()


def _read_tokenizer(name: str, folder: Path) -> Any:
    from transformers import AutoTokenizer

    with _readable(name, folder), _quiet():
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    _check_tokenizer(folder, words=len(tokenizer))
    return tokenizer


def _check_tokenizer(folder: Path, words: int | None = None) -> None:
    if not (folder / "tokenizer_config.json").is_file() or (words is not None and words < 10):
        raise DataError(f"The model folder {folder} has no usable tokenizer files.")


@contextmanager
def _readable(name: str, folder: Path) -> Iterator[None]:
    try:
        yield
    except UsageError:
        raise
    except (
        Exception
    ) as error:  # transformers fails in many ways, its configs with types of their own
        message = f"Cannot load the model {name!r} from {folder}: {error}"
        if _lacks_sentencepiece(folder):
            message = (
                f"The tokenizer of {name!r} needs sentencepiece, which is not installed: "
                "pip install 'shotfit[siglip]'."
            )
        raise DataError(message + _broken_torchvision()) from error


def _broken_torchvision() -> str:
    """What transformers does not say: it loads torchvision wherever that is installed, and one that
    was made for another version of torch cannot be."""
    if importlib.util.find_spec("torchvision") is None:
        return ""
    try:
        importlib.import_module("torchvision")
    except Exception as error:
        return (
            f" torchvision is installed and cannot be imported ({error}): install the one that was "
            f"made for torch {torch.__version__}, or pip uninstall torchvision."
        )
    return ""


def read_image_spec(folder: Path) -> ImageSpec:
    """How a folder's preprocessor config says that images are prepared.

    Raises:
        DataError: when there is none, or it cannot be read or followed.
    """
    path = folder / "preprocessor_config.json"
    if not path.is_file():
        raise DataError(f"The model folder {folder} has no preprocessor_config.json.")
    try:
        spec = _image_spec(parse_json(path.read_text(encoding="utf-8")))
        spec.check()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise DataError(f"{path} does not say how images are prepared: {error!r}.") from error
    return spec


def _image_spec(facts: dict[str, Any]) -> ImageSpec:
    size = facts.get("size", 224)
    edges = size if isinstance(size, dict) else {"shortest_edge": size}
    square = "height" in edges
    resize = edges["height"] if square else edges["shortest_edge"]
    crop = facts.get("crop_size", resize)
    side = crop["height"] if isinstance(crop, dict) else crop
    default = ImageSpec()
    return ImageSpec(
        size=side if facts.get("do_center_crop", not square) else resize,
        resize=resize,
        square=square,
        resample=facts.get("resample", default.resample),
        scale=facts.get("rescale_factor", default.scale),
        mean=tuple(facts.get("image_mean", default.mean)),
        std=tuple(facts.get("image_std", default.std)),
    )


def read_hints(folder: Path) -> Hints:
    path = folder / "shotfit.json"
    if not path.is_file():
        return Hints()
    try:
        return from_dict(Hints, parse_json(path.read_text(encoding="utf-8")))
    except ValueError as error:
        raise DataError(f"{path} cannot be used: {error}") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Without transformers' progress bars and notes: what is wrong is raised, not printed."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _check_weights(name: str, folder: Path) -> None:
    if any(folder.glob("*.safetensors")):
        return
    # Of a hub repository, pickles are not even downloaded.
    pickled = sorted([*folder.glob("*.bin"), *folder.glob("*.pt")])
    found = (
        f" but pickled ones ({pickled[0].name}), which can run code when read" if pickled else ""
    )
    raise DataError(
        f"The model {name!r} has no safetensors weights in {folder}{found}. `shotfit convert` "
        "turns OpenAI and open_clip weights into a folder with them; weights of transformers that "
        "you trust can be loaded and saved again there (save_pretrained)."
    )


def _check_no_code(name: str, folder: Path) -> None:
    """A config may name Python files that transformers would run; nothing of a checkpoint runs."""
    for file in sorted(folder.glob("*.json")):
        try:
            facts = parse_json(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue  # the reader of that file says what is wrong with it
        if isinstance(facts, dict) and facts.get("auto_map"):
            raise DataError(
                f"The model {name!r} brings code of its own (auto_map in {file.name}), which is "
                "never run. A CLIP or SigLIP of transformers needs none."
            )


def _check_sizes(name: str, folder: Path) -> None:
    """Refuses a config of a model that no file holds: transformers would begin to build it."""
    try:
        facts = parse_json((folder / "config.json").read_text(encoding="utf-8"))
        parts = [facts, facts.get("text_config"), facts.get("vision_config")]
        entries = [entry for part in parts if isinstance(part, dict) for entry in part.items()]
    except (OSError, ValueError, AttributeError):
        return  # transformers says what is wrong with it
    for key, value in entries:
        most = MOST_LAYERS if key == "num_hidden_layers" else LARGEST_NUMBER
        if isinstance(value, int | float) and abs(value) > most:
            raise DataError(f"The model {name!r} has {key} = {value} in its config.json.")


def _check_tensors(name: str, model: Any, loaded: dict[str, Any]) -> None:
    """Refuses a model that transformers completed with random numbers, or that has no values."""
    missing = sorted(loaded["missing_keys"])
    # Where a model says nothing, transformers knows the places by their order.
    missing = [tensor for tensor in missing if not tensor.endswith("position_ids")]
    if missing:
        raise DataError(f"The weights of {name!r} lack {_some(missing)}.")
    if loaded["mismatched_keys"]:
        other = sorted(str(entry[0]) for entry in loaded["mismatched_keys"])
        raise DataError(
            f"The weights of {name!r} have another shape than its config: {_some(other)}."
        )
    broken = [
        tensor
        for tensor, value in model.named_parameters()
        if not torch.isfinite(value.sum()) and not torch.isfinite(value).all()
    ]
    if broken:
        raise DataError(f"The weights of {name!r} are not finite in {_some(broken)}.")


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _lacks_sentencepiece(folder: Path) -> bool:
    """The first SigLIP's tokenizer, which only that package reads."""
    wanted = any(folder.glob("spiece.model")) and not (folder / "tokenizer.json").is_file()
    return wanted and importlib.util.find_spec("sentencepiece") is None


def _hub_reachable() -> bool:
    """Whether the hub answers within a second; its client would retry for most of a minute."""
    # The standard library, since the client's own HTTP package differs between its versions.
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    from huggingface_hub import constants

    try:
        urlopen(Request(constants.ENDPOINT, method="HEAD"), timeout=1.0).close()
    except HTTPError:
        return True  # an answer, if not a welcome
    except OSError:
        return False
    return True
