"""Presets, how long they take, and fits that end on time."""

import dataclasses
import json
import math
import time
from typing import Any

import pytest
import torch
import yaml
from conftest import make_backbone, make_support, shapes_dataset

from shotfit import pace as pace_module
from shotfit.adaptation import adapt
from shotfit.classifier import FewShotClassifier
from shotfit.data.task import make_task
from shotfit.errors import UsageError
from shotfit.evaluation.vocabulary import VOCABULARY
from shotfit.methods.published import TaskFacts
from shotfit.pace import Deadline, Pace, expected_seconds, measure_pace, strongest_within
from shotfit.plan import plan
from shotfit.presets import PRESETS, get_preset
from shotfit.recipe import Recipe, Stage, one_stage, two_stage
from shotfit.timed_plan import chosen_recipe, duration

CPU = torch.device("cpu")
FACTS = TaskFacts("shapes", "base_to_novel", shots=16, classes=24, images=384)
# ViT-B/16 on two cores, to the order.
PACE = Pace(reading=0.01, image=0.2, classes=1.0, slowdown={"fp32": 2.5, "bf16": 1.5}, row=0.002)


@pytest.fixture(scope="module")
def task():
    return make_task(shapes_dataset(4), "base_to_novel", shots=2, seed=1)


def test_presets_go_from_quick_to_strong():
    assert list(PRESETS) == ["instant", "fast", "balanced", "published"]
    totals = [sum(expected_seconds(p.on(CPU), FACTS, PACE)) for p in PRESETS.values()]
    assert totals == sorted(totals)
    assert PRESETS["published"].on(CPU) == two_stage()
    for preset in PRESETS.values():
        assert plan(preset.on(CPU), FACTS)
    with pytest.raises(UsageError, match="fast"):
        get_preset("fats")


def test_presets_take_bf16_where_the_device_has_it(monkeypatch):
    def precisions(name):
        return {stage.training.get("precision") for stage in get_preset(name).on(CPU).stages}

    monkeypatch.setattr("shotfit.presets.quick_precision", lambda device: "bf16")
    assert precisions("fast") == precisions("balanced") == {"bf16"}
    assert precisions("published") == precisions("instant") == {None}
    monkeypatch.setattr("shotfit.presets.quick_precision", lambda device: "fp32")
    assert precisions("fast") == {"fp32"}


def test_expected_seconds_by_value():
    """16 shots of 24 classes: 4,800 updates, 2,880 of them the first stage's, 32 images each."""
    images, reading = 384, 384 * 0.01
    published = expected_seconds(two_stage(), FACTS, PACE)
    assert published == pytest.approx(
        (reading + 2880 * 2.5 * (32 * 0.2 + 1.0), 1920 * (32 * 0.2 + 0.002))
    )
    instant = expected_seconds(PRESETS["instant"].recipe, FACTS, PACE)
    (*_, words) = expected_seconds(PRESETS["instant"].recipe, FACTS, PACE, assessed=True)
    assert words == pytest.approx(PACE.classes * len(VOCABULARY) / FACTS.classes)
    assert instant == pytest.approx((reading + images * 0.2 + 1.0,))
    views = Recipe((Stage("layernorm"), Stage("linear", {"views": 8})), first_fraction=0.5)
    quick = dataclasses.replace(
        views,
        stages=tuple(dataclasses.replace(s, training={"precision": "bf16"}) for s in views.stages),
    )
    assert expected_seconds(quick, FACTS, PACE) == pytest.approx(
        (reading + 2400 * 1.5 * 7.4, 8 * images * 0.2 + 2400 * 0.002)
    )
    # Five passes over the images, and eight times the updates.
    *same, assessing = expected_seconds(quick, FACTS, PACE, assessed=True)
    assert tuple(same) == expected_seconds(quick, FACTS, PACE)
    assert assessing == pytest.approx(5 * images * 0.2 + 8 * 2400 * 0.002)
    with pytest.raises(UsageError, match="coop"):
        expected_seconds(one_stage("coop"), FACTS, PACE)


def test_the_strongest_that_fits_is_chosen(monkeypatch):
    monkeypatch.setattr("shotfit.presets.quick_precision", lambda device: "bf16")
    backbone = make_backbone()
    totals = {n: sum(expected_seconds(p.on(CPU), FACTS, PACE)) for n, p in PRESETS.items()}
    for name, seconds in totals.items():
        choice = strongest_within(seconds / 0.84, backbone, FACTS, PACE)
        assert choice.preset.name == name
        assert sum(choice.seconds) == seconds
    with pytest.raises(UsageError, match="instant.* give more minutes"):
        strongest_within(totals["instant"], backbone, FACTS, PACE)


def test_measuring_leaves_backbone_and_stream_as_they_are(task):
    backbone, support = make_backbone(), make_support(task)
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    state = support.stream.getstate()
    measured = measure_pace(backbone, support)
    assert support.stream.getstate() == state
    assert all(torch.equal(value, before[name]) for name, value in backbone.state_dict().items())
    assert not any(parameter.requires_grad for parameter in backbone.parameters())
    for value in (measured.image, measured.classes, measured.row, *measured.slowdown.values()):
        assert 0 < value < math.inf
    assert "fp32" in measured.slowdown


class Clock:
    """Seconds that pass with updates only."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def adapted(task, clock, deadline, second=1.0):
    recipe = Recipe(
        (
            Stage("layernorm", training={"iterations": 10}),
            Stage("linear", training={"iterations": 5}),
        )
    )
    steps = []

    def observe(method, stage, step):
        clock.now += second
        steps.append((stage, step.iteration, step.total))

    facts = TaskFacts("shapes", "base_to_novel", 2, 2, 4)
    method = adapt(
        make_backbone(), make_support(task), recipe, facts, observe=observe, deadline=deadline
    )
    return method, [sum(stage == number for stage, _, _ in steps) for number in (0, 1)]


def test_a_fit_on_time_is_not_cut(task):
    clock = Clock()
    _, counts = adapted(task, clock, Deadline(clock.now + 16, (10, 5), clock))
    assert counts == [10, 5]
    free, _ = adapted(task, Clock(), None)
    same, _ = adapted(task, clock, Deadline(clock.now + 16, (10, 5), clock))
    state = free.learned_state()
    assert all(torch.equal(state[name], value) for name, value in same.learned_state().items())


def test_a_slow_fit_leaves_the_first_stage_early_and_ends_on_time(task):
    """Updates take twice as long: the second stage then needs twice its time, too."""
    clock = Clock()
    started = clock.now
    method, counts = adapted(task, clock, Deadline(started + 20, (10, 5), clock), second=2.0)
    assert counts == [5, 5]
    assert clock.now - started == 20
    assert method.trained_names == make_support(task).classnames


def test_no_stage_runs_past_the_deadline(task):
    clock = Clock()
    started = clock.now
    _, counts = adapted(task, clock, Deadline(started + 3, (10, 5), clock))
    # A stage has to make one update before it can be asked.
    assert counts == [1, 2]
    assert clock.now - started == 3


@pytest.mark.slow
def test_minutes_are_kept_on_the_wall(checkpoint, monkeypatch):
    """The plan is told that updates are free; the deadline alone holds it to its time."""
    monkeypatch.setattr(pace_module, "MARGIN", 1e9)
    started = time.monotonic()
    classifier = FewShotClassifier(str(checkpoint), minutes=0.1).fit(shapes_dataset(4), shots=6)
    assert time.monotonic() - started < 1.1 * 6
    assert classifier.experiment.recipe == two_stage()
    assert classifier.predict(shapes_dataset(4).test[0].image) in classifier.classes


def test_a_classifier_takes_a_preset_or_minutes(checkpoint, tmp_path):
    classifier = FewShotClassifier(str(checkpoint), preset="instant")
    classifier.fit(shapes_dataset(4), shots=2)
    assert [stage.method for stage in classifier.experiment.recipe.stages] == ["gda"]
    again = FewShotClassifier.from_pretrained(classifier.save_pretrained(tmp_path / "saved"))
    image = shapes_dataset(4).test[0].image
    assert again.predict(image) == classifier.predict(image)
    twice: list[dict[str, Any]]
    twice = [{"method": "2sfs", "preset": "fast"}, {"preset": "fast", "minutes": 2.0}]
    for given in twice:
        with pytest.raises(UsageError, match="give one"):
            FewShotClassifier(str(checkpoint), **given)
    for minutes in (0, -1, math.nan, math.inf):
        with pytest.raises(UsageError, match="positive"):
            chosen_recipe(None, None, minutes, CPU)


def test_minutes_choose_a_preset(checkpoint, monkeypatch):
    monkeypatch.setattr("shotfit.timed_plan.measure_pace", lambda *_: PACE)
    facts = TaskFacts("shapes", "all_to_all", 1, 4, 4)
    seconds = sum(expected_seconds(PRESETS["fast"].on(CPU), facts, PACE, assessed=True))
    classifier = FewShotClassifier(str(checkpoint), minutes=(seconds / 0.85 + 5) / 60)
    classifier.fit(shapes_dataset(4), shots=1)
    assert classifier.experiment.recipe == PRESETS["fast"].on(CPU)


def test_durations_as_people_say_them():
    assert [duration(s) for s in (4.6, 89, 90, 3600, 5400, 46800)] == [
        *("5 s", "89 s", "2 min", "60 min", "1.5 h", "13.0 h")
    ]


def test_fit_prints_the_plan_before_and_the_time_after(shotfit, tmp_path):
    out = tmp_path / "model"
    code, text, err = shotfit(
        *("fit", "digits", "--shots", "1", "--preset", "instant", "--out", out)
    )
    assert code == 0
    assert "Plan: instant (" in err and "about" in err
    assert "foreseen" in text
    config = yaml.safe_load((out / "config.yaml").read_text())
    assert config["preset"] == "instant" and "method" not in config
    record = json.loads((out / "record.json").read_text())
    assert record["experiment"]["recipe"]["stages"][0]["method"] == "gda"


@pytest.mark.parametrize(
    "words", [("--option", "norms=all"), ("--precision", "bf16"), ("--preset", "fast")]
)
def test_minutes_refuse_what_they_decide(shotfit, tmp_path, words):
    code, _, err = shotfit("fit", "digits", "--minutes", "1", *words, "--out", tmp_path / "m")
    assert code == 2
    assert "give one" in err or "leave out one" in err
