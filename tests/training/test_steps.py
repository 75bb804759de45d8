"""What a training step reports, what a classifier on cached views is shown, and the hints of a
backbone: numbers that a figure or a rule is made of."""

import itertools
import json
import shutil

import pytest
import torch
from conftest import make_backbone, make_support, tiny_clip, tiny_siglip
from torch import nn
from torch.nn import functional as F

from shotfit.adaptation import adapt
from shotfit.backbone import Backbone, Hints
from shotfit.errors import DataError
from shotfit.methods import get_method
from shotfit.methods.base import Method, StepOutput
from shotfit.methods.linear import LinearClassifier, LinearConfig
from shotfit.methods.published import TaskFacts, TrainConfig
from shotfit.recipe import Recipe, Stage
from shotfit.training.loop import train


class ThreeOfFour(Method):
    """Its logits are right for the first three images of four, whatever is learned."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.shift = nn.Parameter(torch.zeros(()))

    def batches(self, support, batch_size, drop_last):
        labels = torch.tensor([0, 1, 2, 0])
        answers = torch.tensor([0, 1, 2, 1])
        yield from itertools.repeat((F.one_hot(answers, 3).float(), labels))

    def loss(self, inputs, labels, names):
        logits = 2 * inputs + self.shift
        return StepOutput(F.cross_entropy(logits, labels), logits)


@pytest.mark.parametrize("micro_batch", [None, 1, 3, 64])
def test_a_step_reports_the_loss_and_the_accuracy_in_percent_of_its_batch(support, micro_batch):
    config = TrainConfig(iterations=2, batch_size=4, micro_batch=micro_batch, schedule="constant")
    steps = list(train(ThreeOfFour(make_backbone()), support, config))
    logits = torch.tensor([[2.0, 0, 0], [0, 2, 0], [0, 0, 2], [0, 2, 0]])
    expected = F.cross_entropy(logits, torch.tensor([0, 1, 2, 0])).item()
    for number, step in enumerate(steps, 1):
        assert (step.iteration, step.total, step.lr) == (number, 2, 2e-4)
        assert step.accuracy == pytest.approx(75.0)
        assert step.loss == pytest.approx(expected)


def test_an_epoch_of_cached_views_has_every_image_once_each_in_a_view_of_its_own(task):
    views = 3

    def epochs(seed, count=40):
        """Of each epoch, the (view, image) behind every label that was given."""
        support = make_support(task, seed)
        classifier = LinearClassifier(
            get_method("layernorm")(make_backbone()), LinearConfig(views=views)
        )
        classifier.setup(support)
        images = len(support)
        places = torch.cartesian_prod(torch.arange(views), torch.arange(images))
        classifier.features = places.reshape(views, images, 2)
        batches = classifier.batches(support, batch_size=5, drop_last=False)
        for _ in range(count):
            seen = []
            while len(seen) < images:
                places, labels = next(batches)
                assert torch.equal(labels, support.labels[places[:, 1]])
                seen += places.tolist()
            yield seen

    first = list(epochs(seed=1))
    images = len(task.support.examples)
    for seen in first:
        assert sorted(image for _, image in seen) == list(range(images))
        assert len({view for view, _ in seen}) > 1
    orders = {tuple(image for _, image in seen) for seen in first}
    assert len(orders) == len(first)
    for image in range(images):
        assert {view for seen in first for view, other in seen if other == image} == {0, 1, 2}
    assert first == list(epochs(seed=1)) != list(epochs(seed=2))


def test_hints_are_read_from_beside_the_weights(checkpoint, tmp_path):
    assert Backbone.from_pretrained(str(checkpoint)).hints == Hints(0.0, 1.0)
    assert Backbone.from_pretrained("iconclip").hints == Hints(0.5, 3.8)
    folder = shutil.copytree(checkpoint, tmp_path / "clip")
    hints = {"crop_scale_min": 0.25, "classifier_lr_scale": 3.0}
    (folder / "shotfit.json").write_text(json.dumps(hints))
    assert Backbone.from_pretrained(str(folder)).hints == Hints(0.25, 3.0)
    (folder / "shotfit.json").write_text('{"crop": 1}')
    with pytest.raises(DataError, match="shotfit.json cannot be used"):
        Backbone.from_pretrained(str(folder))


def test_hints_bound_the_crops_and_scale_the_second_stage_alone(task, monkeypatch):
    """Not the first stage, and no learning rate that a user named."""
    rates: dict[int, list[float]] = {}
    scales = []
    facts = TaskFacts("shapes", "base_to_novel", shots=4, classes=3, images=12)

    def fit(training):
        rates.clear()
        backbone = make_backbone()
        backbone.hints = Hints(crop_scale_min=0.5, classifier_lr_scale=3.0)
        stages = (Stage("layernorm", training=training), Stage("linear", training=training))
        support = make_support(task)
        original = type(support).batches

        def batches(self, *arguments, crop_scale, **options):
            scales.append(crop_scale)
            return original(self, *arguments, crop_scale=crop_scale, **options)

        monkeypatch.setattr(type(support), "batches", batches)
        adapt(
            backbone,
            support,
            Recipe(stages, iters_per_shot=1, first_fraction=0.5),
            facts,
            observe=lambda _, stage, step: rates.setdefault(stage, []).append(step.lr),
        )
        monkeypatch.undo()
        return [rates[stage][0] for stage in (0, 1)]

    assert fit({}) == pytest.approx([2e-4, 6e-4])
    assert scales == [(0.5, 1.0)] * 2
    assert fit({"lr": 1e-3}) == pytest.approx([1e-3, 1e-3])


def test_a_backbone_in_double_precision_trains_both_stages(task):
    facts = TaskFacts("shapes", "base_to_novel", shots=4, classes=3, images=12)
    recipe = Recipe((Stage("layernorm"), Stage("linear")), iters_per_shot=1, first_fraction=0.5)
    losses = {}
    for dtype in (torch.float32, torch.float64):
        steps = []
        method = adapt(
            make_backbone().to(dtype),
            make_support(task),
            recipe,
            facts,
            observe=lambda _, stage, step, steps=steps: steps.append((stage, step.loss)),
        )
        assert method.get_parameter("weight").dtype == dtype
        losses[dtype] = [loss for _, loss in steps]
        assert [stage for stage, _ in steps] == [0, 0, 1, 1]
    assert losses[torch.float32] == pytest.approx(losses[torch.float64], rel=1e-4)


@pytest.mark.parametrize("family", ["clip", "siglip"])
def test_a_backbone_has_the_parameters_of_its_model_and_no_others(family):
    def count(module):
        return sum(p.numel() for p in module.parameters())

    model = {"clip": tiny_clip, "siglip": tiny_siglip}[family]()
    assert count(make_backbone(family=family)) == count(model)
