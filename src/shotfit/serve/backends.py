"""What answers behind a server: an export in onnxruntime, or a saved classifier in PyTorch."""

from pathlib import Path

from shotfit.errors import UsageError
from shotfit.runtime import ExportedClassifier
from shotfit.runtime.manifest import MANIFEST


def load(
    model: str, *, threads: int | None = None, backbone: str | None = None, save: bool = False
) -> ExportedClassifier:
    """The classifier in an exported folder, without torch, or a saved one; `save` says that changes
    of its classes are to be written back.

    Raises:
        DataError: for a folder that is neither.
        UsageError: for a method whose scores are no product with rows, with the reason, and for
            `save` with a saved one.
    """
    if (Path(model).expanduser() / MANIFEST).is_file():
        return ExportedClassifier.load(model, threads=threads, check=True)
    if save:
        raise UsageError("--save is for exported folders: shotfit export onnx.")
    from shotfit.classifier import FewShotClassifier
    from shotfit.export.encoder import TorchEncoder
    from shotfit.export.onnx import class_matrix

    classifier = FewShotClassifier.from_pretrained(model, backbone=backbone)
    return ExportedClassifier(TorchEncoder(classifier), class_matrix(classifier), None)
