"""SigLIP leaves as CLIP does: both towers, and the rules of its tokenizers of both generations."""

import numpy as np
import pytest
from conftest import COLORS, SPEC, VOCABULARY, shapes_dataset, tiny_siglip
from example_images import picture
from test_contract import fit
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from shotfit.backbone import Backbone
from shotfit.classifier import FewShotClassifier
from shotfit.export.onnx import TOLERANCE, export_onnx
from shotfit.runtime import ExportedClassifier

IMAGES = [picture(example) for example in shapes_dataset().test[:5]]
END = VOCABULARY - 1


def tokenizer(generation):
    """The first pads with the end and has no start, the second pads with a token of its own."""
    words = ["<pad>", "a", "photo", "of", ".", "light", "!", "<unk>", *COLORS]
    vocabulary = {**{word: number for number, word in enumerate(words)}, "</s>": END}
    found = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    found.pre_tokenizer = pre_tokenizers.Whitespace()
    found.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", END)]
    )
    pad = {1: "</s>", 2: "<pad>"}[generation]
    special = {"eos_token": "</s>", "pad_token": pad, "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=found, **special)


@pytest.mark.parametrize(("generation", "method"), [(1, "layernorm"), (2, "lora")])
def test_siglip_answers_as_in_pytorch(generation, method, task, tmp_path):
    backbone = Backbone.from_model(tiny_siglip(), tokenizer(generation), SPEC, name="tiny")
    fitted, _ = fit(method, task, backbone=backbone)
    classifier = FewShotClassifier("tiny").take(fitted)
    assert export_onnx(classifier, tmp_path / "onnx").difference <= TOLERANCE
    runtime = ExportedClassifier.load(tmp_path / "onnx", threads=1, check=True)
    for name in (None, "Light_Orange!", "orange"):
        if name is not None:
            runtime.add_classes([name])
            classifier.add_classes([name])
        assert runtime.classes == classifier.classes
        expected = next(iter(classifier.iter_logits(IMAGES))).numpy()
        found = runtime.matrix.scores(runtime.features(IMAGES))
        scale = max(1.0, float(np.linalg.norm(runtime.matrix.rows, axis=1).max()))
        assert np.abs(found - expected).max() <= TOLERANCE * scale
    assert runtime.predict(IMAGES) == classifier.predict(IMAGES)
