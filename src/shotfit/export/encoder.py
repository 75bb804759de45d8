"""A method as the encoder of `shotfit.runtime`'s classifier: PyTorch in place of ONNX graphs."""

import numpy as np
import torch

from shotfit.classifier import FewShotClassifier
from shotfit.data.transforms import ImageSpec
from shotfit.export.rows import class_rows
from shotfit.runtime.class_matrix import ClassRow


class TorchEncoder:
    """Images to features, and names to rows, by a fitted classifier."""

    def __init__(self, classifier: FewShotClassifier) -> None:
        self.method = classifier.method.eval()
        self.rule = classifier.rule

    @property
    def image_spec(self) -> ImageSpec:
        """How images are prepared."""
        return self.method.backbone.image_spec

    @property
    def takes_names(self) -> bool:
        """Whether a class can be added by its name alone."""
        return self.method.open_vocabulary

    @torch.no_grad()
    def features(self, pixels: np.ndarray) -> np.ndarray:
        """Features (batch, f) of pixels (batch, 3, size, size)."""
        found = self.method.score_features(torch.from_numpy(pixels).to(self.method.backbone.device))
        return found.float().cpu().numpy()

    @torch.no_grad()
    def class_row(self, name: str) -> ClassRow:
        """The row of a class that is known by its name alone.

        Raises:
            DataError: for a name that is too long.
        """
        rows, offsets = class_rows(self.method, self.method.encode_classes([name]), self.rule)
        return rows[0].float().cpu().numpy(), float(offsets[0])
