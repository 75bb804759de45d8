"""Which rule a classifier goes by: the fitted one by default, the published one on request, and the
same in every place that answers."""

import json

import numpy as np
import pytest
import torch
from conftest import shapes_dataset
from example_images import picture
from torch.nn import functional as F

from shotfit.classifier import FewShotClassifier
from shotfit.errors import DataError
from shotfit.evaluation.assessment import Assessment
from shotfit.evaluation.calibration import Calibration, NameWithImages
from shotfit.evaluation.cross_fitting import ShotFeatures, cross_fit, leave_images_out
from shotfit.evaluation.scoring import GivenImages, class_head
from shotfit.methods.base import ClassEmbeddings
from shotfit.recipe import Recipe, Stage
from shotfit.saved_settings import CONFIG, SHOTS, checksum

RECIPE = Recipe(
    (
        Stage("layernorm", training={"iterations": 4, "lr": 1e-2}),
        Stage("linear", training={"iterations": 8, "lr": 1e-2}),
    )
)


@pytest.fixture(scope="module")
def fitted(checkpoint):
    return FewShotClassifier(str(checkpoint), RECIPE).fit(shapes_dataset(4), shots=3)


def images(count=8):
    return [example.image for example in shapes_dataset(4).test[:count]]


def test_each_kind_of_class_gets_its_formula():
    calibration = Calibration(
        row=0.5,
        image=0.25,
        level=-1,
        name=0.8,
        attraction=0.5,
        sharpness=2,
        typical_image=0.1,
        typical_name=0.2,
        with_images=(NameWithImages(2, 0.6, 0.2, -0.5),),
    )
    assessment = Assessment(calibration, np.array([[0, 1]], np.float32))
    weight = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.6, 0.8], [1.0, 0.0]])
    classes = ClassEmbeddings(("n", "trained", "shown", "m"), weight, (-1, 0, -1, -1))
    given = GivenImages((0, 0, 2, 0), torch.tensor([[0.0, 0], [0, 0], [0, 1], [0, 0]]))
    found = class_head(assessment, 10, classes, given).logits(np.array([[0.6, 0.8]], np.float32))
    crowd = 2 * np.log(2)
    wanted = [
        10 * (0.8 * 0.8 - 0.5 * (1 - 0.2)) - crowd,
        10 * (0.5 * 0.6 + 0.25 * (0.8 - 0.1)) - 1,
        10 * (0.6 * 1 + 0.2 * (0.8 - 0.1)) - 0.5,
        10 * 0.8 * 0.6 - crowd,
    ]
    assert found[0] == pytest.approx([2 * value for value in wanted], abs=1e-4)
    # Among names alone there is no level to sharpen against, and no crowd.
    names = ClassEmbeddings(("n", "m"), weight[[0, 3]], (-1, -1))
    alone = class_head(assessment, 10, names, GivenImages.none(names))
    assert alone.logits(np.array([[0.6, 0.8]], np.float32))[0] == pytest.approx(
        [2.4, 4.8], abs=1e-4
    )


def test_the_fitted_rule_is_the_default_and_the_published_one_an_option(fitted, checkpoint):
    published = FewShotClassifier(str(checkpoint), RECIPE, published_scores=True)
    published.fit(shapes_dataset(4), shots=3)
    assert (fitted.rule, published.rule) == ("fitted", "published")
    assert published.assessment is None
    # The training is the same to the bit: only the comparison differs.
    for one, two in zip(
        fitted.method.state_dict().values(), published.method.state_dict().values(), strict=True
    ):
        assert torch.equal(one, two)
    own = published.predict_proba(images())
    assert not np.allclose(fitted.predict_proba(images()), own)
    with torch.no_grad():
        names = published.method.encode_classes(published.classes)
    assert np.array_equal(own, _probabilities(published, names))
    fitted.published_scores = True
    assert np.array_equal(fitted.predict_proba(images()), own)
    fitted.published_scores = False


def _pixels(classifier):
    from shotfit.data.images import open_image
    from shotfit.data.transforms import prepare

    spec = classifier.method.backbone.image_spec
    return torch.from_numpy(np.stack([prepare(open_image(image), spec) for image in images()]))


def _probabilities(classifier, classes):
    with torch.no_grad():
        return classifier.method(_pixels(classifier), classes).softmax(dim=-1).numpy()


def test_the_rule_is_saved_and_old_folders_answer_as_before(fitted, tmp_path, shotfit):
    folder = fitted.save_pretrained(tmp_path / "saved")
    again = FewShotClassifier.from_pretrained(folder)
    assert again.assessment is not None
    assert again.assessment.calibration == fitted.assessment.calibration
    assert again.assessment.expected == fitted.assessment.expected
    assert np.array_equal(again.predict_proba(images()), fitted.predict_proba(images()))
    kept = (again.assessment.scores.nonconformity, fitted.assessment.scores.nonconformity)
    assert np.array_equal(*kept)
    code, text, _ = shotfit("info", folder)
    assert code == 0 and "fitted on the shots" in text
    as_published = FewShotClassifier.from_pretrained(folder, published_scores=True)
    assert as_published.rule == "published"
    # A folder that was saved before there was an assessment.
    settings = json.loads((folder / CONFIG).read_text())
    old = {
        key: value for key, value in settings.items() if key not in ("assessment", "added_images")
    }
    old["checksum"] = checksum(old)
    (folder / CONFIG).write_text(json.dumps(old))
    former = FewShotClassifier.from_pretrained(folder)
    assert former.rule == "published"
    wanted = as_published.predict_proba(images())
    assert np.array_equal(former.predict_proba(images()), wanted)
    code, text, _ = shotfit("info", folder)
    assert code == 0 and "as published" in text


def test_an_assessment_that_fits_nothing_is_refused(fitted, tmp_path):
    folder = fitted.save_pretrained(tmp_path / "saved")
    settings = json.loads((folder / CONFIG).read_text())
    assert SHOTS in settings["files"]
    for change in (
        {"assessment": {"calibration": {"row": "high"}}},
        {"assessment": {"nonsense": 1}},
        {"added_images": [1]},
    ):
        forged = {**settings, **change}
        forged["checksum"] = checksum(forged)
        (folder / CONFIG).write_text(json.dumps(forged))
        with pytest.raises(DataError, match="assessment|images its classes"):
            FewShotClassifier.from_pretrained(folder)


def test_every_place_that_answers_goes_by_the_same_rule(fitted, tmp_path, shotfit):
    fitted_on = shapes_dataset(4)
    folder = fitted.save_pretrained(tmp_path / "saved")
    file = tmp_path / "one.png"
    picture(fitted_on.test[0]).save(file)
    wanted = fitted.predict_proba(file)
    for flags in ((), ("--published-scores",)):
        code, text, _ = shotfit("predict", folder, file, "--top", 4, "--json", "-q", *flags)
        assert code == 0
        answers = json.loads(text)["answers"]
        told = {answer["class"]: answer["probability"] for answer in answers}
        own = np.array([told[name] for name in fitted.classes])
        assert np.allclose(own, wanted, atol=1e-5) == (not flags)
    found = fitted.evaluate(fitted_on)
    assert found.rule == "fitted"
    right = sum(
        answer == fitted_on.classnames[example.label]
        for example, answer in zip(
            fitted_on.test, fitted.predict([e.image for e in fitted_on.test]), strict=True
        )
    )
    assert found.accuracy.right == right


@pytest.mark.parametrize("method", ["zero_shot", "prototypes", "proker"])
def test_methods_that_score_in_their_own_way_or_train_nothing_keep_their_scores(checkpoint, method):
    plain = FewShotClassifier(str(checkpoint), method).fit(shapes_dataset(4), shots=2)
    assert plain.rule == "published"
    assert plain.assessment is None


def test_of_one_stage_trained_names_stand_on_a_fitted_level(checkpoint):
    recipe = Recipe((Stage("layernorm", training={"iterations": 3, "lr": 1e-2}),))
    fitted = FewShotClassifier(str(checkpoint), recipe).fit(shapes_dataset(4), shots=3)
    assert fitted.rule == "fitted" and fitted.assessment is not None
    numbers, means = fitted.assessment.calibration, fitted.assessment.means
    scale = fitted.method.backbone.logit_scale.exp().item()
    with torch.no_grad():
        names = fitted.method.encode_classes([*fitted.classes, "yellow"]).weight.numpy()
        embeds = fitted.method.encode_images(_pixels(fitted)).numpy()
    trained = scale * (
        numbers.row * embeds @ names[:-1].T
        + numbers.image * (embeds @ means.T - numbers.typical_image)
    )
    drawn = max(0.0, names[-1] @ means.mean(axis=0) - numbers.typical_name)
    other = scale * (numbers.name * embeds @ names[-1] - numbers.attraction * drawn)
    expected = np.column_stack([trained + numbers.level, other]) * numbers.sharpness
    found = torch.cat(list(fitted.iter_logits(images(), [*fitted.classes, "yellow"]))).numpy()
    assert np.allclose(found, expected, atol=1e-3)
    # As published, trained names and others are cosines alone.
    fitted.published_scores = True
    plain = torch.cat(list(fitted.iter_logits(images(), [*fitted.classes, "yellow"]))).numpy()
    assert np.allclose(plain, scale * embeds @ names.T, atol=1e-3)


def test_gda_answers_names_on_the_level_of_its_gaussians(checkpoint, tmp_path):
    fitted = FewShotClassifier(str(checkpoint), "gda").fit(shapes_dataset(4), shots=3)
    assert fitted.rule == "fitted" and fitted.assessment is not None
    numbers, means, said = (
        fitted.assessment.calibration,
        fitted.assessment.means,
        fitted.assessment.gaussians,
    )
    assert said is not None and numbers.gaussian > 0
    method = fitted.method
    scale = method.backbone.logit_scale.exp().item()
    asked = [*fitted.classes, "yellow"]
    with torch.no_grad():
        classes = method.encode_classes(asked)
        embeds = method.encode_images(_pixels(fitted))
        published = method(_pixels(fitted), classes)
        gaussians = (published - method.logits(embeds, classes.weight)) / method.get_buffer("alpha")
        names, embeds = classes.weight.numpy(), embeds.numpy()
    # The map is what the method itself adds, less what it adds to a class without images.
    map_of_classes = (gaussians[:, :-1] - gaussians[:, -1:]).numpy()
    assert np.allclose(said.logits(embeds), map_of_classes, atol=5e-3)
    trained = scale * (
        numbers.row * embeds @ names[:-1].T
        + numbers.image * (embeds @ means.T - numbers.typical_image)
    )
    trained = trained + numbers.level + numbers.gaussian * said.logits(embeds)
    drawn = max(0.0, names[-1] @ means.mean(axis=0) - numbers.typical_name)
    other = scale * (numbers.name * embeds @ names[-1] - numbers.attraction * drawn)
    expected = np.column_stack([trained, other])
    found = torch.cat(list(fitted.iter_logits(images(), asked))).numpy()
    assert np.allclose(found, expected, atol=1e-3)
    again = FewShotClassifier.from_pretrained(fitted.save_pretrained(tmp_path / "saved"))
    assert torch.equal(torch.cat(list(again.iter_logits(images(), asked))), torch.tensor(found))


def test_without_a_training_held_out_shots_are_scored_by_names():
    generator = torch.Generator().manual_seed(0)
    features = F.normalize(torch.randn(12, 8, generator=generator), dim=-1)
    names = F.normalize(torch.randn(3, 8, generator=generator), dim=-1)
    labels = torch.arange(12) % 3
    shots = ShotFeatures(features[None], features, labels, names, 10.0)
    held = cross_fit(shots, leave_images_out(labels.numpy(), 4), None)
    assert len(held) == 4
    for part in held:
        assert np.array_equal(part.rows, names.numpy())
        # The mean images are of the other shots alone.
        for label in range(3):
            rest = np.setdiff1d(np.flatnonzero(labels.numpy() == label), part.index)
            mean = features.numpy()[rest].mean(axis=0)
            assert np.allclose(part.means[label], mean / np.linalg.norm(mean), atol=1e-6)
