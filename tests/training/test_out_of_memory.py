"""Out of memory on an accelerator: fewer images at a time, the same gradients, and a word of it.

`torch.OutOfMemoryError` is what accelerators raise; here it is raised for them.
"""

import warnings

import pytest
import torch
from conftest import make_backbone, make_support

from shotfit.adaptation import adapt
from shotfit.errors import UsageError
from shotfit.experiment import task_facts
from shotfit.methods import get_method
from shotfit.methods.base import Method
from shotfit.recipe import Recipe, Stage

FITS = 5
"""Images at a time that there is memory for."""


@pytest.fixture
def tried(monkeypatch):
    """How many images go through the model at a time; more than fit raise."""
    sizes = []
    loss = Method.loss

    def limited(self, pixels, labels, names):
        output = loss(self, pixels, labels, names)
        sizes.append(len(pixels))
        if len(pixels) > FITS:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return output

    monkeypatch.setattr(Method, "loss", limited)
    return sizes


def fitted(task, name, **training):
    training = {"iterations": 3, "batch_size": 12, "lr": 1e-2, **training}
    made = []
    method = adapt(
        make_backbone(),
        make_support(task),
        Recipe((Stage(name, training=training),)),
        task_facts(task),
        observe=lambda _, __, step: made.append(step),
    )
    return method, made


@pytest.mark.parametrize("name", ["layernorm", "lora"])
def test_the_micro_batch_is_halved_until_it_fits_and_stays_so(task, tried, name, monkeypatch):
    with pytest.warns(UserWarning) as told:
        method, made = fitted(task, name)
    words = [str(one.message) for one in told]
    assert words == [
        "Out of memory with 12 images at a time: going on with 6 at a time "
        "(training.micro_batch=6 from the start saves the attempt).",
        "Out of memory with 6 images at a time: going on with 3 at a time "
        "(training.micro_batch=3 from the start saves the attempt).",
    ]
    assert tried == [12, 6, *[3] * 12]
    # As if it had been so from the start, dropout masks included.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected, steps = fitted(task, name, micro_batch=3)
    assert made == steps
    for one, other in zip(method.parameters(), expected.parameters(), strict=True):
        assert torch.equal(one, other)


def test_one_image_that_does_not_fit_ends_it(task, tried, monkeypatch):
    monkeypatch.setitem(globals(), "FITS", 0)
    with pytest.warns() as told, pytest.raises(UsageError, match=r"one image.*checkpointing=true"):
        fitted(task, "layernorm")
    assert "going on with 1 at a time" in str(told[-1].message)
    assert tried == [12, 6, 3, 1]


def test_a_loss_that_cannot_be_taken_apart_is_not(task, monkeypatch):
    bound = next(
        name for name in ("prograd", "kgcoop", "promptsrc") if not get_method(name).additive_loss
    )

    def full(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(get_method(bound), "loss", full)
    with pytest.raises(UsageError, match="the batch of 12 that it needs at a time"):
        fitted(task, bound)
