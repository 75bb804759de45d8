"""Base, novel, joint and their harmonic means, by value, from logits written by hand."""

import pytest
import torch
from conftest import SPEC, make_backbone
from PIL import Image
from torch.nn import functional as F

from shotfit.averages import harmonic_mean
from shotfit.data.dataset import Dataset, Example, Split
from shotfit.evaluation.metrics import accuracy, evaluate, predict_logits
from shotfit.experiment import Experiment, run
from shotfit.methods.base import ClassEmbeddings, Method
from shotfit.records import read_record, write_record

NAMES = ("red", "green", "blue", "cat", "dog")
BASE, NOVEL = NAMES[:3], NAMES[3:]
# The label within its own half, then the logits of the five names. Five base images and four novel
# ones, three base classes and two novel: no count stands for another.
BASE_IMAGES = [
    (0, (9, 1, 2, 3, 4)),  # right among all names
    (1, (1, 9, 2, 3, 4)),  # right among all names
    (2, (1, 2, 9, 3, 4)),  # right among all names
    (2, (1, 2, 5, 3, 8)),  # right among base names, a novel name among all
    (0, (1, 7, 2, 3, 4)),  # wrong
]
NOVEL_IMAGES = [
    (1, (1, 2, 3, 4, 9)),  # right among all names
    (1, (8, 2, 3, 4, 5)),  # right among novel names, a base name among all
    (0, (2, 8, 3, 5, 4)),  # right among novel names, a base name among all
    (0, (1, 2, 3, 4, 9)),  # wrong
]
# The values that follow from the comments above; the harmonic means are 2ab / (a + b).
EXPECTED = {
    "base": 80.0,
    "novel": 75.0,
    "harmonic_mean": 2 * 80 * 75 / 155,
    "base_in_joint": 60.0,
    "novel_in_joint": 25.0,
    "joint_harmonic_mean": 2 * 60 * 25 / 85,
    "joint": 100 * 4 / 9,
}


class Table(Method):
    """A method whose logits are looked up: image n is of the shade 20 n."""

    rows = tuple(logits for _, logits in (*BASE_IMAGES, *NOVEL_IMAGES))

    def encode_classes(self, names):
        columns = torch.tensor([NAMES.index(name) for name in names])
        return ClassEmbeddings(tuple(names), F.one_hot(columns, len(NAMES)), (-1,) * len(names))

    def forward(self, pixels, classes: ClassEmbeddings):
        assert not self.training
        shades = (pixels[:, 0, 5, 5] * SPEC.std[0] + SPEC.mean[0]) / SPEC.scale
        numbers = (shades / 20).round().long()
        return torch.tensor(self.rows, dtype=torch.float32)[numbers] @ classes.weight.float().T


class Bound(Table):
    """The same, and it cannot score names it was not trained on."""

    open_vocabulary = False


def split(names, images, first):
    examples = tuple(
        Example(f"{n}.png", label, Image.new("RGB", (40, 40), (20 * n,) * 3))
        for n, (label, _) in enumerate(images, first)
    )
    return Split(names, examples)


BASE_SPLIT = split(BASE, BASE_IMAGES, 0)
NOVEL_SPLIT = split(NOVEL, NOVEL_IMAGES, len(BASE_IMAGES))
TESTS = {"base": BASE_SPLIT, "novel": NOVEL_SPLIT}


@pytest.fixture
def method():
    return Table(make_backbone())


def test_accuracy_is_in_percent():
    logits = torch.tensor([[2.0, 1.0], [0.0, 1.0], [5.0, 4.0], [1.0, 3.0]])
    assert accuracy(logits, torch.tensor([0, 0, 0, 1])) == 75.0
    assert accuracy(logits, torch.tensor([1, 0, 1, 0])) == 0.0


@pytest.mark.parametrize(("base", "novel", "mean"), [(80, 75, 12000 / 155), (0, 50, 0), (0, 0, 0)])
def test_harmonic_mean(base, novel, mean):
    assert harmonic_mean(base, novel) == pytest.approx(mean)


def test_base_novel_and_joint_by_value(method):
    assert evaluate(method, TESTS) == pytest.approx(EXPECTED)


def test_one_split_is_scored_among_its_own_names_under_its_own_key(method):
    examples = tuple(Example(e.key, e.label + 3, e.image) for e in NOVEL_SPLIT.examples)
    everything = Split(NAMES, BASE_SPLIT.examples + examples)
    assert evaluate(method, {"all": everything}) == pytest.approx({"all": 100 * 4 / 9})
    assert evaluate(method, {"shifted": NOVEL_SPLIT}) == {"shifted": 75.0}


def test_a_bound_method_is_scored_on_base_alone():
    assert evaluate(Bound(make_backbone()), TESTS) == {"base": 80.0}


@pytest.mark.parametrize("training", [True, False])
def test_evaluating_leaves_the_mode_as_it_was_and_takes_no_gradient(method, training):
    method.train(training)
    evaluate(method, TESTS)
    assert method.training is training
    logits = predict_logits(method, BASE_SPLIT, method.encode_classes(NAMES), batch_size=2)
    assert method.training is training
    assert logits.tolist() == [list(map(float, logits)) for _, logits in BASE_IMAGES]


def test_no_images_have_no_logits(method):
    classes = method.encode_classes(NAMES)
    assert predict_logits(method, Split(NAMES, ()), classes).shape == (0, 5)


def test_a_record_holds_the_metrics_of_the_task(monkeypatch, tmp_path):
    """From test images to the record: the halves are those of the dataset, in order."""
    train = tuple(Example(f"t{n}", n, Image.new("RGB", (40, 40))) for n in range(5))
    test = BASE_SPLIT.examples + tuple(
        Example(e.key, e.label + 3, e.image) for e in NOVEL_SPLIT.examples
    )
    dataset = Dataset("table", NAMES, train, (), test)
    monkeypatch.setattr("shotfit.experiment.fit_task", lambda *_, **__: Table(make_backbone()))
    experiment = Experiment(source="", data={}, setting="base_to_novel", shots=1)
    record, _ = run(experiment, dataset=dataset)
    assert record.metrics == pytest.approx(EXPECTED)
    counts = [(1, 2), (1, 1), (2, 2), (1, 2), (2, 2)]
    names = [("base", name) for name in BASE] + [("novel", name) for name in NOVEL]
    told = [[*name, *count] for name, count in zip(names, counts, strict=True)]
    assert record.classes == told
    assert read_record(write_record(tmp_path, record)).classes == told
