"""An evaluation says what `predict` does: which images count, and among which names."""

import json
from collections.abc import Callable

import numpy as np
import pytest
from conftest import shapes_dataset
from example_images import picture

from shotfit.classifier import FewShotClassifier
from shotfit.data.dataset import Dataset
from shotfit.data.holdout import hold_out
from shotfit.data.image_hashes import image_hash, image_hashes
from shotfit.errors import DataError, UsageError
from shotfit.recipe import Recipe, Stage

RECIPE = Recipe(
    (
        Stage("layernorm", training={"iterations": 4, "lr": 1e-2}),
        Stage("linear", training={"iterations": 4, "lr": 1e-2}),
    )
)


def fit(checkpoint, data, shots=None):
    return FewShotClassifier(str(checkpoint), RECIPE).fit(data, shots=shots)


@pytest.fixture(scope="module")
def fitted(checkpoint):
    return fit(checkpoint, shapes_dataset(4), shots=2)


def most_attractive(classifier, images):
    """The name that fits all these images best, whatever it means to a random model."""
    words = ("a", "photo", "of", "purple", "orange", "yellow")
    names = [f"{first} {second}" for first in words for second in words]
    logits = np.concatenate([batch.numpy() for batch in classifier.iter_logits(images, names)])
    return names[logits.mean(axis=0).argmax()]


def write_folder(folder, dataset, parts=("train",), rename: Callable[[str], str] = str):
    for part in parts:
        for number, example in enumerate(getattr(dataset, part)):
            name = rename(dataset.classnames[example.label])
            path = folder / part / name / f"{number}.png" if len(parts) > 1 else folder / name
            path = path if path.suffix else path / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            picture(example).save(path)
    return folder


def test_a_name_that_attracts_everything_shows_in_the_accuracy(checkpoint):
    """The first story: "zebra" was added, most images became zebras, and the accuracy stayed."""
    classifier = fit(checkpoint, shapes_dataset(4), shots=2)
    test = shapes_dataset(4)
    before = classifier.evaluate(test)
    images = [example.image for example in test.test]
    zebra = most_attractive(classifier, images)
    classifier.add_classes([zebra])
    found = classifier.evaluate(test)
    answers = classifier.predict(images)
    names = [test.classnames[example.label] for example in test.test]
    right = sum(a == n for a, n in zip(answers, names, strict=True))
    assert found.accuracy.right == right
    assert found.accuracy.images == 20
    assert found.names == classifier.classes
    assert found.accuracy.right < before.accuracy.right
    taken = sum(answer not in test.classnames for answer in answers)
    assert taken > 0
    assert sum(one.answers for one in found.per_class if not one.trained) == taken
    # What papers report is there on request, and by its name.
    closed = classifier.evaluate(test, classes=test.classnames)
    assert closed.accuracy.right == before.accuracy.right
    assert closed.among == "the names given"


def test_the_folder_that_was_fitted_is_not_scored_on_itself(checkpoint, tmp_path):
    """The second story: of 31 images 24 were trained on, and "test accuracy" was 87 %."""
    data = shapes_dataset(4, train=8)
    folder = write_folder(tmp_path / "shapes", data)
    (folder / "yellow" / "31.png").unlink()
    classifier = fit(checkpoint, folder, shots=6)
    found = classifier.evaluate(folder)
    assert (found.trained_on, len(found.labels)) == (24, 7)
    assert found.scored == "images that were not trained on"
    again = FewShotClassifier.from_pretrained(classifier.save_pretrained(tmp_path / "saved"))
    assert again.evaluate(folder, zero_shot=False).trained_on == 24
    # Wherever they lie and whatever they are called: they are known by their pixels.
    elsewhere = Dataset("copies", data.classnames, data.train[:8], test=data.train)
    assert again.evaluate(elsewhere, zero_shot=False).trained_on == 24


def test_without_other_images_it_is_cross_validated(checkpoint, tmp_path):
    folder = write_folder(tmp_path / "shapes", shapes_dataset(4, train=3))
    classifier = fit(checkpoint, folder)
    told = []
    found = classifier.evaluate(folder, watch=lambda *told_of: told.append(told_of))
    assert found.scored.startswith("cross-validated")
    assert len(found.labels) == 12
    assert found.trained_on == 0
    assert ("fitting without a part", 3, 4) in told
    own = classifier.predict_proba(folder)
    assert not np.allclose(own, np.exp(found.logits) / np.exp(found.logits).sum(1)[:, None])
    # Seeded: the same folds, the same numbers.
    assert np.array_equal(found.logits, classifier.evaluate(folder).logits)
    # One image of a class always trains; of none other can be said how good it is.
    single = write_folder(tmp_path / "single", shapes_dataset(4, train=1))
    with pytest.raises(DataError, match="no class has two"):
        fit(checkpoint, single).evaluate(single)


def test_a_test_folder_of_another_spelling_is_not_novel(fitted, tmp_path):
    """The third story: `Nominal/` for `nominal/` gave "novel classes 100.00"."""
    data = shapes_dataset(4)
    folder = write_folder(
        tmp_path / "test", Dataset("t", data.classnames, data.test), rename=str.title
    )
    with pytest.raises(DataError, match=r"'Red' \(5 images; did you mean 'red'\?\)"):
        fitted.evaluate(folder)
    (folder / "Red").rename(folder / "red")
    found = fitted.evaluate(folder)
    assert len(found.labels) == 5
    # The others were not there to be right or wrong, and all names stayed possible answers.
    assert [one.meant for one in found.unknown] == ["blue", "green", "yellow"]
    assert found.names == fitted.classes
    novel = fitted.evaluate(folder, as_novel=True)
    assert set(novel.parts) >= {"base", "novel", "base_in_joint", "novel_in_joint"}
    assert "as papers do" in novel.among


def test_as_novel_is_the_published_protocol(fitted):
    from shotfit.data.dataset import select_classes
    from shotfit.evaluation.metrics import evaluate

    data = shapes_dataset(6)
    halves = {"base": range(4), "novel": range(4, 6)}
    tests = {key: select_classes(data.test, data, labels) for key, labels in halves.items()}
    published = evaluate(fitted.method, tests)
    assert fitted.rule == "fitted"
    fitted.published_scores = True
    found = fitted.evaluate(data, as_novel=True).metrics
    fitted.published_scores = False
    assert found["accuracy"] == pytest.approx(published.pop("joint"))
    assert {key: found[key] for key in published} == pytest.approx(published)
    bound = FewShotClassifier(fitted.experiment.backbone, "lp_pp")
    with pytest.raises(UsageError, match="bound to the classes"):
        bound.fit(shapes_dataset(4), shots=1).evaluate(data, as_novel=True)


def test_zero_shot_beside_it_is_the_untouched_model(fitted, checkpoint):
    data = shapes_dataset(4)
    untouched = FewShotClassifier(str(checkpoint), "zero_shot").fit(data)
    found = fitted.evaluate(data)
    assert found.zero_shot == pytest.approx(untouched.evaluate(data).logits, abs=1e-5)
    assert untouched.evaluate(data).zero_shot is None


def test_missing_classes_do_not_shrink_the_label_space(fitted):
    data = shapes_dataset(4)
    red = Dataset("red", data.classnames, data.train, test=data.test[:5])
    found = fitted.evaluate(red)
    assert found.names == data.classnames
    assert found.accuracy.right == fitted.predict([e.image for e in red.test]).count("red")


def test_equal_names_keep_their_own_answers(checkpoint):
    data = shapes_dataset(4)
    twins = Dataset("twins", ("red", "red", "blue", "blue"), data.train, test=data.test)
    with pytest.warns(UserWarning, match="More than one class"):
        classifier = fit(checkpoint, twins)
    found = classifier.evaluate(twins)
    answers = classifier.predict_proba([e.image for e in data.test]).argmax(axis=1)
    assert found.accuracy.right == sum(answers == [e.label for e in data.test])


def test_an_older_folder_says_that_it_does_not_know(fitted, tmp_path):
    classifier = FewShotClassifier.from_pretrained(fitted.save_pretrained(tmp_path / "saved"))
    classifier.trained_images = None
    with pytest.warns(UserWarning, match="does not say which images"):
        assert classifier.evaluate(shapes_dataset(4), zero_shot=False).trained_on == 0


def test_an_image_is_the_same_as_a_file_as_bytes_and_opened(tmp_path):
    image = picture(shapes_dataset(1).train[0])
    image.save(tmp_path / "a.png")
    image.save(tmp_path / "b.bmp")
    sources = [image, tmp_path / "a.png", tmp_path / "b.bmp", (tmp_path / "a.png").read_bytes()]
    assert len(set(image_hashes(sources))) == 1
    image.save(tmp_path / "c.jpg")
    assert image_hash(tmp_path / "c.jpg") != image_hash(image)
    assert image_hash(image.crop((0, 0, 40, 30))) != image_hash(image)


def test_hold_out_takes_what_can_be_spared():
    def without(train):
        data = shapes_dataset(3, train=train)
        return Dataset("d", data.classnames, data.train)

    drawn = hold_out(without(6), 4, seed=1)
    assert len(drawn.train) == 18
    assert len(drawn.test) == 6
    fifth = hold_out(without(20), None, seed=1)
    assert (len(fifth.train), len(fifth.test)) == (48, 12)
    assert not {e.key for e in fifth.train} & {e.key for e in fifth.test}
    assert [e.key for e in fifth.test] == [e.key for e in hold_out(without(20), None, 1).test]
    assert [e.key for e in fifth.test] != [e.key for e in hold_out(without(20), None, 2).test]
    assert not hold_out(without(19), None, seed=1).test
    assert not hold_out(without(4), 4, seed=1).test
    given = shapes_dataset(3)
    assert hold_out(given, None, 1) is given


def test_the_command_prints_and_writes_it(shotfit, fitted, tmp_path):
    model = fitted.save_pretrained(tmp_path / "model")
    folder = write_folder(tmp_path / "data", shapes_dataset(5), parts=("train", "test"))
    arguments = ["--csv", tmp_path / "classes.csv", "--keep-predictions", tmp_path / "kept.jsonl"]
    code, out, _ = shotfit("evaluate", model, folder, *arguments)
    assert code == 0
    assert "'purple' (5 images)" in out
    for word in ("95 % interval", "macro F1", "calibration error", "zero-shot", "taken for"):
        assert word in out
    lines = (tmp_path / "classes.csv").read_text().splitlines()
    assert len(lines) == 6
    assert lines[1].startswith(",all,20,")
    names, *rows = [json.loads(line) for line in (tmp_path / "kept.jsonl").read_text().splitlines()]
    assert names == {"names": ["red", "green", "blue", "yellow"]}
    assert len(rows) == 20
    code, out, _ = shotfit("evaluate", model, folder, "--as-novel", "--json")
    assert json.loads(out)["parts"]["novel"]["accuracy"]["images"] == 5
    code, _, err = shotfit("evaluate", model, folder, "--csv", tmp_path / "no" / "x.csv")
    assert (code, "no folder" in err) == (2, True)
    code, _, err = shotfit("evaluate", model, folder, "--classes", "purple,red,red")
    assert code == 2


def test_fit_holds_out_what_it_did_not_draw(shotfit, checkpoint, tmp_path):
    folder = write_folder(tmp_path / "photos", shapes_dataset(3))
    arguments = ["--backbone", checkpoint, "--iters-per-shot", 2, "--quiet"]
    code, out, _ = shotfit(
        "fit", folder, "--out", tmp_path / "m", "--shots", 2, "--keep-predictions", *arguments
    )
    assert code == 0
    assert "12 of them" in out
    assert len((tmp_path / "m" / "predictions.jsonl").read_text().splitlines()) == 13
    code, out, _ = shotfit("evaluate", tmp_path / "m", folder)
    assert "6 images left out: the classifier was trained on them" in out
    code, out, _ = shotfit("fit", folder, "--out", tmp_path / "all", *arguments)
    assert (code, "not evaluated" in out) == (0, True)
    assert not (tmp_path / "all" / "evaluation.json").exists()


def test_classes_are_listed_with_their_origin_removed_and_brought_back(shotfit, fitted, tmp_path):
    model = fitted.save_pretrained(tmp_path / "model")
    assert shotfit("add-classes", model, "zebra")[0] == 0
    code, out, _ = shotfit("remove-classes", model, "red", "zebra")
    assert (code, "now has 3 classes" in out) == (0, True)
    assert shotfit("add-classes", model, "red", "[bold]x")[0] == 0
    code, out, _ = shotfit("list-classes", model, "--json")
    assert [tuple(row.values()) for row in json.loads(out)] == [
        ("green", "trained"),
        ("blue", "trained"),
        ("yellow", "trained"),
        ("red", "trained"),
        ("[bold]x", "name"),
    ]
    code, out, _ = shotfit("list-classes", model)
    assert "[bold]x" in out
    code, _, err = shotfit("remove-classes", model, "lion")
    assert (code, "no class 'lion'" in err) == (2, True)
