"""A recipe carried out: what every stage is given, and in what state the method is handed over."""

import torch
from conftest import make_backbone, make_support

from shotfit.adaptation import adapt
from shotfit.methods.layernorm import LayerNorm
from shotfit.methods.linear import LinearClassifier
from shotfit.methods.published import TaskFacts
from shotfit.recipe import Recipe, Stage

FACTS = TaskFacts("shapes", "base_to_novel", shots=4, classes=3, images=12)
BRIEF = {"iters_per_shot": 1, "first_fraction": 0.5}


def adapted(task, *stages, seed=0, validation=None, **options):
    return adapt(
        make_backbone(),
        make_support(task),
        Recipe(stages, **BRIEF),
        FACTS,
        validation=validation,
        generator=torch.Generator().manual_seed(seed),
        **options,
    )


def test_random_starts_come_from_the_generator_that_is_given(task):
    still = {"lr": 0.0, "weight_decay": 0.0, "iterations": 1}
    first, same, other = (
        adapted(task, Stage("coop", {"ctx_init": None}, still), seed=seed).learned_state()
        for seed in (3, 3, 4)
    )
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_both_stages_have_their_options_and_the_method_is_left_as_in_use(task):
    method = adapted(task, Stage("layernorm", {"norms": "all"}), Stage("linear", {"views": 2}))
    assert isinstance(method, LinearClassifier) and isinstance(method.inner, LayerNorm)
    assert method.config.views == 2
    assert method.inner.config.norms == "all"
    assert method.trained_names == tuple(task.support.classnames)
    assert not method.training and not method.inner.training


def test_a_method_finishes_on_its_support_and_validation_without_gradients(task, monkeypatch):
    seen = []

    def finish(self, support, validation):
        seen.append((support, validation, torch.is_grad_enabled(), self.training))

    monkeypatch.setattr(LayerNorm, "finish", finish)
    validation = make_support(task, seed=7)
    adapted(task, Stage("layernorm", training={"iterations": 1}), validation=validation)
    ((support, given, gradients, training),) = seen
    assert [e.key for e in support.split.examples] == [e.key for e in task.support.examples]
    assert given is validation
    assert (gradients, training) == (False, False)


def test_an_observer_sees_every_update_of_every_stage(task):
    seen = []
    stages = (Stage("layernorm"), Stage("linear"))
    method = adapted(
        task, *stages, observe=lambda made, stage, step: seen.append((made, stage, step))
    )
    assert [(stage, step.iteration, step.total) for _, stage, step in seen] == [
        (0, 1, 2),
        (0, 2, 2),
        (1, 1, 2),
        (1, 2, 2),
    ]
    assert [made for made, _, _ in seen] == [method.inner, method.inner, method, method]


def test_a_text_is_made_from_the_template_of_the_task(task):
    assert adapted(task, Stage("zero_shot")).template == task.support.template
