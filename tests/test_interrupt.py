"""Ctrl-C, pressed once, keeps what is there; too early or twice, it does what it always did."""

import io
import json
import os
import signal
import threading

import numpy as np
import pytest
import torch
from conftest import shapes_dataset

from shotfit.classifier import FewShotClassifier
from shotfit.recipe import named_recipe
from shotfit.system.interrupts import noticed_interrupt

RECIPE = named_recipe("2sfs", iters_per_shot=4)
FIT = {"shots": 2, "verbose": False}
IMAGES = [example.image for example in shapes_dataset(3).test]


def press():
    os.kill(os.getpid(), signal.SIGINT)


def fitted(checkpoint):
    return FewShotClassifier(str(checkpoint), RECIPE)


def trained(method):
    return {name: p.detach().clone() for name, p in method.named_parameters() if p.requires_grad}


@pytest.mark.parametrize("update", [2, 6])
def test_what_is_there_is_kept_in_each_stage(checkpoint, tmp_path, update):
    """Four updates of the first stage, then four of the second."""
    states = []
    fitted(checkpoint).fit(
        shapes_dataset(3), observe=lambda method, *_: states.append(trained(method)), **FIT
    )
    assert len(states) == 8
    classifier = fitted(checkpoint)
    seen = []

    def observe(method, stage, step):
        seen.append(stage)
        if len(seen) == update:
            press()

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt, match=f"after {update} updates, which are kept"):
        classifier.fit(shapes_dataset(3), observe=observe, **FIT)
    assert signal.getsignal(signal.SIGINT) is before
    assert len(seen) == len(classifier.history) == update
    assert seen[-1] == update // 5
    tensors = dict(classifier.method.named_parameters())
    for name, value in states[update - 1].items():
        assert torch.equal(tensors[name], value), "the update that ran was finished"
    assert classifier.unfinished
    assert classifier.metrics == {}
    again = FewShotClassifier.from_pretrained(classifier.save_pretrained(tmp_path / "saved"))
    assert again.unfinished
    assert np.array_equal(again.predict_proba(IMAGES), classifier.predict_proba(IMAGES))
    assert "unfinished" in (tmp_path / "saved" / "README.md").read_text()
    classifier.fit(shapes_dataset(3), **FIT)
    assert not classifier.unfinished


def test_twice_or_before_there_is_anything_it_ends_at_once():
    with pytest.raises(KeyboardInterrupt), noticed_interrupt():
        press()
    with noticed_interrupt() as interrupt:
        interrupt.armed = True
        press()
        assert interrupt.pressed
        with pytest.raises(KeyboardInterrupt):
            press()


def test_another_thread_changes_nothing():
    found = []

    def inside():
        with noticed_interrupt() as interrupt:
            found.append((interrupt.pressed, signal.getsignal(signal.SIGINT)))

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    assert found == [(False, signal.getsignal(signal.SIGINT))]


@pytest.mark.parametrize(("choice", "saved"), [("keep", True), ("discard", False), (None, True)])
def test_the_command_keeps_or_discards(shotfit, checkpoint, tmp_path, monkeypatch, choice, saved):
    from shotfit.training import loop

    measure, count = loop._measure, []

    def pressed(*arguments):
        count.append(1)
        if len(count) == 3:
            press()
        return measure(*arguments)

    monkeypatch.setattr(loop, "_measure", pressed)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    out = tmp_path / "model"
    options = () if choice is None else ("--on-interrupt", choice)
    code, text, _ = shotfit(
        *("fit", "digits", "--backbone", checkpoint, "--shots", 1, "--iters-per-shot", 10),
        *("--out", out, *options),
    )
    assert code == 130
    assert out.exists() == saved
    if saved:
        assert "Unfinished, interrupted after" in text
        assert json.loads((out / "record.json").read_text())["status"] == "interrupted"
        assert "UNFINISHED" in shotfit("info", out)[1]
