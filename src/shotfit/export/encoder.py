"""A method as the encoder of `shotfit.runtime`'s classifier: PyTorch in place of ONNX graphs."""

import numpy as np
import torch

from shotfit.data.transforms import ImageSpec
from shotfit.methods.base import Method
from shotfit.runtime.class_matrix import ClassRow


class TorchEncoder:
    """Images to features, and names to rows, by a fitted method."""

    def __init__(self, method: Method) -> None:
        self.method = method.eval()

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
        rows, offsets = self.method.score_rows(self.method.encode_classes([name]))
        return rows[0].float().cpu().numpy(), float(offsets[0])
