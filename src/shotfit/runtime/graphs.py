"""The ONNX graphs of an exported classifier in onnxruntime, each loaded when it is first needed."""

import string
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shotfit.data.transforms import ImageSpec
from shotfit.errors import DataError, UsageError
from shotfit.runtime.class_matrix import ClassRow
from shotfit.runtime.manifest import IMAGE, TEXT, TOKENIZER, Manifest, TextRules

if TYPE_CHECKING:
    import onnxruntime
    from tokenizers import Tokenizer

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


class Graphs:
    """Images to features, and names to rows."""

    def __init__(self, folder: Path, manifest: Manifest, threads: int | None = None) -> None:
        """`threads` of onnxruntime; None for all cores."""
        self.folder = folder
        self.manifest = manifest
        self.threads = threads

    @property
    def image_spec(self) -> ImageSpec:
        """How images are prepared."""
        return self.manifest.image

    @property
    def takes_names(self) -> bool:
        """Whether there is a text tower."""
        return self.manifest.text is not None

    def features(self, pixels: np.ndarray) -> np.ndarray:
        """Features (batch, f) of pixels (batch, 3, size, size)."""
        size = self.manifest.batch
        if size is None:
            return self._run(pixels)
        # A graph of a fixed batch takes no other: the last images are followed by empty ones.
        parts = [pixels[start : start + size] for start in range(0, len(pixels), size)]
        missing = [(0, size - len(part)) for part in parts]
        none = [(0, 0)] * 3
        found = [self._run(np.pad(p, [m, *none])) for p, m in zip(parts, missing, strict=True)]
        return np.concatenate(found)[: len(pixels)]

    def class_row(self, name: str) -> ClassRow:
        """The row of a class that is known by its name alone.

        Raises:
            UsageError: for an export without a text tower.
            DataError: for a name that is too long.
        """
        rules = self.manifest.text
        if rules is None:
            raise UsageError("This export has no text tower.")
        tokens = [token_ids(prompt, name, self._tokenizer, rules) for prompt in rules.prompts]
        ids = np.array([[*t, *[rules.pad] * (rules.length - len(t))] for t in tokens], np.int64)
        ends = np.array([len(t) - 1 for t in tokens], np.int64)
        inputs = {"ids": ids, "ends": ends}
        # A tower that pools a fixed place, as SigLIP's, has no use for the ends, nor has its graph.
        taken = {entry.name: inputs[entry.name] for entry in self._text.get_inputs()}
        row, offset = self._text.run(None, taken)
        return np.asarray(row), float(np.asarray(offset))

    def _run(self, pixels: np.ndarray) -> np.ndarray:
        (features,) = self._image.run(None, {"pixels": pixels})
        return np.asarray(features)

    @cached_property
    def _image(self) -> "onnxruntime.InferenceSession":
        return self._session(IMAGE)

    @cached_property
    def _text(self) -> "onnxruntime.InferenceSession":
        return self._session(TEXT)

    @cached_property
    def _tokenizer(self) -> "Tokenizer":
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(self.folder / TOKENIZER))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return tokenizer

    def _session(self, name: str) -> "onnxruntime.InferenceSession":
        try:
            import onnxruntime
        except ImportError:
            raise UsageError(
                "Exported classifiers run in onnxruntime, which is not installed: "
                "pip install 'shotfit[runtime]'."
            ) from None
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # errors
        if self.threads is not None:
            options.intra_op_num_threads = self.threads
        if self.manifest.int8:
            # Weights packed anew for the processor would take their memory twice.
            options.add_session_config_entry("session.disable_prepacking", "1")
        path = self.folder / name
        try:
            return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime has an error type for each of its status codes
            raise DataError(f"{path} cannot be loaded: {error}") from error


def token_ids(prompt: str, name: str, tokenizer: "Tokenizer", rules: TextRules) -> list[int]:
    """Token ids of a prompt around a class name, start and end included, without padding.

    Raises:
        DataError: for a text that is longer than the text tower reads.
    """
    text = prompt.replace("{}", name if rules.underscores else name.replace("_", " "), 1)
    if rules.lower:
        text = text.lower()
    if rules.drop_punctuation:
        text = " ".join(text.translate(_NO_PUNCTUATION).split())
    ids = list(tokenizer.encode(text).ids)
    if rules.drop_start is not None and ids[:1] == [rules.drop_start]:
        ids = ids[1:]
    if rules.end is not None and ids[-1:] != [rules.end]:
        ids.append(rules.end)
    if len(ids) > rules.length:
        raise DataError(
            f"A text has {len(ids)} tokens; this model reads {rules.length}. "
            "Shorten the class name."
        )
    return ids
