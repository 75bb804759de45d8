"""What a user can ask of an answer: names with images, none of these, and prediction sets."""

import json

import numpy as np
import pytest
import torch
from conftest import COLORS, shapes_dataset, skip_on_another_draw

from shotfit.classes import ClassList
from shotfit.classifier import FewShotClassifier
from shotfit.errors import DataError, UsageError
from shotfit.evaluation.inference import mean_embedding
from shotfit.recipe import Recipe, Stage

RECIPE = Recipe(
    (
        Stage("layernorm", training={"iterations": 4, "lr": 1e-2}),
        Stage("linear", training={"iterations": 60, "lr": 3e-2}),
    )
)


def fit(checkpoint, classes=4, train=8, recipe=RECIPE):
    return FewShotClassifier(str(checkpoint), recipe).fit(shapes_dataset(classes, train=train))


@pytest.fixture(scope="module")
def trained(checkpoint, tmp_path_factory):
    return fit(checkpoint).save_pretrained(tmp_path_factory.mktemp("saved") / "model")


@pytest.fixture
def fitted(trained):
    return FewShotClassifier.from_pretrained(trained)


def pictures(name, count=5):
    data = shapes_dataset(6, train=8)
    label = COLORS.index(name)
    return [example.image for example in data.test if example.label == label][:count]


def rows_of(classifier, names=None):
    """The row of each class, (classes, dim)."""
    head = classifier.scorer(names).head
    assert head is not None
    return head.weight


def write(folder, images):
    folder.mkdir()
    for number, image in enumerate(images):
        image.save(folder / f"{number}.png")
    return folder


def test_a_name_with_images_is_found_saved_listed_and_removed(fitted, tmp_path, shotfit):
    shown, others = pictures("purple")[:3], pictures("purple")[3:]
    by_name = FewShotClassifier.from_pretrained(fitted.save_pretrained(tmp_path / "by name"))
    by_name.add_classes(["purple"])
    fitted.add_classes({"purple": shown})
    place = fitted.classes.index("purple")
    assert (
        fitted.predict_proba(others)[:, place].mean()
        > by_name.predict_proba(others)[:, place].mean()
    )
    # The trained classes are what they were: nothing was trained.
    assert fitted.known.classes.origins[-1] == ("purple", "name and 3 images")
    mean = mean_embedding(fitted.method, shown)
    assert torch.allclose(fitted.known.means[0], mean)
    assert mean.norm().item() == pytest.approx(1)
    folder = fitted.save_pretrained(tmp_path / "saved")
    again = FewShotClassifier.from_pretrained(folder)
    assert np.array_equal(again.predict_proba(others), fitted.predict_proba(others))
    # Asked for by name among others, it has its images too.
    among = [*fitted.classes[:2], "purple"]
    assert np.array_equal(
        rows_of(again, among)[2] / rows_of(again)[place],
        np.ones(fitted.method.backbone.dim, np.float32),
    )
    code, text, _ = shotfit("list-classes", folder, "--json")
    assert code == 0
    assert json.loads(text)[-1] == {"name": "purple", "origin": "name and 3 images"}
    again.remove_classes(["purple"])
    assert again.classes == fitted.classes[:-1]
    again.add_classes(["orange"])
    assert again.known.classes.images == (3, 0)
    assert np.count_nonzero(rows_of(again)) > 0


def test_the_command_takes_names_with_folders(trained, tmp_path, shotfit):
    folder = write(tmp_path / "photos", pictures("purple"))
    out = tmp_path / "out"
    code, text, _ = shotfit("add-classes", trained, f"purple={folder}", "orange", "--out", out)
    assert code == 0 and "6 classes" in text
    known = FewShotClassifier.from_pretrained(out).known.classes
    assert known.origins[4:] == (("purple", "name and 5 images"), ("orange", "name"))
    for wrong in (f"={folder}", "purple="):
        code, _, err = shotfit("add-classes", trained, wrong, "--out", out)
        assert code == 2 and "NAME=FOLDER" in err
    code, _, err = shotfit("add-classes", trained, f"purple={tmp_path / 'none'}", "--out", out)
    assert code == 3
    empty = tmp_path / "empty"
    empty.mkdir()
    code, _, err = shotfit("add-classes", trained, f"purple={empty}", "--out", out)
    assert code == 3 and "No images" in err


def test_images_are_for_methods_with_one_embedding_of_a_class(checkpoint):
    plain = FewShotClassifier(str(checkpoint), "zero_shot").fit(shapes_dataset(4), shots=1)
    plain.add_classes({"purple": pictures("purple")})
    weight = plain.scorer().classes.weight[-1]
    text = plain.method.encode_classes(["purple"]).weight[0]
    # As published there is no level: halfway between the two.
    wanted = torch.nn.functional.normalize(
        text + mean_embedding(plain.method, pictures("purple")), dim=-1
    )
    assert torch.allclose(weight, wanted, atol=1e-6)
    with pytest.raises(DataError, match="no images of 'orange'"):
        plain.add_classes({"orange": []})
    several = FewShotClassifier(str(checkpoint), "prototypes").fit(shapes_dataset(4), shots=1)
    with pytest.raises(UsageError, match="more than one embedding"):
        several.add_classes({"purple": pictures("purple")})


def test_classes_with_images_as_values():
    known = ClassList.of(["a", "b"]).with_added(["c", "d"], [2, 0])
    assert known.origins == (
        ("a", "trained"),
        ("b", "trained"),
        ("c", "name and 2 images"),
        ("d", "name"),
    )
    without = known.without(["a"])
    # By name alone a trained class comes back; with images it is another one.
    assert without.with_added(["a"]).origins[-1] == ("a", "trained")
    assert without.with_added(["a"], [1]).origins[-1] == ("a", "name and 1 image")


def test_images_that_are_none_of_these_are_refused(fitted):
    known = [image for name in fitted.classes for image in pictures(name)]
    noise = np.random.default_rng(0).integers(0, 256, (8, 32, 32, 3), dtype=np.uint8)
    strict = fitted.predict(known, reject=0.3)
    lenient = fitted.predict(known, reject=0.04)
    assert strict.count(None) >= lenient.count(None)
    # What is not refused is answered as ever.
    plain = fitted.predict(known)
    assert all(one in (None, other) for one, other in zip(strict, plain, strict=True))
    # The rate is one of trained images: of the shots held out, by the very threshold.
    from shotfit.evaluation.rejection import threshold

    scores = fitted.assessment.scores.familiarity
    assert len(scores) == 32
    assert (scores < threshold(scores, 0.3)).mean() <= 0.3
    assert (
        fitted.predict(noise[0], reject=0.3) is None or len(fitted.predict(noise, reject=0.3)) == 8
    )
    with pytest.raises(UsageError, match="32 held-out images cannot tell"):
        fitted.predict(known, reject=0.01)
    fitted.published_scores = True
    with pytest.raises(UsageError, match="held-out shots"):
        fitted.predict(known, reject=0.1)


def test_sets_grow_with_what_they_promise(fitted):
    known = [image for name in fitted.classes for image in pictures(name)]
    small, large = (fitted.prediction_sets(known, coverage) for coverage in (0.5, 0.95))
    plain = fitted.predict(known)
    for one, other, answer in zip(small, large, plain, strict=True):
        assert one[0] == other[0] == answer
        assert other[: len(one)] == one
    assert sum(map(len, large)) > sum(map(len, small)) >= len(known)
    assert fitted.prediction_sets(known[0]) == fitted.prediction_sets(known)[0]
    with pytest.raises(UsageError, match="cannot promise 99%"):
        fitted.prediction_sets(known, 0.99)
    with pytest.raises(UsageError, match="trained class"):
        fitted.prediction_sets(known, 0.8, ["purple", "orange"])
    # Whatever the order in which names are asked for.
    turned = fitted.prediction_sets(known, 0.8, fitted.classes[::-1])
    assert [set(one) for one in turned] == [set(one) for one in fitted.prediction_sets(known, 0.8)]


def test_of_single_shots_nothing_is_promised(checkpoint):
    single = fit(checkpoint, train=1)
    assert single.rule == "fitted"
    for ask in (
        lambda: single.predict(pictures("red"), reject=0.5),
        lambda: single.prediction_sets(pictures("red")),
    ):
        with pytest.raises(UsageError, match="two shots"):
            ask()


def test_the_command_says_none_of_these_and_sets(trained, tmp_path, shotfit):
    folder = write(tmp_path / "photos", pictures("red"))
    code, text, _ = shotfit("predict", trained, folder, "-q", "--reject", "0.9", "--sets", "--json")
    assert code == 0
    rows = [json.loads(line) for line in text.splitlines()]
    again = FewShotClassifier.from_pretrained(trained)
    assert [row["refused"] for row in rows] == [
        a is None for a in again.predict(folder, reject=0.9)
    ]
    assert [tuple(row["set"]) for row in rows] == again.prediction_sets(folder, 0.9)
    code, text, _ = shotfit("predict", trained, folder, "-q", "--reject", "0.96", "--sets", "0.5")
    assert code == 0
    assert "none of these (nearest: " in text
    assert "; among {" in text
    parquet = pytest.importorskip("pyarrow.parquet")
    table = tmp_path / "rows.parquet"
    flags = ("--reject", "0.9", "--sets", "0.9", "--out", table)
    assert shotfit("predict", trained, folder, "-q", *flags)[0] == 0
    found = parquet.read_table(table).to_pylist()
    assert [(row["refused"], row["set"]) for row in found] == [
        (row["refused"], row["set"]) for row in rows
    ]
    code, _, err = shotfit("predict", trained, folder, "-q", "--reject", "0.001")
    assert code == 2 and "smallest rate" in err


def test_a_name_that_attracts_everything_does_not_take_over(checkpoint):
    """The first story: "zebra" was added, and 142 of 180 images became zebras."""
    skip_on_another_draw()
    classifier = fit(checkpoint)
    test = shapes_dataset(4, train=8)
    images = [example.image for example in test.test]
    words = ("a", "photo", "of", "purple", "orange", "yellow")
    names = [f"{first} {second}" for first in words for second in words]
    classifier.published_scores = True
    logits = np.concatenate([batch.numpy() for batch in classifier.iter_logits(images, names)])
    classifier.add_classes([names[place] for place in logits.mean(axis=0).argsort()[-3:]])
    taken = {}
    for rule in ("published", "fitted"):
        classifier.published_scores = rule == "published"
        answers = classifier.predict(images)
        taken[rule] = sum(answer not in test.classnames for answer in answers)
        found = classifier.evaluate(test, zero_shot=False)
        right = [test.classnames[e.label] for e in test.test]
        assert found.accuracy.right == sum(a == r for a, r in zip(answers, right, strict=True))
    assert taken["published"] > 0
    assert taken["fitted"] < taken["published"]


def test_fit_says_what_to_expect_and_whether_more_images_would_help(tmp_path, shotfit):
    out = tmp_path / "model"
    flags = ("--shots", "3", "--iters-per-shot", "4", "--out", out, "-q", "--backbone", "iconclip")
    code, text, _ = shotfit("fit", "digits", *flags)
    assert code == 0
    expected = FewShotClassifier.from_pretrained(out).expected
    assert expected is not None
    low, high = expected.interval()
    assert f"Expect {low:.0f}–{high:.0f} % on new images" in text
    assert "Would more images help?" in text
    assert [point.share for point in expected.points] == pytest.approx([1 / 3, 2 / 3])
    code, text, _ = shotfit("fit", "digits", *flags, "--json", "--overwrite")
    assert json.loads(text)["expected"] == expected.plain()


def test_the_answer_about_more_images_follows_the_curve():
    from shotfit.apps.expectation import expectation_lines, weakest_classes
    from shotfit.evaluation.expected import ClassOutlook, CurvePoint, expect

    classes = [
        ClassOutlook("a", 40, 1.0, 0.9, None),
        ClassOutlook("b", 40, 0.5, 0.4, "c"),
        ClassOutlook("c", 40, 0.25, 0.3, "b"),
    ]
    rising = expect([CurvePoint(0.25, 0.5, 2000), CurvePoint(0.75, 0.7, 2000)], classes)
    assert any("Yes: twice as many" in line for line in expectation_lines(rising))
    assert [one.name for one in weakest_classes(rising)] == ["c", "b"]
    last = expectation_lines(rising)[-1]
    assert "'c' (10 of 40 right, mostly taken for 'b'); 'b' (20 of 40 right" in last
    flat = expect([CurvePoint(0.25, 0.9, 9000), CurvePoint(0.75, 0.9, 9000)])
    assert any("Hardly" in line for line in expectation_lines(flat))
    unsure = expect([CurvePoint(0.25, 0.6, 40), CurvePoint(0.75, 0.62, 40)])
    assert any("Perhaps" in line for line in expectation_lines(unsure))
