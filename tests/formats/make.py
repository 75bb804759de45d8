"""Made `tests/formats` with the version that its `VERSION` names; later versions must load it.

    PYTHONPATH=tests python tests/formats/make.py FOLDER

Not run again: what it would make now is of the format of now. When a format changes, it makes the
next folder beside this one.
"""

import contextlib
import json
import os
import sys
from pathlib import Path

import torch
from conftest import shapes_dataset
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import CLIPConfig, CLIPModel, PreTrainedTokenizerFast

from shotfit import __version__
from shotfit.classifier import FewShotClassifier
from shotfit.experiment import Experiment, run
from shotfit.recipe import Recipe, Stage
from shotfit.records import write_record
from shotfit.records.dynamics import DynamicsPoint, LearningDynamics, write_dynamics
from shotfit.records.gain import Gain, write_gain
from shotfit.runtime.manifest import Manifest, TextRules
from shotfit.training.checkpoint import Checkpoints

WORDS = "a photo of . red green blue yellow purple <s> </s> <unk>".split()


def backbone(folder: Path) -> None:
    """A CLIP of some 20,000 parameters, as the hub has them."""
    torch.manual_seed(0)
    tower = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    tower["num_attention_heads"] = 2
    text = {**tower, "vocab_size": len(WORDS), "max_position_embeddings": 16}
    text |= {"bos_token_id": WORDS.index("<s>"), "eos_token_id": WORDS.index("</s>")}
    vision = {**tower, "image_size": 16, "patch_size": 8}
    config = CLIPConfig(text_config=text, vision_config=vision, projection_dim=8)
    CLIPModel(config).save_pretrained(folder)
    tokenizer = Tokenizer(
        models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="<unk>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        special_tokens=[(word, WORDS.index(word)) for word in ("<s>", "</s>")],
    )
    special = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>", "unk_token": "<unk>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)
    facts = {"size": {"shortest_edge": 16}, "crop_size": {"height": 16, "width": 16}}
    (folder / "preprocessor_config.json").write_text(json.dumps(facts))


def main(folder: Path) -> None:
    """Writes one file or folder of every format."""
    torch.set_num_threads(1)
    # Names without a path of the machine that it was made on.
    os.chdir(folder)
    folder = Path()
    backbone(folder / "backbone")
    stages = (
        Stage("layernorm", training={"iterations": 4}),
        Stage("linear", training={"iterations": 4}),
    )
    recipe, data = Recipe(stages), shapes_dataset(4, train=2, test=2)
    classifier = FewShotClassifier("backbone", recipe)
    classifier.fit(data, shots=2, verbose=False)
    classifier.add_classes(["purple"])
    classifier.save_pretrained(folder / "saved")
    experiment = Experiment(data={"name": "digits"}, backbone="iconclip", shots=2, recipe=recipe)
    record, _ = run(experiment, dataset=data, backbone=None)
    write_record(folder, record).replace("record.json")
    points = (DynamicsPoint(0, 50.0, 40.0), DynamicsPoint(2, 60.5, 45.25, 1.125))
    values = record.id, record.experiment, "shapes", "layernorm", 1, 2, points
    write_dynamics(folder / "curve.json", LearningDynamics(*values))
    write_gain(folder / "gain.json", Gain(record, {"base": 50.0, "novel": 25.0}))
    manifest = Manifest(
        image=classifier.method.backbone.image_spec,
        text=TextRules(("a photo of a {}.",), 16, 10, drop_start=None),
        batch=None,
        int8=False,
        source={"shotfit": __version__, "stages": ["layernorm", "linear"]},
        files={"image.onnx": "0" * 64},
    )
    manifest.write(folder)

    def stop(method, stage, step):
        if stage == 1 and step.iteration == 2:
            raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        run(
            Experiment(data={"name": "digits"}, backbone="backbone", shots=2, recipe=recipe),
            dataset=data,
            observe=stop,
            checkpoints=Checkpoints(folder, every=0),
        )
    (folder / "VERSION").write_text(f"{__version__}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
