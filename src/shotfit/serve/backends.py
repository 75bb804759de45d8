"""What answers behind a server: an export in onnxruntime, or a saved classifier in PyTorch."""

from pathlib import Path

from shotfit.runtime import ExportedClassifier
from shotfit.runtime.manifest import MANIFEST


def load(
    model: str, *, threads: int | None = None, backbone: str | None = None
) -> ExportedClassifier:
    """The classifier in an exported folder, without torch, or a saved one.

    Raises:
        DataError: for a folder that is neither.
        UsageError: for a method whose scores are no product with rows, with the reason.
    """
    if (Path(model).expanduser() / MANIFEST).is_file():
        return ExportedClassifier.load(model, threads=threads, check=True)
    from shotfit.classifier import FewShotClassifier
    from shotfit.export.encoder import TorchEncoder
    from shotfit.export.onnx import class_matrix

    classifier = FewShotClassifier.from_pretrained(model, backbone=backbone)
    return ExportedClassifier(TorchEncoder(classifier.method), class_matrix(classifier), None)
