"""The rows of classes that are exported, under either rule."""

from torch import Tensor

from shotfit.methods.base import ClassEmbeddings, Method


def class_rows(method: Method, classes: ClassEmbeddings, rule: str) -> tuple[Tensor, Tensor]:
    """Rows (classes, f) and offsets (classes,): of the published rule's scores, or what the fitted
    rule makes its scores of, scaled unit embeddings.

    Raises:
        UsageError: when the method's scores are no product with rows.
    """
    if rule == "fitted":
        return method.scaled_rows(classes.weight)
    return method.score_rows(classes)
