"""A method as two graphs: pixels to the features of its scores, and a name's tokens to its row."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from shotfit.backbone import Backbone
from shotfit.errors import UsageError
from shotfit.export.rows import class_rows
from shotfit.methods.base import Method

MARKER = "shotfit_marker"
"""A name that no class has, by which prompts are found in what a method embeds. It has an
underscore, since that is a space to some methods and not to others."""
FORMS = (MARKER, MARKER.replace("_", " "))
OPSET = 18


class ImageGraph(nn.Module):
    """Pixels (batch, 3, size, size) to what the class matrix is multiplied with, (batch, f)."""

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.method = method

    def forward(self, pixels: Tensor) -> Tensor:
        """`Method.score_features`."""
        return self.method.score_features(pixels)


class TextGraph(nn.Module):
    """One class name in all prompts, ids (prompts, length) and ends (prompts,), to its row (f,)
    and offset ().

    The prompts are those that the method embeds for a name it has not seen, found by asking it.
    """

    def __init__(self, method: Method, rule: str) -> None:
        super().__init__()
        self.method = method
        self.rule = rule
        self.prompts: list[str] = []
        encode = method.backbone.encode_text

        def note(texts: Sequence[str], *rest: Any, **more: Any) -> Tensor:
            self.prompts += [text for text in texts if any(form in text for form in FORMS)]
            return encode(texts, *rest, **more)

        with torch.no_grad(), _instead(method.backbone, note):
            self._row()
        self.prompts = list(dict.fromkeys(self.prompts))

    @property
    def templates(self) -> tuple[str, ...]:
        """The prompts, with "{}" where the name stands."""
        form = FORMS[0] if self.keeps_underscores else FORMS[1]
        return tuple(prompt.replace(form, "{}") for prompt in self.prompts)

    @property
    def keeps_underscores(self) -> bool:
        """Whether an underscore of a name stays one in its prompts."""
        return any(MARKER in prompt for prompt in self.prompts)

    def forward(self, ids: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
        """The row of a name that was not trained, and its offset."""
        backbone, encode = self.method.backbone, self.method.backbone.encode_text

        def traced(texts: Sequence[str], *rest: Any, **more: Any) -> Tensor:
            if texts[0] not in self.prompts:
                return encode(texts, *rest, **more)
            places = [self.prompts.index(text) for text in texts]
            layouts = [backbone.text.traced(ids[place], ends[place]) for place in places]
            embeds = [backbone.text(layout, *rest, **more) for layout in layouts]
            return embeds[0] if len(embeds) == 1 else torch.cat(embeds, dim=-2)

        with _instead(backbone, traced):
            return self._row()

    def _row(self) -> tuple[Tensor, Tensor]:
        rows, offsets = class_rows(self.method, self.method.encode_classes([MARKER]), self.rule)
        return rows[0], offsets[0]


def write_graph(
    graph: nn.Module, inputs: dict[str, Tensor], path: Path, *, dynamic: bool = False
) -> None:
    """Writes a graph as one ONNX file; with `dynamic`, the first size of its inputs is free.

    By PyTorch's older exporter, which takes 0.2 seconds for what the newer one takes 6 for, and
    writes the same products (LOG.md).

    Raises:
        UsageError: when onnx is not installed, or has no words for what the graph does.
    """
    try:
        import onnx  # noqa: F401
    except ImportError:
        raise UsageError("ONNX needs its packages: pip install 'shotfit[onnx]'.") from None
    try:
        with torch.no_grad(), warnings.catch_warnings():
            # That it is the older one, and that sizes of weights become constants.
            warnings.simplefilter("ignore")
            # On an error it would print the whole graph.
            torch._C._jit_set_onnx_log_enabled(False)
            torch.onnx.export(
                graph.eval(),
                tuple(inputs.values()),
                path,
                input_names=list(inputs),
                dynamic_axes={name: {0: "batch"} for name in inputs} if dynamic else None,
                opset_version=OPSET,
                dynamo=False,
            )
    except (torch.onnx.errors.OnnxExporterError, RuntimeError) as error:
        why = str(error).partition(". ")[0]
        raise UsageError(f"This method cannot be written as an ONNX graph: {why}") from error


@contextmanager
def _instead(backbone: Backbone, encode_text: Callable[..., Tensor]) -> Iterator[None]:
    """`encode_text` in place of the backbone's own."""
    vars(backbone)["encode_text"] = encode_text
    try:
        yield
    finally:
        del vars(backbone)["encode_text"]
