"""What holds an adapted embedding near the frozen one."""

from torch import Tensor


def cosine_distance(embeds: Tensor, anchors: Tensor) -> Tensor:
    """1 - the mean cosine of unit rows (n, dim) and their anchors, a scalar (KgCoOp, eq. 3, up to
    a factor of two)."""
    return 1 - (embeds * anchors).sum(dim=-1).mean()
