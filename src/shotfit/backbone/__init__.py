"""Backbone: one pretrained dual encoder as two towers, frozen, whatever family it is of.

A family is one module of `families/`. Methods see only what is here and in `tower.py`.
"""

import importlib
import importlib.util
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from shotfit.backbone.activation import recomputed
from shotfit.backbone.chunks import part_of_pass
from shotfit.backbone.tower import Block, DeepPrompts, Tower
from shotfit.config import from_dict
from shotfit.data.images import ImageSpec
from shotfit.errors import DataError, UsageError

EMBEDDED = {"iconclip": Path(__file__).parent.parent / "assets" / "iconclip"}
"""Models inside the package, by name."""
# What the text tower may keep of its prompts for the gradient; beyond it, prompts are computed
# again in the backward pass, so that memory does not grow with the number of classes.
TEXT_BYTES = 1 << 30

__all__ = ["EMBEDDED", "Backbone", "Block", "DeepPrompts", "Tower"]


@dataclass(frozen=True)
class Hints:
    """What a checkpoint asks of training, in its `shotfit.json`; the published values otherwise."""

    crop_scale_min: float = 0.0
    """Training crops keep at least this share of an image's area, whatever the method allows."""
    classifier_lr_scale: float = 1.0
    """Factor on the second stage's learning rate."""


class Backbone(nn.Module):
    """A dual encoder that starts frozen: two towers, a tokenizer and a logit scale.

    Methods change the towers in place, so that a backbone belongs to one method and is never
    shared between two.
    """

    def __init__(
        self,
        family: str,
        towers: tuple[Tower, Tower],
        tokenizer: Any,
        *,
        logit_scale: Tensor,
        logit_bias: Tensor | None = None,
        image_spec: ImageSpec,
        name: str = "",
        revision: str = "",
    ) -> None:
        super().__init__()
        self.family = family
        # Families share no class above Tower; what they have in common is what is used here.
        self.vision: Any
        self.text: Any
        self.vision, self.text = towers
        self.tokenizer = tokenizer
        # SigLIP stores one-element vectors; a scalar broadcasts over scores of any shape.
        self.logit_scale = nn.Parameter(logit_scale.detach().clone().reshape(()))
        bias = torch.zeros(()) if logit_bias is None else logit_bias.detach().clone().reshape(())
        self.logit_bias = nn.Parameter(bias)
        self.image_spec = image_spec
        self.hints = Hints()
        self.name = name
        self.revision = revision
        self._prepared: dict[tuple[tuple[str, ...], int], Any] = {}
        self.requires_grad_(False)

    @property
    def dim(self) -> int:
        """The dimension of the joint embedding space."""
        return self.text.projection.out_features

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.logit_scale.device

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, the family's start and end included, without padding."""
        return _family(self.family).tokenize(self.tokenizer, texts)

    def encode_image(
        self, pixels: Tensor, context: Tensor | None = None, deep: DeepPrompts | None = None
    ) -> Tensor:
        """Image embeddings, not normalised: (batch, 3, size, size) to (batch, dim)."""
        return self.vision(pixels, context, deep)

    def encode_image_and_prompts(self, pixels: Tensor, deep: DeepPrompts) -> tuple[Tensor, Tensor]:
        """`encode_image` with inserted prompts, and the last states of the prompts themselves
        behind the tower's last norm, (batch, n, width)."""
        return self.vision.with_prompts(pixels, deep)

    def encode_text(
        self, texts: Sequence[str], context: Tensor | None = None, deep: DeepPrompts | None = None
    ) -> Tensor:
        """Text embeddings, not normalised, (texts, dim); (groups, texts, dim) per context group.

        Equal texts are embedded once. A `context` takes the places of the first tokens of each
        text, which must be there as placeholders.

        Raises:
            DataError: when a text is longer than the tower reads, or the tokenizer gives it a
                token that the tower does not know.
        """
        unique = tuple(dict.fromkeys(texts))
        if not unique:
            groups = () if context is None else context.shape[:-2]
            return torch.zeros(*groups, 0, self.dim, device=self.device)
        groups = len(context) if context is not None and context.dim() == 3 else 1
        left = TEXT_BYTES // (groups * self.text.token_bytes)
        if deep is not None and len(unique) < len(texts):
            deep = deep.of([texts.index(text) for text in unique])
        parts = []
        start = 0
        for number, prompts in enumerate(self._prompts(unique, groups)):
            left -= prompts.ids.numel()
            encode = partial(self._encode_part, number)
            own = None if deep is None else deep.of(slice(start, start + len(prompts)))
            start += len(prompts)
            if left >= 0 or number == 0:
                parts.append(encode(prompts, context, own))
            else:
                parts.append(recomputed(encode, prompts, context, own))
        embeds = parts[0] if len(parts) == 1 else torch.cat(parts, dim=-2)
        if len(unique) == len(texts):
            return embeds
        position = {text: index for index, text in enumerate(unique)}
        rows = torch.tensor([position[text] for text in texts], device=self.device)
        return embeds.index_select(-2, rows)

    def _encode_part(self, number: int, *arguments: Any) -> Tensor:
        """The text tower on one chunk, the same when it is computed again."""
        with part_of_pass(number):
            return self.text(*arguments)

    def _prompts(self, unique: tuple[str, ...], groups: int) -> list[Any]:
        """The texts as the tower takes them, in chunks of which all groups together keep a quarter
        of `TEXT_BYTES`."""
        chunks = self._prepared.get((unique, groups))
        if chunks is None or chunks[0].ids.device != self.device:
            limit = TEXT_BYTES // (4 * groups * self.text.token_bytes)
            pending: list[list[list[int]]] = [[]]
            used = 0
            known = self.text.token_embedding.num_embeddings
            for text, tokens in zip(unique, self.tokenize(unique), strict=True):
                if max(tokens) >= known:
                    raise DataError(
                        f"The tokenizer of {self.name!r} is another model's: it gives {text!r} the "
                        f"token {max(tokens)}, and the model knows {known} tokens."
                    )
                used += len(tokens)
                if used > limit and pending[-1]:
                    pending.append([])
                    used = len(tokens)
                pending[-1].append(tokens)
            chunks = [self.text.prepare(tokens).to(self.device) for tokens in pending]
            # What texts become does not depend on weights, so it cannot go stale; a handful of
            # class lists is all that a run asks for.
            if len(self._prepared) >= 16:
                self._prepared.clear()
            self._prepared[unique, groups] = chunks
        return chunks

    @classmethod
    def from_pretrained(cls, name: str, revision: str | None = None) -> "Backbone":
        """The backbone called `name`: an embedded model, a local folder, or a hub id.

        Only safetensors weights are read.

        Raises:
            UsageError: for a model type that ShotFit has no towers for, and for a revision of
                something else than a hub id.
            DataError: when the model cannot be found or read; the message says what to do.
        """
        folder = _find(name, revision)
        from safetensors import SafetensorError
        from transformers import AutoConfig, AutoModel, AutoTokenizer

        _check_weights(name, folder)
        try:
            with _quiet():
                config = AutoConfig.from_pretrained(folder)
                family = _family(config.model_type)
                model = AutoModel.from_pretrained(
                    folder, dtype=torch.float32, use_safetensors=True, attn_implementation="sdpa"
                )
                tokenizer = AutoTokenizer.from_pretrained(folder)
        except UsageError:
            raise
        # ValueError covers broken JSON; transformers raises KeyError and ImportError for models
        # and tokenizers it does not know or lacks a package for.
        except (OSError, KeyError, ImportError, ValueError, RuntimeError, SafetensorError) as error:
            message = f"Cannot load the model {name!r} from {folder}: {error}"
            if _lacks_sentencepiece(folder):
                message = (
                    f"The tokenizer of {name!r} needs sentencepiece, which is not installed: "
                    "pip install 'shotfit[siglip]'."
                )
            raise DataError(message) from error
        if not (folder / "tokenizer_config.json").is_file() or len(tokenizer) < 10:
            raise DataError(f"The model folder {folder} has no usable tokenizer files.")
        backbone = cls.from_model(
            model, tokenizer, _image_spec(folder), name=name, revision=revision or "", family=family
        )
        backbone.hints = _hints(folder)
        return backbone

    @classmethod
    def from_model(
        cls,
        model: Any,
        tokenizer: Any,
        image_spec: ImageSpec,
        *,
        name: str = "",
        revision: str = "",
        family: Any = None,
    ) -> "Backbone":
        """A backbone that takes over the weights of a transformers model."""
        model_type = model.config.model_type
        return cls(
            model_type,
            (family or _family(model_type)).towers(model.eval(), tokenizer),
            tokenizer,
            logit_scale=model.logit_scale,
            logit_bias=getattr(model, "logit_bias", None),
            image_spec=image_spec,
            name=name,
            revision=revision,
        )


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


def _lacks_sentencepiece(folder: Path) -> bool:
    """The first SigLIP's tokenizer, which only that package reads."""
    wanted = any(folder.glob("spiece.model")) and not (folder / "tokenizer.json").is_file()
    return wanted and importlib.util.find_spec("sentencepiece") is None


def _family(model_type: str) -> Any:
    module = f"shotfit.backbone.families.{model_type}"
    if importlib.util.find_spec(module) is None:
        raise UsageError(
            f"Models of type {model_type!r} are not supported; "
            "a CLIP or fixed-resolution SigLIP dual encoder is needed."
        )
    return importlib.import_module(module)


def _find(name: str, revision: str | None) -> Path:
    """The local folder that holds the model, fetched from the hub where needed and possible."""
    folder = EMBEDDED.get(name, Path(name).expanduser())
    if folder.is_dir():
        if revision is not None:
            raise UsageError(f"A revision is of a hub id; {name!r} is here already.")
        if not (folder / "config.json").is_file():
            raise DataError(f"The folder {folder} holds no config.json, so no model.")
        return folder
    import huggingface_hub
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    patterns = ["*.json", "*.txt", "*.model", "*.safetensors"]
    try:
        return Path(
            huggingface_hub.snapshot_download(
                name, revision=revision, allow_patterns=patterns, local_files_only=True
            )
        )
    except HFValidationError:
        raise DataError(
            f"There is no model {name!r}: no such folder, and no valid hub id. "
            f"Embedded models: {', '.join(EMBEDDED)}."
        ) from None
    except LocalEntryNotFoundError:
        pass
    if os.environ.get("HF_HUB_OFFLINE") == "1" or not _hub_reachable():
        raise DataError(
            f"The model {name!r} is not in the local cache and the Hugging Face hub cannot be "
            "reached. Give a local folder, use the embedded model 'iconclip', or download it where "
            "there is a network (HF_HUB_OFFLINE=1 makes ShotFit use the cache only)."
        )
    try:
        return Path(
            huggingface_hub.snapshot_download(name, revision=revision, allow_patterns=patterns)
        )
    except Exception as error:  # the hub client has many error types and no common base
        raise DataError(f"Cannot download the model {name!r}: {error}") from error


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


def _image_spec(folder: Path) -> ImageSpec:
    path = folder / "preprocessor_config.json"
    if not path.is_file():
        raise DataError(f"The model folder {folder} has no preprocessor_config.json.")
    facts = json.loads(path.read_text(encoding="utf-8"))
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


def _hints(folder: Path) -> Hints:
    path = folder / "shotfit.json"
    if not path.is_file():
        return Hints()
    try:
        return from_dict(Hints, json.loads(path.read_text(encoding="utf-8")))
    except ValueError as error:
        raise DataError(f"{path} cannot be used: {error}") from error
