"""What shots say about a classifier: levels, thresholds, sets and expected accuracy, by value."""

import math

import numpy as np
import pytest
import torch

from shotfit.errors import UsageError
from shotfit.evaluation.assessment import assess
from shotfit.evaluation.calibration import (
    Calibration,
    NameWithImages,
    crowd,
    illustrated_head,
    named_head,
    trained_head,
)
from shotfit.evaluation.conformal import limit, nonconformity, prediction_sets
from shotfit.evaluation.cross_fitting import (
    ShotFeatures,
    cross_fit,
    leave_classes_out,
    leave_images_out,
    unit,
)
from shotfit.evaluation.expected import CurvePoint, expect
from shotfit.evaluation.rejection import familiarity, refused, threshold
from shotfit.methods.published import TrainConfig

NUMBERS = Calibration(
    row=0.5, image=0.25, level=-1, name=0.8, attraction=0.5, typical_image=0.1, typical_name=0.2
)


def test_trained_classes_and_names_stand_where_the_formula_puts_them():
    x = np.array([[0.6, 0.8]], np.float32)
    rows, means = np.array([[1, 0]], np.float32), np.array([[0, 1]], np.float32)
    # 10 (0.5 0.6 + 0.25 (0.8 - 0.1)) - 1
    assert trained_head(NUMBERS, 10, rows, means).logits(x)[0, 0] == pytest.approx(3.75)
    names = np.array([[0, 1], [1, 0]], np.float32)
    # 10 (0.8 0.8 - 0.5 (1 - 0.2)) and 10 (0.8 0.6 - 0)
    found = named_head(NUMBERS, 10, names, np.array([0, 1], np.float32)).logits(x)
    assert found[0] == pytest.approx([2.4, 4.8], abs=1e-5)
    given = Calibration(
        typical_image=0.1,
        with_images=(NameWithImages(1, 0.6, 0.2, -0.5), NameWithImages(4, 0.4, 0.4, -1.5)),
    )
    middle = given.of_images(2)
    assert (middle.name, middle.image, middle.level) == pytest.approx((0.5, 0.3, -1))
    assert given.of_images(16).name == 0.4
    # 10 (0.5 0.6 + 0.3 (0.8 - 0.1)) - 1
    assert illustrated_head(given, 10, rows, means, [2]).logits(x)[0, 0] == pytest.approx(4.1)


def test_many_names_count_less_each():
    assert crowd(10, 10) == crowd(10, 3) == crowd(0, 5) == 0
    assert crowd(10, 20) == pytest.approx(2 * math.log(2))


def test_a_threshold_refuses_the_rate_it_was_asked_for():
    scores = np.arange(1.0, 20)
    assert threshold(scores, 0.1) == 2
    assert threshold(scores, 0.05) == 1
    with pytest.raises(UsageError, match=r"smallest rate they can is 5\.0%"):
        threshold(scores, 0.04)
    low = refused(np.array([1.0, 1, 3]), np.array([True, False, True]), scores, scores - 5, 0.1)
    assert low.tolist() == [True, False, False]
    images = np.eye(2, dtype=np.float32)
    found = familiarity(np.array([[1.0, 3], [2, 0]]), images, images[:1], 10)
    assert found == pytest.approx([3 + 5, 2])


def test_sets_hold_the_right_class_as_often_as_they_promise():
    scores = np.arange(1.0, 10)
    assert limit(scores, 0.8) == 8
    with pytest.raises(UsageError, match=r"cannot promise 95%: the most they can is 90\.0%.* 19"):
        limit(scores, 0.95)
    logits = np.log(np.array([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3]]))
    assert np.exp(-nonconformity(logits, 3)) == pytest.approx(np.exp(logits))
    assert prediction_sets(logits, 3, -math.log(0.29), 0).tolist() == [
        [True, True, False],
        [False, True, True],
    ]
    # A third column that is a name keeps its own limit, and changes no trained class.
    sets = prediction_sets(logits, 2, -math.log(0.35), -math.log(0.2))
    assert sets.tolist() == [[True, False, False], [False, True, True]]
    generator = np.random.default_rng(0)
    covered = []
    for _ in range(2000):
        draw = generator.normal(size=20)
        covered.append(draw[0] <= limit(draw[1:], 0.9))
    # (19 + 1) 0.9 is whole: exactly 90 % on average; three standard errors are 2 points.
    assert np.mean(covered) == pytest.approx(0.9, abs=0.02)


def test_the_expected_accuracy_is_the_line_at_all_shots():
    def at(log_odds):
        return 1 / (1 + math.exp(-log_odds))

    # A quarter is what new images are harder than those that the first stage was trained on.
    points = [
        CurvePoint(share, at(1.25 + 0.4 * math.log2(share)), 10**6) for share in (0.25, 0.5, 1)
    ]
    found = expect(points)
    assert found.level_variance == pytest.approx(0.15**2, rel=1e-3)
    assert found.accuracy() == pytest.approx(100 * at(1), abs=0.01)
    assert found.accuracy(2) == pytest.approx(100 * at(1.4), abs=0.01)
    assert found.gain()[0] == pytest.approx(100 * (at(1.4) - at(1)), abs=0.01)
    # With the last quarter missing, the line goes on.
    ahead = expect([CurvePoint(p.share * 0.75, p.accuracy, p.images) for p in points])
    assert ahead.level == pytest.approx(1 + 0.4 * math.log2(4 / 3), abs=0.01)
    few = expect([CurvePoint(0.75, 0.8, 40)])
    low, high = few.interval()
    assert low < few.accuracy() < high
    wider = few.interval(images=50)
    assert wider[0] < low and wider[1] > high
    assert few.gain()[1] < few.gain()[0] < few.gain()[2]


LABELS = np.repeat(np.arange(4), 4)


def features(noise=0.5, seed=0):
    """Shots around four directions of sixteen, and names that only half know them."""
    generator = np.random.default_rng(seed)
    centers = np.eye(4, 16)
    clean = unit(centers[LABELS] + noise * generator.normal(size=(16, 16)) / 4)
    views = unit(clean + 0.05 * generator.normal(size=(3, 16, 16)))
    names = unit(centers + generator.normal(size=(4, 16)) / 4)
    views, clean, names = (
        torch.tensor(part, dtype=torch.float32) for part in (views, clean, names)
    )
    return ShotFeatures(views, clean, torch.tensor(LABELS), names, scale=20.0)


def test_every_image_is_left_out_once_and_says_nothing_of_itself():
    folds = leave_images_out(LABELS, 4)
    assert np.sum([~fold.images for fold in folds], axis=0).tolist() == [1] * 16
    training = TrainConfig(lr=0.05, iterations=12)
    held = cross_fit(features(), folds, training)
    assert sorted(np.concatenate([part.index for part in held]).tolist()) == list(range(16))
    # Another picture in place of a left-out image changes no row of its fold.
    changed = features()
    place = int(held[0].index[0])
    changed.views[:, place] = torch.nn.functional.normalize(torch.ones(3, 16), dim=-1)
    again = cross_fit(changed, folds, training)
    assert np.array_equal(again[0].rows, held[0].rows)
    assert not np.array_equal(again[1].rows, held[1].rows)


def test_classes_left_out_are_numbered_behind_the_others():
    folds = leave_classes_out(LABELS, 2, 2)
    assert len(folds) == 4
    for part in cross_fit(features(), folds, TrainConfig(lr=0.05, iterations=4)):
        assert (len(part.rows), len(part.left_names)) == (2, 2)
        assert sorted(part.classes.tolist()) == [0, 1, 2, 3]
        new = part.labels >= 2
        assert (LABELS[part.index] == part.classes[part.labels]).all()
        assert new.sum() == 8


def test_an_assessment_tells_easy_shots_from_hard_ones_and_repeats():
    words = torch.nn.functional.normalize(
        torch.randn(40, 16, generator=torch.Generator().manual_seed(0)), dim=-1
    )
    training, names = TrainConfig(lr=0.05, iterations=30), ["a", "b", "c", "d"]
    easy = assess(features(0.3), words, training, names)
    hard = assess(features(3.0), words, training, names)
    assert easy.expected is not None and hard.expected is not None
    assert easy.expected.accuracy() > hard.expected.accuracy() + 10
    # Held-out shots are answered by what is kept, without another factor.
    assert easy.calibration.sharpness == hard.calibration.sharpness == 1
    assert len(easy.scores.nonconformity) == 16
    assert [outlook.images for outlook in easy.expected.classes] == [4] * 4
    again = assess(features(0.3), words, training, names)
    assert again.calibration == easy.calibration
    # Too few shots to hold any out: the defaults, and nothing promised.
    one = features(0.3)
    single = ShotFeatures(one.views[:, ::4], one.clean[::4], one.labels[::4], one.names, one.scale)
    assert assess(single, words, training, names).expected is None
