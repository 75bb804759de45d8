"""A training that leaves the finite numbers ends there, and leaves the last good state."""

import pytest
import torch
from conftest import make_backbone, make_support, shapes_dataset

from shotfit.adaptation import adapt
from shotfit.classifier import FewShotClassifier
from shotfit.errors import Diverged, UsageError
from shotfit.experiment import task_facts
from shotfit.recipe import Recipe, Stage
from shotfit.training import finite
from shotfit.training.checkpoint import Checkpoints, read_checkpoint
from shotfit.training.loop import Training


def recipe(first=3, second=0, **training):
    stages = [Stage("layernorm", training={"iterations": first, **training})]
    if second:
        stages.append(Stage("linear", training={"iterations": second, **training}))
    return Recipe(tuple(stages))


def fitted(task, wanted, **options):
    return adapt(make_backbone(), make_support(task), wanted, task_facts(task), **options)


def test_the_update_the_batch_and_the_tensor_are_named(task):
    with pytest.raises(
        Diverged, match=r"^The loss is nan at update 2 of 3 \(batch 2\).*lower the learning rate"
    ) as raised:
        fitted(task, recipe(3, lr=1e35))
    assert isinstance(raised.value, UsageError) and raised.value.exit_code == 2


@pytest.mark.parametrize("spoiled", ["a tensor", "a gradient"])
def test_of_a_tensor_and_its_gradient_it_names_what_is_not_finite(task, spoiled, monkeypatch):
    """No update is made by such a loss: what was learned before it is as it was."""
    from shotfit.methods import get_method

    method = get_method("layernorm")(make_backbone(), template=task.support.template)
    support = make_support(task)
    method.setup(support)
    (name, first), *_ = [(n, p) for n, p in method.named_parameters() if p.requires_grad]
    before = {n: p.detach().clone() for n, p in method.named_parameters()}
    loss = method.loss

    def broken(*batch):
        if spoiled == "a tensor":
            first.data[0] = float("inf")
        output = loss(*batch)
        return type(output)(output.loss * float("nan"), output.logits)

    monkeypatch.setattr(method, "loss", broken)
    (config,) = method.published_training(task_facts(task))
    where = name if spoiled == "a tensor" else f"the gradient of {name}"
    with pytest.raises(Diverged, match=rf"\({where} is not finite\)"):
        list(Training(method, support, config))
    for key, value in method.named_parameters():
        changed = (value != before[key]).sum().item()
        assert changed == (spoiled == "a tensor" and key == name), key


@pytest.mark.parametrize("stages", [(1, 0), (1, 1)])
def test_what_the_last_update_has_spoiled_is_no_finished_classifier(tmp_path, stages):
    """After one update at 1e35 every loss that was seen is finite; so may be the tensors."""
    with pytest.raises(Diverged, match="not finite"):
        FewShotClassifier("iconclip", recipe(*stages, lr=1e35)).fit(
            shapes_dataset(3), shots=1, verbose=False
        )


def test_the_command_ends_with_a_sentence_and_saves_nothing(tmp_path, shotfit):
    out = tmp_path / "model"
    fit = ("fit", "digits", "--shots", 1, "--out", out, "-q", "-o", "training.lr=1e35")
    code, _, error = shotfit(*fit, "-o", "training.iterations=3")
    assert code == 2 and error.startswith("shotfit: The loss is nan at update 2 of 3")
    assert not out.exists()


def test_a_checkpoint_is_one_from_before(task, tmp_path, monkeypatch):
    """Due after every update, and the third one is spoiled: the second is what is kept."""
    checkpoints = Checkpoints(tmp_path, every=0)
    seen = []

    def spoil(method, stage, step):
        seen.append(step.iteration)
        if step.iteration == 3:
            next(p for p in method.parameters() if p.requires_grad).data[0] = float("nan")

    with pytest.raises(Diverged, match="is not finite after this update"):
        fitted(task, recipe(5), checkpoints=checkpoints, observe=spoil)
    kept = read_checkpoint(checkpoints.path)
    assert kept.state.iteration == 2 and seen == [1, 2, 3]
    assert finite.first_not_finite(kept.state.tensors.items()) is None


def test_the_error_says_which_state_is_kept(task, tmp_path, monkeypatch):
    checkpoints = Checkpoints(tmp_path, every=0)
    real = finite.check_loss

    def third(method, loss, where):
        real(method, float("nan") if "update 3 " in where else loss, where)

    monkeypatch.setattr("shotfit.training.loop.check_loss", third)
    with pytest.raises(Diverged) as raised:
        fitted(task, recipe(5), checkpoints=checkpoints)
    kept = f"The state after 2 updates of its round is kept in {checkpoints.path}."
    assert str(raised.value).endswith(kept)
    monkeypatch.undo()
    # And it is a state to go on from, to the same bits as if nothing had happened.
    again = fitted(task, recipe(5), checkpoints=Checkpoints(tmp_path, resume=True, every=1e9))
    whole = fitted(task, recipe(5))
    for one, other in zip(again.parameters(), whole.parameters(), strict=True):
        assert torch.equal(one, other)
