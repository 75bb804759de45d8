"""`shotfit export onnx`: image tower, class matrix and text tower as files for onnxruntime."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from shotfit import __version__
from shotfit.backbone.families import get_family
from shotfit.classifier import FewShotClassifier
from shotfit.errors import DataError, UsageError
from shotfit.evaluation.scoring import GivenImages, blended, logit_scale
from shotfit.export.graphs import ImageGraph, TextGraph, write_graph
from shotfit.export.place import exported_folder
from shotfit.export.rows import class_rows
from shotfit.methods.base import Method
from shotfit.runtime.class_matrix import ClassMatrix
from shotfit.runtime.graphs import Graphs
from shotfit.runtime.manifest import (
    CLASSES,
    IMAGE,
    TEXT,
    TOKENIZER,
    Manifest,
    TextRules,
    sha256,
)
from shotfit.runtime.rule import FittedRule
from shotfit.sharing import model_name

TOLERANCE = 1e-4
"""How far a score may lie from PyTorch's: as a cosine, that is, over the length of the longest row
where that is above 1. A row is as long as the logit scale in most methods."""
_CHECKED = 4  # images of noise on which both are compared
_UNSEEN = "a class_that nobody has"


@dataclass(frozen=True)
class OnnxOptions:
    """What is written, besides the image tower and the class matrix."""

    batch: int | None = None
    """Images that the graph takes at once; None for any number."""
    text: bool = True
    """The text tower and the tokenizer, by which classes are added later; left out where the
    method is bound to its classes."""
    int8: bool = False
    """Matrix products in 8 bits: a quarter of the size, not the same scores."""


@dataclass(frozen=True)
class OnnxExport:
    """What was written: the folder, its files' sizes in bytes, and the largest difference from
    PyTorch's scores, as a cosine (`TOLERANCE`), on images of noise."""

    folder: Path
    sizes: dict[str, int]
    difference: float


def export_onnx(
    classifier: FewShotClassifier,
    folder: str | Path,
    options: OnnxOptions | None = None,
    *,
    overwrite: bool = True,
) -> OnnxExport:
    """Writes a folder that `shotfit.runtime` answers from, after comparing it with PyTorch.

    The folder appears whole or not at all; one that holds an export is replaced.

    Raises:
        UsageError: when the method cannot be exported, with the reason, or onnx is not installed.
        DataError: when the folder holds something else, an export and not `overwrite`, or cannot be
            written.
    """
    options, folder = options or OnnxOptions(), Path(folder).expanduser()
    if options.batch is not None and options.batch < 1:
        raise UsageError("A batch has at least one image.")
    method = classifier.method
    with exported_folder(folder, overwrite=overwrite) as made:
        class_matrix(classifier).write(made / CLASSES)
        _write_image_graph(method, made / IMAGE, options)
        rules = _write_text(classifier, made, options) if options.text else None
        _manifest(classifier, made, rules, options).write(made)
        difference = _difference(classifier, Graphs(made, Manifest.read(made), threads=1))
        sizes = {path.name: path.stat().st_size for path in sorted(made.iterdir())}
    return OnnxExport(folder, sizes, difference)


@torch.no_grad()
def class_matrix(classifier: FewShotClassifier) -> ClassMatrix:
    """The rows of all classes, removed ones included, and the rule by which they are compared.

    Raises:
        UsageError: when the method's scores are no product with rows, with the reason.
    """
    known, method = classifier.known, classifier.method
    everything, trained = known.everything, len(known.classes.trained)
    given = GivenImages(
        ((0,) * trained + known.classes.images),
        torch.cat([torch.zeros(trained, known.means.shape[1]), known.means]),
    )
    rule = None
    if classifier.rule == "fitted":
        assert classifier.assessment is not None
        found = classifier.assessment
        rule = FittedRule(
            found.calibration,
            logit_scale(method),
            found.means,
            _array(known.means),
            found.scores,
            found.gaussians,
        )
    else:
        everything = blended(everything, given)
    rows, offsets = map(_array, class_rows(method, everything, classifier.rule))
    return ClassMatrix(known.classes, rows, offsets, np.zeros_like(rows), rule)


def _array(tensor: torch.Tensor) -> np.ndarray:
    return np.ascontiguousarray(tensor.float().cpu().numpy())


def _write_image_graph(method: Method, path: Path, options: OnnxOptions) -> None:
    size = method.backbone.image_spec.size
    # Two, since a graph traced with one image could take the 1 for a constant.
    pixels = torch.zeros(options.batch or 2, 3, size, size, device=method.backbone.device)
    write_graph(ImageGraph(method), {"pixels": pixels}, path, dynamic=options.batch is None)
    if options.int8:
        _round_to_int8(path)
    else:
        _weights_beside(path)


def _weights_beside(path: Path) -> None:
    """Moves the weights into a file of their own, which onnxruntime maps into memory: from within
    the graph it copies them twice."""
    import onnx

    beside = f"{path.name}.data"
    graph = onnx.load(path)
    path.unlink()
    onnx.save(graph, path, save_as_external_data=True, location=beside)
    path.with_name(beside).chmod(0o644)


def _write_text(
    classifier: FewShotClassifier, folder: Path, options: OnnxOptions
) -> TextRules | None:
    """The text graph and its tokenizer; None for a method that is bound to its classes."""
    method = classifier.method
    if not method.open_vocabulary:
        return None
    backbone = method.backbone
    graph = TextGraph(method, classifier.rule)
    shape = len(graph.prompts), backbone.text.max_length
    inputs = {
        "ids": torch.ones(shape, dtype=torch.long, device=backbone.device),
        "ends": torch.full(shape[:1], shape[1] - 1, device=backbone.device),
    }
    try:
        write_graph(graph, inputs, folder / TEXT)
    except UsageError as error:
        raise UsageError(
            f"{error}. Without the text tower, which embeds names that were not trained, it may be "
            "(--no-text)."
        ) from error
    if options.int8:
        _round_to_int8(folder / TEXT)
    else:
        _weights_beside(folder / TEXT)
    _write_tokenizer(method, folder / TOKENIZER)
    facts = get_family(backbone.family).text_rules(backbone.tokenizer)
    return TextRules(
        prompts=graph.templates, length=shape[1], underscores=graph.keeps_underscores, **facts
    )


def _write_tokenizer(method: Method, path: Path) -> None:
    fast = getattr(method.backbone.tokenizer, "backend_tokenizer", None)
    if fast is None:
        raise UsageError(
            "The tokenizer of this model is not one of the tokenizers library, so that names can "
            "only be embedded here: export without the text tower (--no-text)."
        )
    fast.save(str(path))


def _round_to_int8(path: Path) -> None:
    """Matrix products in 8 bits: weights rounded once with a scale for each output, activations in
    every pass with one scale (onnxruntime's dynamic quantization). Constants are folded here, and
    weights lie beside, so that a session starts in a third of the time."""
    import onnxruntime
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.shape_inference import quant_pre_process

    exact = path.with_suffix(".exact.onnx")
    quant_pre_process(path, exact, skip_optimization=True, skip_symbolic_shape=True)
    quantize_dynamic(
        exact,
        path,
        op_types_to_quantize=["MatMul"],
        per_channel=True,
        weight_type=QuantType.QInt8,
    )
    exact.unlink()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(exact)
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    exact.replace(path)
    _weights_beside(path)


def _manifest(
    classifier: FewShotClassifier, folder: Path, rules: TextRules | None, options: OnnxOptions
) -> Manifest:
    experiment = classifier.experiment
    return Manifest(
        image=classifier.method.backbone.image_spec,
        text=rules,
        batch=options.batch,
        int8=options.int8,
        source={
            "shotfit": __version__,
            "backbone": model_name(experiment.backbone),
            "stages": [stage.method for stage in experiment.recipe.stages],
            "shots": experiment.shots,
            "template": classifier.method.template,
        },
        # The class matrix changes, and is told from others by its version.
        files={
            path.name: sha256(path) for path in sorted(folder.iterdir()) if path.name != CLASSES
        },
    )


@torch.no_grad()
def _difference(classifier: FewShotClassifier, graphs: Graphs) -> float:
    """The largest difference between the scores of both, as a cosine.

    Raises:
        DataError: when it is above the tolerance, in fp32.
    """
    method, manifest = classifier.method, graphs.manifest
    size = manifest.image.size
    pixels = torch.randn(_CHECKED, 3, size, size, generator=torch.Generator().manual_seed(0))
    matrix = ClassMatrix.read(graphs.folder / CLASSES)
    expected = classifier.scorer()(pixels.to(method.backbone.device)).logits.numpy()
    scale = max(1.0, float(np.linalg.norm(matrix.rows, axis=1).max()))
    found = matrix.scores(graphs.features(pixels.numpy()))
    differences = [np.abs(found - expected).max() / scale]
    if manifest.text is not None:
        differences.append(_text_difference(classifier, graphs) / scale)
    worst = float(max(differences))
    if not manifest.int8 and not worst <= TOLERANCE:
        raise DataError(
            f"onnxruntime's scores lie {worst:.1e} from PyTorch's, above {TOLERANCE:.0e}: this "
            "export would not answer as the classifier does, and is not written."
        )
    return worst


def _text_difference(classifier: FewShotClassifier, graphs: Graphs) -> float:
    method = classifier.method
    rows, offsets = class_rows(method, method.encode_classes([_UNSEEN]), classifier.rule)
    row, offset = graphs.class_row(_UNSEEN)
    return max(float(np.abs(row - rows[0].cpu().numpy()).max()), abs(offset - float(offsets[0])))
