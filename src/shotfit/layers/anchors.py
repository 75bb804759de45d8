"""What holds an adapted embedding near the frozen one."""

from typing import NamedTuple

from torch import Tensor

from shotfit.layers.class_means import class_means


def cosine_distance(embeds: Tensor, anchors: Tensor) -> Tensor:
    """1 - the mean cosine of unit rows (n, dim) and their anchors, a scalar (KgCoOp, eq. 3, up to
    a factor of two)."""
    return 1 - (embeds * anchors).sum(dim=-1).mean()


class Leash(NamedTuple):
    """What holds trained rows to where they started, each class as far as it was right there
    (CLAP, eq. 6)."""

    start: Tensor
    """(classes, dim)."""
    alpha: Tensor
    """(classes,): the mean probability of a class over its own images."""

    @classmethod
    def of(cls, start: Tensor, logits: Tensor, labels: Tensor) -> "Leash":
        """From the logits (images, classes) of the support set at the start, and its labels."""
        own = logits.softmax(dim=-1).gather(1, labels[:, None])[:, 0]
        return cls(start, class_means(own, labels, len(start)))

    def pull(self, rows: Tensor) -> Tensor:
        """mean_c alpha_c |row_c - start_c|^2, a scalar."""
        return (self.alpha * (rows - self.start).square().sum(dim=-1)).mean()
