"""Where a training left the finite numbers: the update, the batch, the tensor."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from shotfit.data.support_set import SupportSet
from shotfit.errors import Diverged
from shotfit.methods.base import Method

ADVICE = "lower the learning rate, or use fp32"


def finite(values: Tensor) -> bool:
    """Whether all values are finite; a tensor on "meta" has none."""
    return values.is_meta or bool(torch.isfinite(values).all())


def first_not_finite(tensors: Iterable[tuple[str, Tensor | None]]) -> str | None:
    """The name of the first tensor that has a value that is not finite; None without one."""
    for name, values in tensors:
        if values is not None and values.is_floating_point() and not finite(values):
            return name
    return None


def check_loss(method: Method, loss: float, where: str) -> None:
    """Stops before an update is made by a loss that is not finite.

    Raises:
        Diverged: naming the tensor that it comes from, or the first that it would have spoiled.
    """
    if math.isfinite(loss):
        return
    trained = [(name, p) for name, p in method.named_parameters() if p.requires_grad]
    found = first_not_finite((name, p.detach()) for name, p in trained)
    if found is None:
        gradient = first_not_finite((name, p.grad) for name, p in trained)
        found = gradient and f"the gradient of {gradient}"
    tensor = f" ({found} is not finite)" if found else ""
    raise Diverged(f"The loss is {loss} at {where}{tensor}: {ADVICE}.")


def check_trained(method: Method, updates: str) -> None:
    """Looks at what has been learned once its last update was made.

    Raises:
        Diverged: naming the tensor whose values are not finite.
    """
    state = method.state_dict()
    learned = {name: state[name] for name in method.learned_names()}
    tensors = {**learned, **dict(method.named_parameters())}
    tensor = first_not_finite((name, values.detach()) for name, values in tensors.items())
    if tensor is not None:
        raise Diverged(f"{tensor} is not finite after {updates}: {ADVICE}.")


@torch.no_grad()
def check_answers(method: Method, support: SupportSet) -> None:
    """Asks a method that has come to its end for the scores of one shot: the last update may have
    left tensors that are finite, and too large for any answer to be.

    Raises:
        Diverged: when the scores are not finite.
    """
    pixels, _ = next(support.plain(1))
    classes = method.encode_classes(support.classnames[:2])
    if not finite(method(pixels.to(method.backbone.device), classes)):
        raise Diverged(f"After the last update, scores are not finite: {ADVICE}.")
