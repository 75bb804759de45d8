"""What is fitted on held-out shots: its losses, trainings and scores, against the formulas."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from shotfit.evaluation.assessment import _outlooks, _scores, assess
from shotfit.evaluation.calibration import (
    Calibration,
    Head,
    NameWithImages,
    crowd,
    illustrated_head,
    named_head,
    trained_head,
    typical_image,
    typical_name,
)
from shotfit.evaluation.calibration_fit import (
    _loss_of_names,
    _loss_with_images,
    _maximise,
    fit_calibration,
)
from shotfit.evaluation.cross_fitting import (
    Fold,
    HeldOut,
    ShotFeatures,
    _train,
    cross_fit,
    leave_classes_out,
    leave_images_out,
    mean_images,
    unit,
)
from shotfit.evaluation.folds import image_folds
from shotfit.evaluation.gaussians import gaussian_head
from shotfit.evaluation.reliability import softmax
from shotfit.methods.published import TrainConfig

NUMBERS = Calibration(
    row=0.5, image=0.3, level=-1, name=0.8, attraction=0.5, typical_image=0.1, typical_name=-0.2
)
FREE = {
    key: torch.tensor(getattr(NUMBERS, key), dtype=torch.float64)
    for key in ("row", "image", "level", "name", "attraction")
}
SCALE = 10.0


def directions(*shape, seed=0):
    return unit(np.random.default_rng(seed).normal(size=(*shape, 6))).astype(np.float32)


def episode():
    """Two classes with rows, of two and of one image, and two that are names, of three each."""
    labels = np.array([0, 0, 1, 2, 2, 2, 3, 3, 3])
    names = directions(4, seed=3)
    rows, means = directions(2, seed=1), directions(2, seed=2)
    return HeldOut(directions(9), labels, np.arange(9), rows, means, names, np.arange(4))


def entropy(logits, labels):
    """Of classes that count alike however many images they have."""
    right = -np.log(softmax(logits)[np.arange(len(labels)), labels])
    return np.mean([right[labels == label].mean() for label in np.unique(labels)])


@pytest.mark.parametrize("words", [0, 3])
def test_the_loss_of_names_is_that_of_the_logits_they_will_get(words):
    one = episode()
    names = np.concatenate([one.left_names, directions(5, seed=9)[:words]])
    trained = trained_head(NUMBERS, SCALE, one.rows, one.means).logits(one.images)
    named = named_head(NUMBERS, SCALE, names, one.means.mean(axis=0)).logits(one.images)
    assert (crowd(2, len(names)) > 0) is (words > 0)
    logits = np.concatenate([trained, named - crowd(2, len(names))], axis=1)
    found = _loss_of_names(one, names, NUMBERS, SCALE)(FREE)
    assert found.dtype == torch.float64
    assert found.item() == pytest.approx(entropy(logits, one.labels), rel=1e-5)


def test_what_gaussians_say_has_a_weight_of_its_own():
    said = Head(directions(2, seed=5), np.array([0.5, -0.5], np.float32))
    one = replace(episode(), gaussians=said)
    numbers = replace(NUMBERS, gaussian=0.7)
    free = {**FREE, "gaussian": torch.tensor(0.7)}
    trained = trained_head(NUMBERS, SCALE, one.rows, one.means).logits(one.images)
    trained = trained + 0.7 * (one.images @ said.weight.T + said.bias)
    assert np.allclose(
        trained_head(numbers, SCALE, one.rows, one.means, said).logits(one.images), trained
    )
    named = named_head(numbers, SCALE, one.left_names, one.means.mean(axis=0)).logits(one.images)
    expected = entropy(np.concatenate([trained, named], axis=1), one.labels)
    found = _loss_of_names(one, one.left_names, numbers, SCALE)(free)
    assert found.item() == pytest.approx(expected, rel=1e-5)
    with_images = _loss_with_images(one, numbers, SCALE, images=1, first=0)
    without = _loss_with_images(episode(), numbers, SCALE, images=1, first=0)
    assert with_images is not None and without is not None
    part = {key: torch.tensor(0.3) for key in ("name", "image", "level")}
    assert with_images(part).item() != pytest.approx(without(part).item(), rel=1e-3)
    # Where they tell classes apart, they get weight; where they say the wrong class, less.
    right = Head(10 * one.means, np.zeros(2, np.float32))
    wrong = Head(right.weight[::-1], right.bias)
    weights = [
        fit_calibration([replace(of_rows(one), gaussians=told)], directions(6, seed=8), SCALE)
        for told in (right, wrong)
    ]
    assert weights[0].gaussian > 3 * weights[1].gaussian > 0
    assert fit_calibration([episode()], directions(6, seed=8), SCALE).gaussian == 0


def of_rows(one):
    """The episode with images of kept classes that lie where their mean images do."""
    images = one.images.copy()
    images[:3] = one.means[one.labels[:3]]
    return replace(one, images=images, rows=directions(2, seed=7))


def test_gaussians_are_those_of_the_formula_and_of_the_size_of_all_shots():
    clean = directions(8, seed=1)
    views = torch.from_numpy(np.stack([clean, unit(clean + 0.1).astype(np.float32)]))
    labels = np.repeat([0, 2], 4)  # class 1 has no image
    head = gaussian_head(views, labels, 3, share=0.5)
    features = views.numpy().reshape(16, 6).astype(np.float64)
    both = np.tile(labels, 2)
    means = np.stack([features[both == label].mean(axis=0) for label in (0, 2)])
    residuals = features - means[np.searchsorted([0, 2], both)]
    scatter = 2 * residuals.T @ residuals
    precision = 6 * np.linalg.inv(scatter + np.trace(scatter) / 31 * np.eye(6))
    middle = means.mean(axis=0)
    x = directions(3, seed=4)
    expected = [
        [(mean - middle) @ precision @ (one - (mean + middle) / 2) for mean in means] for one in x
    ]
    assert np.allclose(head.logits(x)[:, [0, 2]], expected, rtol=1e-4, atol=1e-4)
    assert not head.weight[1].any() and head.bias[1] == 0


def test_gaussians_of_a_fold_know_nothing_of_what_it_leaves_out():
    given = features()
    folds = leave_classes_out(LABELS, 2, 3)
    held = cross_fit(given, folds, None, gaussians=True)
    assert all(part.gaussians is None for part in cross_fit(given, folds, None))
    for fold, part in zip(folds, held, strict=True):
        assert part.gaussians is not None and len(part.gaussians.weight) == len(part.rows)
        used = np.flatnonzero(fold.images)
        number = {int(label): place for place, label in enumerate(part.classes)}
        own = np.array([number[int(label)] for label in LABELS[used]])
        expected = gaussian_head(given.views[:, used], own, len(part.rows), len(used) / 24)
        assert np.allclose(part.gaussians.weight, expected.weight)
        assert np.allclose(part.gaussians.bias, expected.bias)


@pytest.mark.parametrize("first", [0, 1])
def test_the_loss_of_names_with_images_scores_the_images_that_are_not_given(first):
    one = episode()
    loss = _loss_with_images(one, NUMBERS, SCALE, images=1, first=first)
    assert loss is not None
    given = [3 + first, 6 + first]
    scored = [n for n in range(9) if n not in given]
    held = one.images[scored]
    part = NameWithImages(1, name=0.4, image=0.6, level=-0.7)
    answers = replace(NUMBERS, with_images=(part,))
    head = illustrated_head(answers, SCALE, one.left_names, one.images[given], [1, 1])
    trained = trained_head(NUMBERS, SCALE, one.rows, one.means).logits(held)
    logits = np.concatenate([trained, head.logits(held)], axis=1)
    free = {key: torch.tensor(getattr(part, key)) for key in ("name", "image", "level")}
    assert loss(free).item() == pytest.approx(entropy(logits, one.labels[scored]), rel=1e-5)
    # With all three given, none of them is left to be scored.
    assert _loss_with_images(one, NUMBERS, SCALE, images=3, first=first) is None


def test_the_maximum_lies_between_the_prior_and_the_images():
    """(level - 1)^2 with a prior around 0 of width 3 and strength 0.002: 1 / (1 + 0.002 / 9); a
    factor stays positive, and its prior is in its logarithm."""
    found = _maximise([lambda free: (free["level"] - 1) ** 2], {"level": 0.0})
    assert found["level"] == pytest.approx(1 / (1 + 0.002 / 9), abs=1e-6)
    found = _maximise([lambda free: free["name"]], {"name": 0.5})
    # The least of v + 0.002 (log(v / 0.5) / 0.5)^2 has v = -0.016 log(v / 0.5).
    assert found["name"] == pytest.approx(-0.016 * np.log(found["name"] / 0.5), rel=1e-3)


def test_outlooks_name_the_class_that_a_class_is_taken_for():
    probabilities = np.array(
        [
            [0.6, 0.3, 0.1],  # right
            [0.5, 0.1, 0.4],  # right
            [0.2, 0.1, 0.7],  # "c" for "a"
            [0.1, 0.8, 0.1],  # right
            [0.4, 0.5, 0.1],  # right
        ]
    )
    first, second = _outlooks(probabilities, np.array([0, 0, 0, 1, 1]), ["a", "b", "c"])
    assert (first.name, first.images, first.accuracy) == ("a", 3, pytest.approx(2 / 3))
    assert first.probability == pytest.approx((0.6 + 0.5 + 0.2) / 3)
    assert first.taken_for == "c"
    assert (second.name, second.images, second.accuracy) == ("b", 2, 1.0)
    assert second.taken_for is None


LABELS = np.repeat(np.arange(4), 6)


def features():
    generator = np.random.default_rng(0)
    centers = np.eye(4, 16)
    clean = unit(centers[LABELS] + generator.normal(size=(24, 16)) / 8)
    views = unit(clean + 0.05 * generator.normal(size=(3, 24, 16)))
    names = unit(centers + generator.normal(size=(4, 16)) / 4)
    views, clean, names = (
        torch.tensor(part, dtype=torch.float32) for part in (views, clean, names)
    )
    return ShotFeatures(views, clean, torch.tensor(LABELS), names, scale=20.0)


def test_a_training_without_classes_sees_all_folds_of_the_others_but_one():
    folds = leave_classes_out(LABELS, parts=2, folds=3)
    assert len(folds) == 6
    for fold in folds:
        assert fold.classes.sum() == 2
        # Two thirds of the six images of each class that is kept, and nothing of the others.
        assert np.bincount(LABELS[fold.images], minlength=4).tolist() == (4 * fold.classes).tolist()
    for part in (folds[:3], folds[3:]):
        of_kept = part[0].classes[LABELS]
        assert np.sum([~fold.images for fold in part], axis=0)[of_kept].tolist() == [1] * 12
    assert (folds[0].classes ^ folds[3].classes).all()


def test_the_draw_of_folds_is_that_of_seed_0_unless_another_is_asked_for():
    drawn = image_folds(LABELS, 3)
    assert [f.images.tolist() for f in leave_images_out(LABELS, 3)] == [
        ((drawn - first) % 3 < 2).tolist() for first in range(3)
    ]
    assert (
        image_folds(LABELS, 3, 0).tolist() == drawn.tolist() != image_folds(LABELS, 3, 1).tolist()
    )


def test_a_class_that_is_left_out_is_no_answer_while_the_others_train():
    """Its logit never counts, so that its row does not move; those of the others do."""
    given = features()
    fold = Fold(np.isin(LABELS, [0, 1]), np.array([True, True, False, False]))
    training = TrainConfig(lr=0.05, iterations=10, weight_decay=0.0)
    (rows,) = _train(given, [fold], training, seed=0)
    torch.testing.assert_close(rows[2:], F.normalize(given.names[2:], dim=-1))
    assert ((rows[:2] * given.names[:2]).sum(dim=1) < 0.999).all()


def test_scores_of_names_are_those_of_images_of_classes_left_out():
    given = features()
    training = TrainConfig(lr=0.05, iterations=5)
    episodes = cross_fit(given, leave_classes_out(LABELS, 2, 3), training)
    parts = cross_fit(given, leave_images_out(LABELS, 3), training)
    found = _scores(episodes, parts, NUMBERS, 20.0)
    assert len(found.familiarity) == len(found.nonconformity) == 24
    # Twelve images of the classes left out, in each of six episodes.
    assert len(found.familiarity_named) == len(found.nonconformity_named) == 72
    part = parts[0]
    logits = trained_head(NUMBERS, 20.0, part.rows, part.means).logits(part.images)
    right = np.arange(len(part.labels)), part.labels
    expected = -np.log(softmax(logits)[right])
    assert found.nonconformity[: len(part.labels)] == pytest.approx(expected, rel=1e-3)
    assert found.familiarity[: len(part.labels)] == pytest.approx(
        logits.max(axis=1) + 20 / 2 * (part.images @ part.means.T).max(axis=1), rel=1e-4
    )


def test_two_classes_are_assessed_and_one_or_too_few_shots_keep_their_levels():
    given = features()
    words = torch.tensor(directions(10, seed=4))
    words = F.pad(words, (0, 10))
    training = TrainConfig(lr=0.05, iterations=5)

    def of_classes(count, step=1):
        chosen = np.flatnonzero(np.isin(LABELS, range(count)))[::step]
        index = torch.tensor(chosen)
        return ShotFeatures(
            given.views[:, index],
            given.clean[index],
            given.labels[index],
            given.names[:count],
            given.scale,
        )

    assert assess(of_classes(2), words, training, "ab").expected is not None
    for few in (of_classes(1), of_classes(4, step=6)):
        found = assess(few, words, training, "abcd"[: len(few.names)])
        clean, labels = few.clean.numpy(), few.labels.numpy()
        means = mean_images(clean, labels, len(few.names))
        assert found.expected is None
        assert found.means == pytest.approx(means)
        assert found.calibration == replace(
            Calibration(),
            typical_image=typical_image(clean, labels, means),
            typical_name=typical_name(few.names.numpy(), means),
        )
