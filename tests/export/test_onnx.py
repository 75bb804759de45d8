"""Exports answer as the classifier does: every method, fixed batches, 8 bits."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import shapes_dataset
from example_images import picture
from PIL import Image
from test_contract import NAMES, fit

from shotfit.backbone import Backbone
from shotfit.classifier import FewShotClassifier
from shotfit.errors import DataError, UsageError
from shotfit.export.onnx import TOLERANCE, OnnxOptions, export_onnx
from shotfit.methods import list_methods
from shotfit.recipe import named_recipe
from shotfit.runtime import ExportedClassifier
from shotfit.runtime.class_matrix import ClassMatrix

REFUSED = {"cocoop": "embeds every class anew", "plot_pp": "matches the prompts"}
WITHOUT_TEXT = {"gda": "no-text"}
"""Methods whose rows for unseen names no graph can compute, and what the message says."""
IMAGES = [picture(example) for example in shapes_dataset().test[:7]]


@pytest.fixture(scope="module")
def fitted(task, checkpoint):
    """Classifiers by their method's name, with a few steps of training."""

    def make(name):
        method, _ = fit(name, task, backbone=Backbone.from_pretrained(str(checkpoint)))
        return FewShotClassifier(str(checkpoint)).take(method)

    return make


@pytest.fixture(scope="module")
def exported(classifier, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported") / "onnx"
    export_onnx(classifier, folder)
    return folder


def scores(classifier, images=IMAGES):
    return torch.cat(list(classifier.iter_logits(images))).numpy()


def close(runtime, classifier, images=IMAGES):
    logit_scale = float(classifier.method.backbone.logit_scale.exp())
    scale = max(logit_scale, float(np.linalg.norm(runtime.matrix.rows, axis=1).max()))
    found = runtime.matrix.scores(runtime.features(images))
    assert np.abs(found - scores(classifier, images)).max() <= TOLERANCE * scale
    # GDA's rows are a hundred times as long as the others': so far its scores are known in fp32.
    tolerance = TOLERANCE * scale / logit_scale
    difference = np.abs(runtime.predict_proba(images) - classifier.predict_proba(images))
    assert difference.max() <= tolerance


@pytest.mark.parametrize("name", list_methods())
def test_every_method_answers_as_in_pytorch_or_says_why_not(name, fitted, tmp_path):
    classifier, folder = fitted(name), tmp_path / "onnx"
    if name in REFUSED:
        with pytest.raises(UsageError, match=REFUSED[name]):
            export_onnx(classifier, folder)
        assert not folder.exists()
        return
    text = name not in WITHOUT_TEXT
    if not text:
        with pytest.raises(UsageError, match=WITHOUT_TEXT[name]):
            export_onnx(classifier, folder)
        assert not folder.exists()
    assert export_onnx(classifier, folder, OnnxOptions(text=text)).difference <= TOLERANCE
    runtime = ExportedClassifier.load(folder, threads=1, check=True)
    assert runtime.classes == classifier.classes == NAMES
    close(runtime, classifier)
    if not (text and classifier.method.open_vocabulary):
        with pytest.raises(UsageError, match="no class by its name alone"):
            runtime.add_classes(["yellow"])
    elif not name.startswith("mmrl"):
        runtime.add_classes(["light_yellow"])
        classifier.add_classes(["light_yellow"])
        close(runtime, classifier)


@pytest.mark.parametrize("name", ["mmrl", "mmrl_pp"])
def test_trained_and_novel_classes_of_mmrl_are_no_product(name, fitted, tmp_path):
    classifier = fitted(name)
    classifier.add_classes(["yellow"])
    with pytest.raises(UsageError, match="one level for each image"):
        export_onnx(classifier, tmp_path / "onnx")


@pytest.mark.parametrize("inner", ["cocoop", "plot_pp"])
def test_a_first_stage_that_cannot_be_exported_alone_can_be_wrapped(inner, checkpoint, tmp_path):
    recipe = named_recipe(f"2sfs:{inner}", iters_per_shot=2)
    classifier = FewShotClassifier(str(checkpoint), recipe).fit(shapes_dataset(3), shots=1)
    export_onnx(classifier, tmp_path / "onnx")
    runtime = ExportedClassifier.load(tmp_path / "onnx", threads=1)
    close(runtime, classifier)
    runtime.add_classes(["orange"])
    classifier.add_classes(["orange"])
    close(runtime, classifier)


def test_gda_on_a_fitted_level_leaves_with_its_names(checkpoint, tmp_path):
    """As published no graph gives a row of a name; the fitted rule needs its embedding alone."""
    classifier = FewShotClassifier(str(checkpoint), "gda").fit(shapes_dataset(3), shots=3)
    assert classifier.rule == "fitted"
    export_onnx(classifier, tmp_path / "onnx")
    runtime = ExportedClassifier.load(tmp_path / "onnx", threads=1)
    close(runtime, classifier)
    name = classifier.classes[0]
    for one in (runtime, classifier):
        one.add_classes(["orange"])
        one.remove_classes([name])
    close(runtime, classifier)
    ClassMatrix.read(tmp_path / "onnx" / "classes.safetensors").write(tmp_path / "again")
    rule = ClassMatrix.read(tmp_path / "again").rule
    assert rule is not None and rule.gaussians is not None


def test_a_graph_of_a_fixed_batch_takes_any_number_of_images(classifier, tmp_path):
    export_onnx(classifier, tmp_path / "onnx", OnnxOptions(batch=3, text=False))
    runtime = ExportedClassifier.load(tmp_path / "onnx", threads=1)
    close(runtime, classifier)
    assert runtime.predict(IMAGES[0]) == classifier.predict(IMAGES[0])
    assert not (tmp_path / "onnx" / "text.onnx").exists()


def test_removed_classes_stay_removed_and_come_back_as_trained(classifier, tmp_path):
    assert classifier.rule == "fitted"
    name = classifier.classes[1]
    classifier.remove_classes([name])
    export_onnx(classifier, tmp_path / "onnx", OnnxOptions(text=False))
    runtime = ExportedClassifier.load(tmp_path / "onnx", threads=1)
    assert name not in runtime.classes
    close(runtime, classifier)
    runtime.add_classes([name])
    classifier.add_classes([name])
    close(runtime, classifier)
    assert runtime.matrix.classes.origins[-1] == (name, "trained")


def test_sets_and_refusals_are_those_of_the_classifier(classifier, tmp_path):
    """Also beside a name, a name with images, and one with images that was removed again."""
    images = [*IMAGES, Image.effect_noise((40, 40), 120).convert("RGB")]

    def same():
        export_onnx(classifier, tmp_path / "onnx", OnnxOptions(text=False))
        runtime = ExportedClassifier.load(tmp_path / "onnx", threads=1)
        for coverage in (0.5, 0.8):
            expected = classifier.prediction_sets(images, coverage)
            assert runtime.prediction_sets(images, coverage) == expected
        for rate in (0.2, 0.5):
            assert runtime.predict(images, reject=rate) == classifier.predict(images, reject=rate)
        assert runtime.prediction_sets(images[0], 0.5) == classifier.prediction_sets(images[0], 0.5)
        batch = next(classifier.predict_batches(images))
        found = runtime.matrix.familiarity(runtime.features(images))
        assert np.abs(found - batch.familiarity.numpy()).max() < 1e-3
        return [runtime.predict(images, reject=rate).count(None) for rate in (0.2, 0.5)]

    assert same()[1] > 0
    classifier.add_classes(["purple"])
    classifier.add_classes({"orange": IMAGES[:2]})
    same()
    classifier.remove_classes(["orange"])
    same()
    with pytest.raises(UsageError, match="8 held-out images cannot promise 99%"):
        ExportedClassifier.load(tmp_path / "onnx").prediction_sets(images, 0.99)


def test_exports_that_keep_no_held_out_shots_say_so(classifier, exported):
    """As those of earlier versions."""
    runtime = ExportedClassifier.load(exported, threads=1)
    path = exported / "classes.safetensors"
    content, matrix = path.read_bytes(), ClassMatrix.read(path)
    assert matrix.rule is not None
    replace(matrix, rule=replace(matrix.rule, held_out=None)).write(path)
    earlier = ExportedClassifier.load(exported, threads=1)
    path.write_bytes(content)
    assert earlier.predict(IMAGES) == runtime.predict(IMAGES)
    with pytest.raises(UsageError, match="export it again"):
        earlier.predict(IMAGES, reject=0.5)
    with pytest.raises(UsageError, match="export it again"):
        earlier.prediction_sets(IMAGES, 0.5)


def test_8_bits_are_smaller_and_near(classifier, exported, tmp_path):
    found = export_onnx(classifier, tmp_path / "onnx", OnnxOptions(int8=True))
    exact = sum(path.stat().st_size for path in exported.glob("image.onnx*"))
    assert found.sizes["image.onnx"] < 0.6 * exact
    assert TOLERANCE < found.difference < 0.2
    runtime = ExportedClassifier.load(tmp_path / "onnx", threads=1)
    difference = runtime.predict_proba(IMAGES) - classifier.predict_proba(IMAGES)
    assert np.abs(difference).max() < 0.1


def test_what_is_no_export_is_left_alone(classifier, exported, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(DataError, match="is not an export"):
        export_onnx(classifier, tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    with pytest.raises(DataError, match="not an exported classifier"):
        ExportedClassifier.load(tmp_path)


def test_an_altered_file_is_noticed(exported):
    with (exported / "text.onnx").open("ab") as file:
        file.write(b" ")
    with pytest.raises(DataError, match=r"text.onnx has been altered"):
        ExportedClassifier.load(exported, check=True)
    with (exported / "text.onnx").open("rb+") as file:
        file.truncate((exported / "text.onnx").stat().st_size - 1)
    ExportedClassifier.load(exported, check=True)


def test_the_command_writes_and_says_how_near(shotfit, classifier, tmp_path):
    classifier.save_pretrained(tmp_path / "saved")
    code, out, err = shotfit("export", "onnx", tmp_path / "saved", tmp_path / "out", "--json")
    assert code == 0, err
    facts = json.loads(out)
    assert facts["difference"] <= TOLERANCE
    assert set(facts["sizes"]) == {
        *("classes.safetensors", "export.json", "image.onnx", "image.onnx.data"),
        *("text.onnx", "text.onnx.data", "tokenizer.json"),
    }
    code, _, err = shotfit("export", "onnx", tmp_path / "saved", tmp_path / "saved")
    assert code == 3 and "is not an export" in err
    (tmp_path / "out" / "notes.txt").write_text("mine")
    before = sorted(path.name for path in (tmp_path / "out").iterdir())
    command = ("export", "onnx", tmp_path / "saved", tmp_path / "out", "--no-text", "--json")
    code, _, err = shotfit(*command)
    assert code == 3 and "holds an export already: --overwrite replaces it" in err
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == before
    assert shotfit(*command, "--overwrite")[0] == 0
    kept = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert kept == [name for name in before if not name.startswith(("text", "tokenizer"))]


RUNTIME = """
import sys
from shotfit.runtime import ExportedClassifier

classifier = ExportedClassifier.load(sys.argv[1], threads=1)
image = sys.argv[2]
before = classifier.predict(image)
classifier.add_classes(["orange"])
classifier.correct(image, "orange")
classifier.remove_classes([before])
classifier.save()
others = {name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names)
print(before, classifier.predict(image), *sorted(others))
"""


def test_the_runtime_needs_four_packages_and_no_torch(classifier, exported, tmp_path):
    """In a process of its own: predict, add, correct, remove, save; and what that has loaded."""
    IMAGES[0].save(tmp_path / "image.png")
    command = [sys.executable, "-c", RUNTIME, exported, tmp_path / "image.png"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    before, after, *loaded = done.stdout.split()
    assert before == classifier.predict(tmp_path / "image.png") and after != before
    wanted = {"PIL", "numpy", "onnxruntime", "shotfit", "tokenizers"}
    found = {name for name in loaded if not name.startswith("_")}
    assert found - {"cython_runtime"} == wanted  # NumPy before 2 brings that one
    saved = ExportedClassifier.load(exported)
    assert "orange" in saved.classes and before not in saved.classes
    assert saved.matrix.version >= 3
