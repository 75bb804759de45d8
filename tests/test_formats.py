"""Files of every format so far keep loading, and answer as they did (tests/formats/make.py)."""

import json
import shutil
from pathlib import Path

import pytest
import safetensors.torch
import torch

from shotfit.classifier import FewShotClassifier
from shotfit.records import load_records, read_record
from shotfit.records.dynamics import read_dynamics
from shotfit.records.gain import read_gain
from shotfit.runtime.manifest import Manifest
from shotfit.saved_settings import CONFIG, checksum, sha256
from shotfit.saving import CLASSES
from shotfit.training.checkpoint import read_checkpoint
from shotfit.verification import verify

FORMATS = Path(__file__).parent / "formats"
BACKBONE = str(FORMATS / "backbone")
NAMES = ("red", "green", "blue", "yellow", "purple")


@pytest.fixture
def saved(tmp_path):
    return shutil.copytree(FORMATS / "saved", tmp_path / "saved")


def change(folder, **changes):
    settings = {**json.loads((folder / CONFIG).read_text()), **changes}
    settings = {key: value for key, value in settings.items() if value is not ...}
    (folder / CONFIG).write_text(json.dumps({**settings, "checksum": checksum(settings)}))


def scores(folder):
    classifier = FewShotClassifier.from_pretrained(folder, backbone=BACKBONE)
    assert classifier.classes == NAMES
    return classifier.scorer()(torch.full((1, 3, 16, 16), 0.5)).logits


def test_a_saved_classifier_is_whole_and_answers(saved):
    assert all(check.passed for check in verify(saved, backbone=BACKBONE))
    assert scores(saved).shape == (1, 5)


def test_earlier_ones_without_what_was_added_since_answer_alike(saved):
    expected = scores(saved)
    added = ("probe", "frozen_fingerprint", "added_images", "signature")
    change(saved, **dict.fromkeys(added, ...))
    assert torch.equal(scores(saved), expected)


def test_earlier_ones_without_an_assessment_go_by_the_published_scores(saved):
    change(saved, assessment=None)
    classifier = FewShotClassifier.from_pretrained(saved, backbone=BACKBONE)
    assert classifier.rule == "published" and classifier.classes == NAMES


def test_earlier_ones_call_embeddings_of_each_prompt_views(saved):
    tensors = safetensors.torch.load_file(saved / CLASSES)
    each = torch.nn.functional.normalize(torch.ones(5, 2, 8), dim=-1)
    safetensors.torch.save_file({**tensors, "views": each}, saved / CLASSES)
    change(saved, classes=sha256(saved / CLASSES))
    classifier = FewShotClassifier.from_pretrained(saved, backbone=BACKBONE)
    found = classifier.known.everything.per_prompt
    assert found is not None and torch.equal(found, each)


def test_a_record_lies_where_it_did_and_says_what_it_said(tmp_path):
    record = read_record(FORMATS / "record.json")
    assert (record.status, record.trainable_parameters[1]) == ("done", 512)
    assert len(record.curve) == 8 and set(record.metrics) > {"base", "novel", "harmonic_mean"}
    # The first version called it by its identity, and said nothing of what images held.
    values = json.loads((FORMATS / "record.json").read_text())
    del values["content"]
    (tmp_path / f"{record.id}.json").write_text(json.dumps(values))
    (old,) = load_records(tmp_path)
    assert old.content == "" and old.metrics == record.metrics


def test_curves_gains_and_exports_are_read():
    curve = read_dynamics(FORMATS / "curve.json")
    assert [point.novel for point in curve.points] == [40.0, 45.25]
    assert read_gain(FORMATS / "gain.json").after_first == {"base": 50.0, "novel": 25.0}
    manifest = Manifest.read(FORMATS)
    assert manifest.text is not None and manifest.text.prompts == ("a photo of a {}.",)


def test_a_checkpoint_says_where_its_fit_was():
    kept = read_checkpoint(FORMATS / "checkpoint.safetensors")
    assert (kept.place.stage, kept.state.iteration) == (1, 1)
    assert kept.identity["option"]["shots"] == 2 and kept.first_stage
