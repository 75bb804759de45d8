"""Plans and recipes by value: who trains for how long, with what, under which name."""

import dataclasses

import pytest

from shotfit.errors import UsageError
from shotfit.methods.linear import LinearConfig
from shotfit.methods.published import TaskFacts, TrainConfig
from shotfit.plan import _overridden, _shortened, _spread, plan
from shotfit.recipe import Overrides, Recipe, Stage, named_recipe, one_stage, two_stage
from shotfit.training.stopping import MAX_FRACTION

FACTS = TaskFacts("shapes", "base_to_novel", shots=4, classes=3, images=12)


def iterations(recipe, facts=FACTS):
    return [[t.iterations for t in trainings] for _, _, trainings in plan(recipe, facts)]


def test_two_stages_share_m_times_the_shots_by_alpha():
    """M = 300 and alpha 0.6, LoRA's 0.3 (paper, section 5.1); what is cut off goes to stage 2."""
    assert iterations(two_stage()) == [[720], [480]]
    assert iterations(two_stage("lora")) == [[360], [840]]
    assert iterations(two_stage(iters_per_shot=10, first_fraction=0.33)) == [[13], [27]]
    assert iterations(two_stage(first_fraction="auto")) == [[int(1200 * MAX_FRACTION)], [240]]
    assert iterations(two_stage(first_fraction=0.999)) == [[1198], [2]]
    for fraction in (0, 1, -0.5, 1.5):
        with pytest.raises(UsageError, match="between 0 and 1"):
            plan(two_stage(first_fraction=fraction), FACTS)


def test_a_method_alone_has_its_published_training_or_the_shared_budget():
    assert iterations(one_stage("lora")) == [[1200]]
    ((_, _, (coop,)),) = plan(one_stage("coop"), FACTS)
    assert (coop.iterations, coop.epochs) == (None, 200)
    ((_, _, (shared,)),) = plan(one_stage("coop", budget="shared", iters_per_shot=7), FACTS)
    assert (shared.iterations, shared.epochs) == (28, None)
    assert dataclasses.replace(shared, iterations=None, epochs=200) == coop


def test_rounds_share_a_budget_and_the_first_get_what_is_over():
    rounds = tuple(TrainConfig(epochs=9, lr=lr) for lr in (1.0, 2.0, 3.0))
    shared = _spread(rounds, 8)
    assert [(t.iterations, t.epochs, t.lr) for t in shared] == [
        (3, None, 1.0),
        (3, None, 2.0),
        (2, None, 3.0),
    ]
    assert [t.iterations for t in _spread(rounds, 3)] == [1, 1, 1]
    assert _spread((), 5) == ()
    with pytest.raises(UsageError, match=r"leaves 2 iterations for 3 round\(s\)"):
        _spread(rounds, 2)
    # PLOT++ has two rounds: 28 iterations of the budget, as a first stage 0.3 of its epochs.
    assert iterations(one_stage("plot_pp", budget="shared", iters_per_shot=7)) == [[14, 14]]
    facts = dataclasses.replace(FACTS, images=64)
    first, second = iterations(two_stage("plot_pp"), facts)
    assert first == [30 * 2, 30 * 2] and second == [1200 - 360]


def test_a_first_stage_in_epochs_keeps_its_share_and_on_imagenet_of_ten_at_most():
    facts = dataclasses.replace(FACTS, images=320)
    rounds = (TrainConfig(epochs=50, lr=0.5), TrainConfig(epochs=4), TrainConfig(iterations=90))
    for dataset, expected in (("shapes", [150, 12, 27]), ("imagenet", [30, 12, 27])):
        cut = _shortened(rounds, dataclasses.replace(facts, dataset=dataset), 0.3)
        assert [(t.iterations, t.epochs) for t in cut] == [(n, None) for n in expected]
        assert cut[0].lr == 0.5
    (least,) = _shortened((TrainConfig(iterations=2),), facts, 0.1)
    assert least.iterations == 1


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"epochs": 3}, (None, 3, 1.0)),
        ({"iterations": 5}, (5, None, 1.0)),
        ({"lr": 0.1}, (8, None, 0.1)),
    ],
)
def test_another_number_of_epochs_or_iterations_takes_the_place_of_both(change, expected):
    rounds = (TrainConfig(iterations=8, lr=1.0), TrainConfig(iterations=8, lr=1.0))
    found = _overridden(rounds, change)
    assert [(t.iterations, t.epochs, t.lr) for t in found] == [expected] * 2


def test_options_reach_the_stage_they_are_for():
    overrides = Overrides(
        {"iters_per_shot": 10},
        {"rank": "3", "linear.views": 2, "training.lr": "0.5", "blocks": "None"},
    )
    first, second = plan(overrides.applied(two_stage("lora")), FACTS)
    assert (first.config.rank, first.config.blocks) == (3, None)
    assert second.config == LinearConfig(views=2)
    assert [t.lr for t in (*first.trainings, *second.trainings)] == [0.5, 0.5]
    assert (first.trainings[0].iterations, second.trainings[0].iterations) == (12, 28)
    with pytest.raises(UsageError, match="Options are NAME, training.NAME or linear.NAME"):
        Overrides(options={"second.views": 2}).applied(two_stage())
    for options in ({"linear.nosuch": 1}, {"training.nosuch": 1}):
        with pytest.raises(UsageError, match="nosuch"):
            Overrides(options=options).applied(one_stage("lora"))
    with pytest.raises(UsageError, match=r"lr is an option of the training.*training\.lr"):
        plan(Overrides(options={"lr": 0.5}).applied(two_stage()), FACTS)


def test_what_is_given_twice_is_what_was_given_last():
    recipe = Recipe((Stage("lora", {"rank": 4, "alpha": 2.0}, {"lr": 0.1, "eps": 1e-6}),))
    changed = Overrides(options={"rank": 8, "training.lr": 0.2}).applied(recipe)
    (stage,) = changed.stages
    assert stage.options == {"rank": 8, "alpha": 2.0}
    assert stage.training == {"lr": 0.2, "eps": 1e-6}


def test_recipes_that_make_no_sense_are_refused():
    linear, lora = Stage("linear"), Stage("lora")
    for stages, message in (
        ((), "one or two stages, got 0"),
        ((lora, linear, linear), "one or two stages, got 3"),
        ((linear,), "is a second stage"),
        ((lora, lora), "second stage of a recipe is 'linear'"),
        ((Stage("zero_shot"), linear), "trains nothing that classes share"),
    ):
        with pytest.raises(UsageError, match=message):
            plan(Recipe(stages), FACTS)


def test_words_for_recipes():
    assert named_recipe("2sfs") == Recipe((Stage("layernorm"), Stage("linear")))
    assert named_recipe("2SFS") == named_recipe("2sfs:layernorm") == two_stage("layernorm")
    assert named_recipe("2sfs:clip-lora", iters_per_shot=5) == Recipe(
        (Stage("clip_lora"), Stage("linear")), iters_per_shot=5
    )
    assert named_recipe("clip-lora", budget="shared") == one_stage("clip_lora", budget="shared")
    form = named_recipe("tip-adapter-f")
    assert form == Recipe((Stage("tip_adapter", {"finetune": True}),))
    with pytest.raises(UsageError, match="tip-adapter-f is a form"):
        named_recipe("2sfs:tip-adapter-f")
    for name in ("nosuch", "lora:coop", "2sfs:nosuch"):
        with pytest.raises(UsageError, match="nosuch|lora:coop"):
            named_recipe(name)
