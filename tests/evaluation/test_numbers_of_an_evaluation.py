"""Every number of an evaluation, against values worked out by hand."""

import numpy as np
import pytest

from shotfit.averages import Proportion
from shotfit.evaluation.evaluation import Evaluation
from shotfit.evaluation.reliability import calibration_error, chance_error, reliability
from shotfit.evaluation.unknown_names import UnknownName, meant, places

# Five images of three classes; "c", the novel one, has one. A fourth name has none.
LABELS = [0, 0, 1, 1, 2]
ANSWERS = [0, 1, 1, 1, 0]


def evaluation(**changes):
    logits = np.zeros((5, 4), np.float32)
    logits[range(5), ANSWERS] = 2
    logits[4] = [3, 0, 1, 0]
    values = {
        "names": ("a", "b", "c", "d"),
        "trained": (True, True, False, False),
        "keys": tuple("vwxyz"),
        "labels": np.array(LABELS),
        "logits": logits,
        "scored": "test images",
        "zero_shot": np.eye(4, dtype=np.float32)[[0, 0, 0, 1, 2]],
    }
    return Evaluation(**{**values, **changes})


def test_accuracy_confusion_and_f1():
    found = evaluation()
    assert found.accuracy == Proportion(3, 5)
    assert found.zero_shot_accuracy == Proportion(4, 5)
    assert found.confusion.tolist() == [[1, 1, 0, 0], [0, 2, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]]
    a, b, c, d = found.per_class
    assert (a.accuracy, a.answers, a.f1) == (Proportion(1, 2), 2, 50)
    assert (b.accuracy, b.answers, b.f1) == (Proportion(2, 2), 3, 80)
    assert (c.accuracy, c.answers, c.f1) == (Proportion(0, 1), 0, 0)
    assert (d.accuracy, d.answers, d.f1) == (Proportion(0, 0), 0, 0)
    assert (a.zero_shot, b.zero_shot) == (Proportion(2, 2), Proportion(1, 2))
    # "d" has neither images nor answers: nothing can be said of it.
    assert found.macro_f1 == pytest.approx((50 + 80 + 0) / 3)


def test_base_and_novel_among_all_names_and_among_their_own():
    joint = evaluation().parts
    assert set(joint) == {"joint", "base_in_joint", "novel_in_joint"}
    assert joint["base_in_joint"].accuracy == Proportion(3, 4)
    assert joint["novel_in_joint"].accuracy == Proportion(0, 1)
    halves = evaluation(halves=True)
    assert halves.parts["base"].accuracy == Proportion(3, 4)
    # Among "c" and "d" alone its logit of 1 wins.
    assert halves.parts["novel"].accuracy == Proportion(1, 1)
    assert halves.metrics["harmonic_mean"] == pytest.approx(2 * 75 * 100 / 175)
    assert halves.metrics["joint_harmonic_mean"] == 0
    trained = evaluation(labels=np.array([0, 0, 1, 1, 1]))
    assert set(trained.parts) == {"joint"}


def test_top5_needs_more_than_five_names():
    assert evaluation().top5 is None
    many = Evaluation(
        names=tuple("abcdefg"),
        trained=(True,) * 7,
        keys=("x", "y"),
        labels=np.array([4, 6]),
        logits=np.array([[7, 6, 5, 4, 3, 2, 1]] * 2, dtype=np.float32),
        scored="test images",
    )
    assert many.top5 == Proportion(1, 2)


def test_plain_values_are_json_and_predictions_name_every_image():
    import json

    found = evaluation()
    plain = json.loads(json.dumps(found.plain()))
    assert plain["accuracy"]["percent"] == 60
    assert plain["accuracy"]["interval"] == pytest.approx(Proportion(3, 5).interval)
    assert plain["accuracy"]["images"] == plain["images"] == 5
    assert (plain["scored"], plain["among"]) == ("test images", "the classifier's names")
    assert plain["zero_shot"]["percent"] == 80 and plain["top5"] is None
    assert plain["confusion"][0] == [1, 1, 0, 0]
    joint = plain["parts"]["base_in_joint"]
    assert (joint["accuracy"]["percent"], joint["accuracy"]["images"]) == (75, 4)
    part = found.parts["base_in_joint"]
    assert joint["calibration_error"] == part.calibration_error
    assert joint["calibration_error_by_chance"] == part.chance_error
    first, _, _, last = plain["classes"]
    assert first["accuracy"] == {
        "percent": 50,
        "interval": pytest.approx(Proportion(1, 2).interval),
        "images": 2,
    }
    kept = {key: first[key] for key in ("name", "trained", "f1", "answers")}
    assert kept == {"name": "a", "trained": True, "f1": 50, "answers": 2}
    assert first["zero_shot"]["percent"] == 100
    assert (last["name"], last["trained"], last["accuracy"]) == ("d", False, None)
    row = found.predictions()[1]
    assert (row["image"], row["class"], row["answer"]) == ("w", "a", "b")
    assert row["probability"] == pytest.approx(np.exp(2) / (np.exp(2) + 3), abs=1e-6)
    assert row["logits"] == [0, 2, 0, 0]


@pytest.mark.parametrize(
    ("right", "images", "low", "high"),
    # R: binom::binom.confint(method = "wilson"); the last two by the formula's limits.
    [(8, 10, 49.01625, 94.33178), (0, 10, 0, 27.75328), (10, 10, 72.24672, 100), (0, 0, 0, 100)],
)
def test_wilson_interval(right, images, low, high):
    assert Proportion(right, images).interval == pytest.approx((low, high), abs=1e-4)


def test_calibration_error_by_hand():
    sure = np.array([0.95, 0.95, 0.55, 0.55])
    right = np.array([True, False, True, True])
    # Two bins of two images: gaps |0.95 - 0.5| and |0.55 - 1|.
    assert calibration_error(sure, right, bins=10) == pytest.approx(45)
    assert [part.count for part in reliability(sure, right, bins=10)] == [2, 2]
    assert calibration_error(np.zeros(0), np.zeros(0, dtype=bool)) == 0
    # Of a single image with confidence 0.5 the gap is 0.5, whether right or wrong.
    assert chance_error(np.array([0.5])) == pytest.approx(50)


def test_names_are_known_as_they_are_spelt_and_asked_about_otherwise():
    known = ("nominal", "polar bear", "crane", "crane")
    assert places(["Nominal", "crane", "crane", "crane"], known) == (None, 2, 3, None)
    assert meant("Nominal", known) == "nominal"
    assert meant("polar_bear", known) == meant("Polar-Bear", known) == "polar bear"
    assert meant("polar bears", known) == "polar bear"
    assert meant("teapot", known) is None
    assert str(UnknownName("Nominal", 1, "nominal")) == (
        "'Nominal' (1 image; did you mean 'nominal'?)"
    )
    assert str(UnknownName("teapot", 2, None)) == "'teapot' (2 images)"
    left_out = evaluation(trained_on=3, unknown=(UnknownName("teapot", 2, None),)).plain()
    assert left_out["left_out_as_trained_on"] == 3
    assert left_out["unknown_names"] == [{"name": "teapot", "images": 2, "meant": None}]
