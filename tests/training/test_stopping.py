"""`first_fraction="auto"`: rules see the support set alone, disturb nothing, and decide well."""

import dataclasses
import inspect
import itertools
import math
import random

import pytest
import torch
from conftest import make_backbone, make_support, shapes_dataset
from stopping import policies
from stopping.agreement import IMAGES, ClassAgreement, draws
from stopping.signals import GradientEvidence, TextDrift, TrainingFit

from shotfit import adaptation
from shotfit.adaptation import adapt
from shotfit.config import from_dict, to_dict
from shotfit.data.dataset import select_classes
from shotfit.data.sources.demo import list_tasks
from shotfit.data.sources.demo import load as load_embedded
from shotfit.data.task import make_task
from shotfit.errors import UsageError
from shotfit.evaluation.vocabulary import VOCABULARY
from shotfit.methods import get_method
from shotfit.methods.published import TaskFacts, TrainConfig
from shotfit.plan import plan
from shotfit.recipe import Recipe, Stage, one_stage, two_stage
from shotfit.training.loop import TrainStep, train
from shotfit.training.stopping import (
    MAX_FRACTION,
    MIN_FRACTION,
    FirstStage,
    LeaveClassesOut,
)

RULES = [LeaveClassesOut, GradientEvidence, TextDrift, TrainingFit, ClassAgreement]
FACTS = TaskFacts("shapes", "base_to_novel", shots=4, classes=4, images=16)


@pytest.fixture(scope="module")
def task():
    return make_task(shapes_dataset(8), "base_to_novel", shots=4, seed=1)


def first_stage(task, iterations=16, **changes):
    training = TrainConfig(iterations=iterations, batch_size=8, **changes)
    config = get_method("layernorm").Config()
    return FirstStage("layernorm", config, training, make_backbone(), make_support(task))


def fitted(task, recipe, steps=None):
    def observe(method, stage, step):
        if steps is not None:
            steps.append((stage, step.iteration, step.total, step.loss))

    method = adapt(
        make_backbone(),
        make_support(task),
        recipe,
        FACTS,
        generator=torch.Generator().manual_seed(1),
        observe=observe,
    )
    return method.state_dict()


def equal(one, other):
    return set(one) == set(other) and all(torch.equal(one[key], other[key]) for key in one)


def test_auto_is_a_value_of_the_fraction():
    recipe = two_stage(iters_per_shot=5, first_fraction="auto")
    assert from_dict(Recipe, to_dict(recipe)) == recipe
    assert from_dict(Recipe, {**to_dict(recipe), "first_fraction": "0.4"}).first_fraction == 0.4
    with pytest.raises(UsageError, match="first_fraction"):
        from_dict(Recipe, {**to_dict(recipe), "first_fraction": "automatic"})
    stages = plan(recipe, FACTS)
    assert [training.iterations for _, _, (training,) in stages] == [16, 4]


def test_auto_equals_the_fraction_that_was_chosen(task, monkeypatch):
    """A rule that decides beforehand gives exactly what that fraction would have given."""
    chosen = []

    class Spy(LeaveClassesOut):
        def fraction(self, stage):
            chosen.append(super().fraction(stage))
            return chosen[-1]

    monkeypatch.setattr(adaptation, "AUTO", Spy)
    automatic = fitted(task, two_stage(iters_per_shot=5, first_fraction="auto"))
    assert MIN_FRACTION <= chosen[0] <= MAX_FRACTION
    assert equal(automatic, fitted(task, two_stage(iters_per_shot=5, first_fraction=chosen[0])))


@pytest.mark.parametrize("stop_at", [1, 7, 16])
def test_a_rule_may_stop_the_run_and_the_second_stage_gets_the_rest(task, monkeypatch, stop_at):
    class StopAt:
        def fraction(self, stage):
            return MAX_FRACTION

        def stop(self, method, step):
            return step.iteration == stop_at

    monkeypatch.setattr(adaptation, "AUTO", StopAt)
    steps = []
    fitted(task, two_stage(iters_per_shot=5, first_fraction="auto"), steps)
    assert [step[0] for step in steps] == [0] * stop_at + [1] * (20 - stop_at)


@pytest.mark.parametrize("rule", RULES)
def test_rules_leave_the_run_alone(task, rule):
    """Deciding before and watching during the run change neither its losses nor its state."""
    runs = []
    for watched in (False, True):
        stage = first_stage(task)
        decides = rule()
        if watched:
            state, python_state = torch.get_rng_state(), random.getstate()
            before = {key: value.clone() for key, value in stage.backbone.state_dict().items()}
            stream = stage.support.stream.getstate()
            decides.fraction(stage)
            assert equal(before, stage.backbone.state_dict())
            assert stage.support.stream.getstate() == stream
            assert torch.equal(state, torch.get_rng_state())
            assert random.getstate() == python_state
            assert all(not p.requires_grad for p in stage.backbone.parameters())
        method = get_method("layernorm")(stage.backbone, stage.config)
        method.setup(stage.support)
        losses = []
        for step in train(method, stage.support, stage.training):
            losses.append(step.loss)
            if watched:
                decides.stop(method, step)
                assert method.training
        runs.append((losses, method.state_dict()))
    assert runs[0][0] == runs[1][0]
    assert equal(runs[0][1], runs[1][1])


def test_no_rule_is_given_what_it_must_not_see(task):
    """The stage holds the base classes' support images and nothing of validation or test."""
    stage = first_stage(task)
    fields = {field.name for field in dataclasses.fields(stage)}
    assert fields == {"method", "config", "training", "backbone", "support"}
    assert stage.support.split is task.support
    for rule in RULES:
        assert list(inspect.signature(rule.fraction).parameters) == ["self", "stage"]
        assert list(inspect.signature(rule.stop).parameters) == ["self", "method", "step"]


def test_leave_classes_out_is_deterministic_and_bounded(task):
    rules = [LeaveClassesOut(checks=4) for _ in range(2)]
    fractions = [rule.fraction(first_stage(task)) for rule in rules]
    assert fractions[0] == fractions[1]
    assert rules[0].curve == rules[1].curve
    assert [round(fraction, 3) for fraction, _ in rules[0].curve] == [0, 0.2, 0.4, 0.6, 0.8]


def test_leave_classes_out_takes_the_maximum(task, monkeypatch):
    curve = iter([0.30, 0.50, 0.62, 0.64, 0.63, 0.55, 0.50, 0.40, 0.30])
    monkeypatch.setattr("shotfit.training.stopping._right", lambda *_: next(curve))
    rule = LeaveClassesOut(checks=8)
    assert rule.fraction(first_stage(task)) == pytest.approx(0.3)


def test_leave_classes_out_needs_classes_to_spare():
    small = make_task(shapes_dataset(6), "base_to_novel", shots=4, seed=1)
    with pytest.raises(UsageError, match="at least four"):
        LeaveClassesOut().fraction(first_stage(small))


def test_subset_keeps_names_with_their_images(task):
    half = select_classes(task.support.examples, task.support, [2, 0])
    names = task.support.classnames
    assert half.classnames == (names[2], names[0])
    for example in half.examples:
        assert half.classnames[example.label] in example.key


def step(iteration, accuracy=50.0, total=80):
    return TrainStep(iteration, total, 1.0, accuracy, 1e-3)


def gradients(method, mean, noise, stream):
    for parameter in method.parameters():
        if parameter.requires_grad:
            parameter.grad = mean + noise * torch.randn(parameter.shape, generator=stream)


@pytest.mark.parametrize(("mean", "stops"), [(0.0, False), (1.0, True)])
def test_evidence_tells_signal_from_noise(task, mean, stops):
    """Gradients with a mean of a noise's size are informative; with none, the value is near 0."""
    method = get_method("layernorm")(make_backbone())
    rule, stream = GradientEvidence(every=40), torch.Generator().manual_seed(0)
    for iteration in range(1, 41):
        gradients(method, mean, 1.0, stream)
        rule.stop(method, step(iteration))
    ((_, value),) = rule.history
    if stops:
        assert value < -20
    else:
        assert abs(value) < 0.15


def test_evidence_has_no_value_from_constant_gradients(task):
    method = get_method("layernorm")(make_backbone())
    rule = GradientEvidence(every=3)
    for iteration in range(1, 4):
        gradients(method, 0.0, 0.0, torch.Generator())
        rule.stop(method, step(iteration))
    assert math.isfinite(rule.history[0][1])


def test_drift_is_zero_at_zero_shot_and_grows(task):
    stage = first_stage(task)
    rule = TextDrift(every=1)
    rule.fraction(stage)
    method = get_method("layernorm")(stage.backbone, stage.config)
    assert rule.measure(method, step(1)) == pytest.approx(0, abs=1e-5)
    drifts = []
    for scale in (0.05, 0.2):
        with torch.no_grad():
            for block in stage.backbone.text.blocks:
                noise = torch.randn(48, generator=torch.Generator().manual_seed(1))
                block.norm1.weight += scale * noise
        drifts.append(rule.measure(method, step(1)))
    assert 0 < drifts[0] < drifts[1]


def test_agreement_is_of_the_gradients_of_the_halves_own_losses(task):
    """One for a half with itself; the value of two halves from gradients taken one by one."""
    stage = first_stage(task)
    rule = ClassAgreement(every=1)
    rule.fraction(stage)
    assert all(len(names) == len(task.support.classnames) // 2 for names, _ in rule._halves)
    assert not set(rule._halves[0][0]) & set(rule._halves[1][0])
    batches = [next(images) for _, images in rule._halves]
    rule._halves = [
        (names, itertools.repeat(batch))
        for (names, _), batch in zip(rule._halves, batches, strict=True)
    ]
    method, _ = stage.fresh(task.support, 1)
    value = rule.measure(method, step(1))
    flat = []
    for (names, _), (pixels, labels) in zip(rule._halves, batches, strict=True):
        method.zero_grad()
        logits = method(pixels, method.encode_classes(names))
        torch.nn.functional.cross_entropy(logits, labels).backward()
        grads = [p.grad for p in method.parameters() if p.requires_grad]
        flat.append(torch.cat([grad.flatten() for grad in grads if grad is not None]))
    expected = torch.dot(*flat) / flat[0].norm() / flat[1].norm()
    assert value == pytest.approx(expected.item(), abs=1e-5)
    assert abs(expected.item()) < 0.999
    # Smoothed over three: two of the halves, one of a half with itself.
    rule._halves = [rule._halves[0]] * 2
    assert rule.measure(method, step(2)) == pytest.approx((expected.item() + 1) / 2, abs=1e-5)
    method.zero_grad()
    rule.measure(method, step(3))
    assert all(p.grad is None for p in method.parameters())


def test_agreement_leaves_dropout_as_it_was(task):
    """Masks are drawn from the run's own stream: watching takes none of them."""
    runs = []
    for watched in (False, True):
        rule = ClassAgreement(every=1)
        config = get_method("lora").Config()
        training = TrainConfig(iterations=4, batch_size=8)
        stage = FirstStage("lora", config, training, make_backbone(), make_support(task))
        rule.fraction(stage)
        method, support = stage.fresh(task.support, 1)
        losses = []
        for one in train(method, support, training):
            losses.append(one.loss)
            if watched:
                rule.stop(method, one)
        runs.append(losses)
    assert runs[0] == runs[1]


def test_agreement_draws_every_image_equally_often():
    labels = torch.arange(24)
    drawn = torch.cat([one for _, one in itertools.islice(draws(labels, labels, 1), 3)])
    assert len(drawn) == 3 * IMAGES and drawn.bincount().unique().tolist() == [2]


def test_signals_stop_past_their_threshold_but_not_too_early(task):
    rule, method = TrainingFit(threshold=90, every=2), get_method("zero_shot")(make_backbone())
    rule.fraction(first_stage(task))
    stops = [rule.stop(method, step(i, accuracy=95.0)) for i in range(1, 15)]
    # A tenth of the budget is an eighth of the longest first stage: iteration 10 of 80.
    assert stops.index(True) + 1 == 10
    assert not any(rule.stop(method, step(i, accuracy=85.0)) for i in range(20, 30))


def test_what_auto_cannot_share_is_refused(task):
    with pytest.raises(UsageError, match="between two stages"):
        fitted(task, one_stage("layernorm", first_fraction="auto"))
    with pytest.raises(UsageError, match="between 0 and 1"):
        fitted(task, two_stage(first_fraction=1.5))


def test_auto_works_through_a_run(task):
    recipe = Recipe((Stage("layernorm"), Stage("linear")), iters_per_shot=5, first_fraction="auto")
    steps = []
    fitted(task, recipe, steps)
    assert len(steps) == 20


# The policies of the study, on records whose answer is known.


def record(task, peak, seed=1):
    """A cell whose accuracies peak at `peak`, with a drift that equals the fraction."""
    tenths = [i / 10 for i in range(1, 9)]
    places = []
    for fraction in tenths:
        high = 60 - 20 * abs(fraction - peak) + seed
        found = {"base": high, "novel": high / 2, "harmonic_mean": high / 1.5}
        places.append({"fraction": fraction, **found})
    ramp = [[10 * i, i / 20] for i in range(1, 17)]
    signals = {"drift": ramp, "fit": ramp, "evidence": ramp}
    signals["agreement"] = [[at, -value] for at, value in ramp]
    return {
        "task": task,
        "method": "layernorm",
        "seed": seed,
        "options": {"iters_per_shot": 50, "shots": 4},
        "places": places,
        "signals": signals,
        "leave_classes_out": [[f, -abs(f - peak)] for f in (0.0, *tenths)],
        "published_alpha_own_cosine": None,
        "seconds": dict.fromkeys(("first_stage", "leave_classes_out", *signals), 1.0),
    }


def test_policies_find_known_places():
    records = [record(task, 0.3, seed) for task in "abc" for seed in (1, 2)]
    chosen = {name: policy(records[0]) for name, policy in policies.policies(records).items()}
    assert chosen["published alpha"] == 0.6
    assert chosen["best alpha in hindsight"] == chosen["leave classes out"] == 0.3
    assert chosen["text drift"] == pytest.approx(0.3, abs=0.05)
    assert chosen["class agreement"] == pytest.approx(0.3, abs=0.05)
    # Of base 61.5 and novel 30.75, less that of 55.5 and 27.75 at the published alpha.
    assert "| leave classes out | 0.30 | 61.50 | 30.75 | 41.00 | +4.00 ± 0.00 |" in (
        policies.table(records)
    )


def test_no_task_decides_its_own_threshold():
    """A task that wants to stop early is given what the others want."""
    records = [record("early", 0.1), *(record(task, 0.7) for task in "abc")]
    rule = policies.calibrated(records, "drift")
    assert rule(records[0]) == pytest.approx(0.7, abs=0.051)
    # Nor do its own images under another shift.
    shifted = [record("early@blur", 0.1), record("early@noise", 0.1), *records[1:]]
    rule = policies.calibrated(shifted, "drift")
    assert rule(shifted[0]) == pytest.approx(0.7, abs=0.051)


def test_each_suite_has_its_own_tables():
    shifted = [record(f"{task}@blur", 0.7) for task in "ab"]
    plain = [record(task, 0.3) for task in "ab"]
    both = policies.by_suite([*plain, *shifted])
    assert list(both.values()) == [plain, shifted]
    assert "| best alpha in hindsight | 0.70 |" in policies.tables(shifted)
    assert "| leave classes out | 1.000 |" in policies.tables(plain)
    assert "| layernorm | -0.050 (0.000) | -0.200 (0.000) |" in policies.tables(plain)
    assert list(policies.by_suite(plain)) == ["On the embedded suite"]


def test_vocabulary_names_no_class_of_the_suite():
    assert len(set(VOCABULARY)) == len(VOCABULARY) > 100
    names = {name for task in list_tasks() for name in load_embedded(task).classnames}
    assert not names & set(VOCABULARY)
