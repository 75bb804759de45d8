"""`shotfit verify`: whole, altered, damaged, and answering as when it was saved."""

import json

import pytest
import safetensors.torch
import torch
from conftest import shapes_dataset

from shotfit import saving
from shotfit.classifier import FewShotClassifier
from shotfit.data.transforms import ImageSpec
from shotfit.probe import SCORES, probe_pixels, probe_scores
from shotfit.recipe import Recipe, Stage
from shotfit.saved_settings import CONFIG, WEIGHTS, checksum, sha256
from shotfit.saving import CLASSES
from shotfit.verification import ROUNDING, TOLERANCE, verify

RECIPE = Recipe(
    (Stage("layernorm", training={"iterations": 1}), Stage("linear", training={"iterations": 1}))
)


@pytest.fixture(scope="module")
def classifier(checkpoint):
    made = FewShotClassifier(str(checkpoint), RECIPE)
    return made.fit(shapes_dataset(4), shots=1, verbose=False)


@pytest.fixture
def folder(classifier, tmp_path):
    return classifier.save_pretrained(tmp_path / "saved")


def changed(folder, **changes):
    """The config with other values, and a checksum that fits them."""
    settings = {**json.loads((folder / CONFIG).read_text()), **changes}
    settings = {key: value for key, value in settings.items() if value is not ...}
    settings["checksum"] = checksum(settings)
    (folder / CONFIG).write_text(json.dumps(settings))


def passed(folder):
    return {check.what: check.passed for check in verify(folder)}


WHOLE = {"files": True, "tensors": True, "model": True, "classes": True, "answer": True}


def test_what_was_just_saved_is_whole_and_answers_as_it_did(folder, shotfit):
    found = list(verify(folder))
    assert {one.what: one.passed for one in found} == WHOLE
    # Equal to the bit on most processors; some add by where numbers lie in memory.
    now = saving.load(str(folder), device="cpu")
    scores = probe_scores(now.method, now.classes.everything, now.embeds)
    kept = json.loads((folder / CONFIG).read_text())["probe"]["scores"]
    assert torch.allclose(scores.cpu(), torch.tensor(kept), rtol=0, atol=1e-5)
    assert found[-1].detail.startswith("4 scores of the probe, ")
    code, out, _ = shotfit("verify", folder)
    lines = out.splitlines()
    assert code == 0 and len(lines) == 5 and all(line.startswith("ok ") for line in lines)
    code, out, _ = shotfit("verify", folder, "--json")
    assert code == 0 and json.loads(out)["passed"] and len(json.loads(out)["checks"]) == 5


def test_it_is_whole_after_classes_were_added_and_removed_and_it_was_saved_again(folder):
    again = FewShotClassifier.from_pretrained(folder)
    again.add_classes(["purple", "orange"])
    again.remove_classes(["red"])
    again.save_pretrained(folder)
    assert passed(folder) == WHOLE


def test_the_picture_is_the_same_everywhere():
    """Whole numbers by a formula: its sum is known. Nothing random, nothing of a library's."""
    pixels = probe_pixels(ImageSpec(size=8, resize=8, scale=1.0, mean=(0, 0, 0), std=(1, 1, 1)))
    expected = [[(7 * r + 13 * c + r * c // 16 + 85 * k) % 256 for c in range(8)]
                for k in range(3) for r in range(8)]  # fmt: skip
    assert torch.equal(pixels, torch.tensor(expected, dtype=torch.float32).view(1, 3, 8, 8))


def test_no_more_scores_are_kept_than_said(classifier, tmp_path):
    classifier.add_classes([f"name {number}" for number in range(9)])
    try:
        folder = classifier.save_pretrained(tmp_path / "saved")
    finally:
        classifier.remove_classes([f"name {number}" for number in range(9)])
    assert len(json.loads((folder / CONFIG).read_text())["probe"]["scores"]) == SCORES
    assert passed(folder) == WHOLE


@pytest.mark.parametrize("file", [CONFIG, WEIGHTS])
def test_an_altered_byte_is_named_and_ends_with_exit_code_3(folder, shotfit, file):
    content = bytearray((folder / file).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / file).write_bytes(content)
    code, out, _ = shotfit("verify", folder)
    assert code == 3 and out.startswith("FAILED files") and file in out


def test_another_answer_than_then_is_a_failure(folder):
    probe = json.loads((folder / CONFIG).read_text())["probe"]
    between = (ROUNDING + TOLERANCE) / 2
    other = {**probe, "scores": [probe["scores"][0] + between, *probe["scores"][1:]]}
    changed(folder, probe=other)
    assert passed(folder) == {**WHOLE, "answer": False}
    # Of another version, device or number of threads so much is allowed, and no more.
    changed(folder, probe={**other, "threads": 99})
    assert passed(folder) == WHOLE
    changed(folder, probe={**probe, "scores": [9.0, *probe["scores"][1:]], "threads": 99})
    assert passed(folder) == {**WHOLE, "answer": False}


@pytest.mark.parametrize("probe", ["yes", {}, {"scores": ["x"]}, {"scores": [1.0], "torch": 1}])
def test_a_probe_that_nobody_saved_is_no_reason_to_break(folder, probe):
    changed(folder, probe=probe)
    assert passed(folder) == {**WHOLE, "answer": False}


@pytest.mark.parametrize(("part", "what"), [("vision", "answer"), ("text", "classes")])
def test_tensors_that_answer_otherwise_are_noticed_though_hashes_fit(folder, part, what):
    """Whoever can write hashes anew is not kept out by them; the answers give it away."""
    again = FewShotClassifier.from_pretrained(folder)
    again.add_classes(["purple"])
    again.save_pretrained(folder)
    tensors = safetensors.torch.load_file(folder / WEIGHTS)
    name = next(name for name in sorted(tensors) if part in name and name.endswith("bias"))
    safetensors.torch.save_file({**tensors, name: tensors[name] + 0.01}, folder / WEIGHTS)
    files = json.loads((folder / CONFIG).read_text())["files"]
    changed(folder, files={**files, WEIGHTS: sha256(folder / WEIGHTS)})
    assert passed(folder) == {**WHOLE, what: False}


def test_class_embeddings_of_other_names_are_noticed(folder):
    tensors = safetensors.torch.load_file(folder / CLASSES)
    safetensors.torch.save_file({k: v.roll(1, 0) for k, v in tensors.items()}, folder / CLASSES)
    changed(folder, classes=sha256(folder / CLASSES))
    assert passed(folder) == {**WHOLE, "classes": False, "answer": False}


def test_what_was_saved_before_there_were_probes_is_not_judged_by_one(folder):
    changed(folder, probe=..., frozen_fingerprint=...)
    assert passed(folder) == {**WHOLE, "model": None, "answer": None}


def test_another_pretrained_model_is_noticed(folder, tmp_path, checkpoint):
    import shutil

    other = shutil.copytree(checkpoint, tmp_path / "other")
    tensors = safetensors.torch.load_file(other / "model.safetensors")
    name = "visual_projection.weight"
    tensors[name] = tensors[name] + 1e-3
    safetensors.torch.save_file(tensors, other / "model.safetensors", {"format": "pt"})
    found = list(verify(folder, backbone=str(other)))
    assert [(one.what, one.passed) for one in found] == [("files", True), ("model", False)]
    assert "its weights differ" in found[-1].detail


def test_nothing_that_is_no_classifier_is(tmp_path, shotfit):
    (tmp_path / "empty").mkdir()
    code, out, _ = shotfit("verify", tmp_path / "empty")
    assert code == 3 and "it has no shotfit.json" in out
    assert saving.find(str(tmp_path / "empty")) == tmp_path / "empty"
