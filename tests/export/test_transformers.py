"""What other programs load: a plain checkpoint in transformers' pipeline, an adapter in PEFT."""

import shutil

import numpy as np
import pytest
import torch
from conftest import COLORS, shapes_dataset
from example_images import picture
from torch.nn import functional as F
from transformers import CLIPModel, pipeline

from shotfit.backbone import Backbone
from shotfit.classifier import FewShotClassifier
from shotfit.errors import DataError, UsageError
from shotfit.export.adapter import export_peft
from shotfit.export.merged import export_merged
from shotfit.recipe import named_recipe

IMAGES = [picture(example) for example in shapes_dataset().test[:4]]
UNSEEN = COLORS[4:]


def fitted(checkpoint, method):
    """Names that were not trained are answered by the first stage, as the exports do."""
    recipe = named_recipe(method, iters_per_shot=10)
    classifier = FewShotClassifier(str(checkpoint), recipe).fit(shapes_dataset(4), shots=1)
    classifier.published_scores = True
    return classifier


@pytest.mark.parametrize(
    "method", ["2sfs", "2sfs:lora", "2sfs:bitfit", "2sfs:clip_svd", "2sfs:clipfit", "prolip"]
)
def test_a_pipeline_answers_as_the_first_stage(method, checkpoint, tmp_path):
    classifier = fitted(checkpoint, method)
    found = export_merged(classifier, tmp_path / "merged")
    assert found.difference <= 1e-5
    tuned = pipeline("zero-shot-image-classification", model=str(tmp_path / "merged"))
    expected = classifier.predict_proba(IMAGES, UNSEEN)
    rows = []
    for image in IMAGES:
        answers = tuned(image, candidate_labels=list(UNSEEN), hypothesis_template=found.template)
        scores = {answer["label"]: answer["score"] for answer in answers}
        rows.append([scores[name] for name in UNSEEN])
    apart = abs(np.array(rows) - expected).max()
    plain = FewShotClassifier(str(checkpoint), "zero_shot").fit(shapes_dataset(4), shots=1)
    learned = abs(plain.predict_proba(IMAGES, UNSEEN) - expected).max()
    assert apart < min(1e-4, learned / 4)
    classifier.predict(IMAGES)  # it is as it was


@pytest.mark.parametrize(
    ("method", "learned"),
    [("2sfs:mma", "adapters"), ("2sfs:coop", "ctx"), ("clip_adapter", "adapter"), ("gda", "alpha")],
)
def test_what_a_plain_model_has_no_place_for_is_refused(method, learned, checkpoint, tmp_path):
    classifier = fitted(checkpoint, method)
    for export in (export_merged, export_peft):
        with pytest.raises(UsageError, match=rf"has learned \S*{learned}"):
            export(classifier, tmp_path / "out")
    assert not (tmp_path / "out").exists()


# PEFT's own.
@pytest.mark.filterwarnings("ignore:Unsupported layer type", "ignore:.is_gradient_checkpointing")
@pytest.mark.parametrize(("method", "kind"), [("2sfs", "LN_TUNING"), ("2sfs:lora", "LORA")])
def test_peft_loads_the_adapter(method, kind, checkpoint, tmp_path):
    from peft import PeftModel

    classifier = fitted(checkpoint, method)
    found = export_peft(classifier, tmp_path / "adapter")
    assert found.kind == kind and found.difference <= 1e-5
    base = CLIPModel.from_pretrained(checkpoint)
    loaded = PeftModel.from_pretrained(base, str(tmp_path / "adapter")).eval()
    pixels = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        own = classifier.method.encode_images(pixels)
        theirs = F.normalize(loaded.get_image_features(pixel_values=pixels).pooler_output, dim=-1)
        plain = Backbone.from_pretrained(str(checkpoint)).encode_image(pixels)
    assert (own - theirs).abs().max() <= 1e-5
    assert (own - F.normalize(plain, dim=-1)).abs().max() > 3e-5


def test_bitfit_is_no_peft_adapter(checkpoint, tmp_path):
    with pytest.raises(UsageError, match="export merged"):
        export_peft(fitted(checkpoint, "2sfs:bitfit"), tmp_path / "out")


def test_commands(shotfit, checkpoint, tmp_path):
    fitted(checkpoint, "2sfs").save_pretrained(tmp_path / "saved")
    code, out, err = shotfit("export", "merged", tmp_path / "saved", tmp_path / "merged")
    assert code == 0, err
    assert "hypothesis_template='a photo of a {}.'" in out
    code, out, err = shotfit("export", "peft", tmp_path / "saved", tmp_path / "adapter")
    assert code == 0 and "LN_TUNING" in out, err
    code, _, err = shotfit("export", "merged", tmp_path / "saved", tmp_path / "merged")
    assert code == 3 and "holds an export already: --overwrite replaces it" in err
    with pytest.raises(DataError, match="holds an export already"):
        export_peft(fitted(checkpoint, "2sfs"), tmp_path / "adapter", overwrite=False)


def test_an_export_is_replaced_on_request_and_nothing_else_is(shotfit, checkpoint, tmp_path):
    fitted(checkpoint, "2sfs").save_pretrained(tmp_path / "saved")
    out = tmp_path / "merged"
    command = ("export", "merged", tmp_path / "saved", out)
    assert shotfit(*command)[0] == 0
    (out / "notes.txt").write_text("mine")
    assert shotfit(*command, "--overwrite")[0] == 0
    assert (out / "notes.txt").read_text() == "mine", "what a user has put there stays"
    assert shotfit(*command, "--overwrite")[0] == 0
    # A model that was trained further since, and a pretrained one.
    (out / "model.safetensors").write_bytes(b"a month of work")
    for place in (out, shutil.copytree(checkpoint, tmp_path / "model")):
        before = {path.name: path.read_bytes() for path in place.iterdir()}
        code, _, err = shotfit("export", "merged", tmp_path / "saved", place, "--overwrite")
        assert code == 3 and "is not an export as it was written; it is left as it is" in err
        assert {path.name: path.read_bytes() for path in place.iterdir()} == before
