"""`export.json`: what the files of an exported classifier are, and how images and names enter."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shotfit.data.transforms import ImageSpec
from shotfit.errors import DataError

FORMAT = 1
MANIFEST, IMAGE, CLASSES = "export.json", "image.onnx", "classes.safetensors"
TEXT, TOKENIZER = "text.onnx", "tokenizer.json"


@dataclass(frozen=True)
class TextRules:
    """How a class name becomes token ids: `prompts` with "{}" where the name stands, and what is
    done before and after the tokenizer.

    Ids are cut off nowhere and padded with `pad` to `length`. `end` is added where it is missing,
    `drop_start` removed at the start; `lower` and `drop_punctuation` change the text. A
    name's underscores are spaces in its prompts, unless `underscores` stay.
    """

    prompts: tuple[str, ...]
    length: int
    pad: int
    end: int | None = None
    drop_start: int | None = None
    lower: bool = False
    drop_punctuation: bool = False
    underscores: bool = False


@dataclass(frozen=True)
class Manifest:
    """What is said of an export beside its files, whose SHA-256 hashes are in `files`; `text` is
    None where classes cannot be added by name."""

    image: ImageSpec
    text: TextRules | None
    batch: int | None
    """Images that the graph takes at once; None for any number."""
    int8: bool
    source: Mapping[str, Any]
    """What it was made of: ShotFit's version, the pretrained model, the stages."""
    files: Mapping[str, str]

    def write(self, folder: Path) -> None:
        """Writes it into the folder of its files."""
        facts = {"format": FORMAT, **asdict(self)}
        text = json.dumps(facts, indent=2, ensure_ascii=False) + "\n"
        (folder / MANIFEST).write_text(text, encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """The manifest of an exported folder.

        Raises:
            DataError: for a folder that holds no export, or one of another format.
        """
        path = folder / MANIFEST
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
            if facts.pop("format") != FORMAT:
                raise ValueError(f"this version reads format {FORMAT}")
            image, text = facts.pop("image"), facts.pop("text")
            spec = ImageSpec(**{**image, "mean": tuple(image["mean"]), "std": tuple(image["std"])})
            rules = (
                None if text is None else TextRules(**{**text, "prompts": tuple(text["prompts"])})
            )
            return cls(image=spec, text=rules, **facts)
        except FileNotFoundError:
            raise DataError(
                f"{folder} is not an exported classifier: it has no {MANIFEST}."
            ) from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DataError(f"{path} cannot be used: {error}") from error

    def check(self, folder: Path) -> None:
        """Compares the files with their hashes.

        Raises:
            DataError: naming a file that is missing or altered.
        """
        for name, expected in self.files.items():
            try:
                found = sha256(folder / Path(name).name)
            except OSError as error:
                raise DataError(f"{folder / name} cannot be read: {error}") from error
            if found != expected:
                raise DataError(f"{folder / name} has been altered since it was exported.")


def sha256(path: Path) -> str:
    """The hash of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
