"""`ShotFitClassifier`: ShotFit in scikit-learn's pipelines and searches.

Needs the extra `shotfit[sklearn]`.
"""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from shotfit.classifier import FewShotClassifier
from shotfit.data.python_data import items_of, labels_of
from shotfit.errors import UsageError
from shotfit.recipe import Recipe

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted
except ImportError as error:
    raise UsageError("This needs the extra: pip install 'shotfit[sklearn]'.") from error


class ShotFitClassifier(ClassifierMixin, BaseEstimator):
    """A classifier of images as scikit-learn's estimators are: `fit(X, y)`, `predict(X)`.

    `X` is a list or array of images: paths, PIL images, bytes, or uint8 arrays (n, h, w, 3). `y`
    are class names, or any other labels with their names in `classnames`; a label without one is
    named as it is written. `predict` answers with the labels that `fit` was given, and
    `predict_proba` has a column for each of `classes_`, which are sorted. The fitted
    `FewShotClassifier` is `classifier_`.
    """

    def __init__(
        self,
        backbone: str = "iconclip",
        method: str | Recipe = "2sfs",
        *,
        classnames: Mapping[Any, str] | None = None,
        seed: int = 1,
        device: str | None = None,
        full_size: bool = False,
        verbose: bool = False,
    ) -> None:
        self.backbone = backbone
        self.method = method
        self.classnames = classnames
        self.seed = seed
        self.device = device
        self.full_size = full_size
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> Self:
        """Learns from images and their labels.

        Raises:
            ValueError: for labels that are no classes (`UsageError`), or images that cannot be
                used (`DataError`).
        """
        if y is None:
            raise UsageError("requires y to be passed, but the target y is None")
        labels = labels_of(y)
        check_classification_targets(labels)
        self.classes_ = np.unique(labels)
        names = {label: self._name(label) for label in self.classes_.tolist()}
        self.classifier_ = FewShotClassifier(
            self.backbone, self.method, seed=self.seed, device=self.device
        ).fit(X, labels, classnames=names, full_size=self.full_size, verbose=self.verbose)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The label of each image, (n,)."""
        check_is_fitted(self)
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities, float32 (n, classes), in the order of `classes_`."""
        check_is_fitted(self)
        # A list of one image too is several.
        return self.classifier_.predict_proba(list(items_of(X)))

    def _name(self, label: Any) -> str:
        names = self.classnames or {}
        return str(names.get(label, label))

    def __sklearn_tags__(self) -> Any:
        """Images, not rows of numbers."""
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.string = True
        tags.non_deterministic = False
        return tags
