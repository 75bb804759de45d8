"""SigLIP's towers against transformers' own, and its tokens against what it was trained on."""

import importlib.util
import json

import pytest
import torch
from conftest import SPEC, VOCABULARY, WordTokenizer, make_backbone, tiny_siglip
from plain_clip import pooled
from torch import nn
from torch.nn import functional as F
from transformers import SiglipVisionConfig

from shotfit.backbone import Backbone, DeepPrompts
from shotfit.errors import DataError
from shotfit.methods import get_method

TEXTS = ["a photo of a red.", "a photo of a rather long blue thing.", "green"]


def pixels(batch=3):
    return torch.randn(batch, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def padded(backbone, texts):
    return backbone.text.prepare(backbone.tokenize(texts)).ids


@torch.no_grad()
def test_embeddings_and_scores_are_those_of_transformers():
    model, backbone = tiny_siglip(), make_backbone(family="siglip")
    ids = padded(backbone, TEXTS)
    assert ids.shape == (3, 64)
    expected = model(input_ids=ids, pixel_values=pixels())
    images = pooled(model.get_image_features(pixels()))
    texts = pooled(model.get_text_features(ids))
    assert torch.allclose(backbone.encode_image(pixels()), images, atol=1e-5, rtol=1e-5)
    assert torch.allclose(backbone.encode_text(TEXTS), texts, atol=1e-5, rtol=1e-5)
    assert backbone.dim == 64
    assert backbone.logit_bias is not None
    assert backbone.logit_scale.shape == backbone.logit_bias.shape == ()
    method = get_method("zero_shot")(backbone)
    scores = method.logits(F.normalize(images, dim=-1), F.normalize(texts, dim=-1))
    assert torch.allclose(scores, expected.logits_per_image, atol=1e-4)


@torch.no_grad()
def test_context_replaces_the_first_tokens_with_and_without_groups():
    backbone = make_backbone(family="siglip")
    ids = padded(backbone, TEXTS)
    own = backbone.text.token_embedding(ids[0, :2])
    others = torch.randn(2, 48)
    grouped = backbone.encode_text(TEXTS, torch.stack([own, others]))
    assert grouped.shape == (2, 3, backbone.dim)
    plain = backbone.encode_text(TEXTS)
    assert torch.allclose(grouped[0, 0], plain[0], atol=1e-5)
    assert torch.allclose(grouped[1], backbone.encode_text(TEXTS, others), atol=1e-5)
    assert not torch.allclose(grouped[1], plain, atol=1e-3)
    deep = backbone.encode_text(TEXTS, others, DeepPrompts((torch.randn(2, 48),)))
    assert deep.shape == plain.shape
    assert not torch.allclose(deep, grouped[1], atol=1e-3)


@torch.no_grad()
def test_prompts_at_the_image_act_but_are_not_pooled():
    backbone = make_backbone(family="siglip")
    seen = []
    backbone.vision.pooling.register_forward_pre_hook(lambda _, args: seen.append(args[0].shape[1]))
    context = torch.randn(2, 64)
    plain = backbone.encode_image(pixels())
    prompted = backbone.encode_image(pixels(), context)
    deep = backbone.encode_image(pixels(), context, DeepPrompts((torch.randn(2, 64),)))
    each = backbone.encode_image(pixels(), context.expand(3, -1, -1))
    assert seen == [16] * 4
    assert not torch.allclose(plain, prompted, atol=1e-3)
    assert not torch.allclose(deep, prompted, atol=1e-3)
    assert torch.allclose(each, prompted, atol=1e-5)


def test_the_pooling_norm_is_no_block_norm():
    backbone = make_backbone(family="siglip")
    config = get_method("layernorm").Config
    count = {}
    for norms in ("blocks", "all"):
        method = get_method("layernorm")(make_backbone(family="siglip"), config(norms=norms))
        count[norms] = sum(p.numel() for p in method.parameters() if p.requires_grad)
    assert count["blocks"] == 2 * 2 * (3 * 64 + 2 * 48)
    # Outside the blocks: the last norm of each tower, and the one of the pooling head.
    assert count["all"] - count["blocks"] == 2 * (64 + 48 + 64)
    outer = [m for m in backbone.vision.pooling.modules() if isinstance(m, nn.LayerNorm)]
    assert len(outer) == 1


def test_tokens_are_lower_case_end_with_the_end_and_have_no_start():
    backbone = make_backbone(family="siglip")
    upper, lower = backbone.tokenize(["A Photo of a CAT.", "a photo of a cat."])
    assert upper == lower
    assert upper[-1] == VOCABULARY - 1
    assert VOCABULARY - 2 not in upper
    assert len(upper) == 7


def test_the_first_generation_drops_punctuation():
    class FirstGeneration(WordTokenizer):
        pad_token_id = WordTokenizer.eos_token_id
        bos_token_id = None

        def __call__(self, texts):
            return {"input_ids": [self._ids(text)[1:-1] for text in texts]}

    backbone = Backbone.from_model(tiny_siglip(), FirstGeneration(), SPEC)
    dotted, plain = backbone.tokenize(["a  photo of a 'cat'.", "a photo of a cat"])
    assert dotted == plain
    assert backbone.text.prepare([plain]).ids[0, len(plain) - 1 :].unique().tolist() == [999]


def test_what_cannot_work_is_refused():
    backbone = make_backbone(family="siglip")
    with pytest.raises(DataError, match="reads 64"):
        backbone.encode_text(["word " * 80])
    tokenizer = WordTokenizer()
    tokenizer.pad_token_id = None
    with pytest.raises(DataError, match="padding"):
        Backbone.from_model(tiny_siglip(), tokenizer, SPEC)
    model = tiny_siglip()
    vision = model.config.vision_config
    assert isinstance(vision, SiglipVisionConfig)
    vision.vision_use_head = False
    with pytest.raises(DataError, match="pooling head"):
        Backbone.from_model(model, WordTokenizer(), SPEC)


def siglip_folder(folder):
    """A first-generation checkpoint as the hub has it, its tokenizer a sentencepiece model."""
    import sentencepiece

    words = "a photo of red green blue rather long thing this is one picture".split()
    sentences = [" ".join(words[start:] + words[:start]) for start in range(len(words))]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences * 5),
        model_prefix=str(folder / "spiece"),
        vocab_size=90,
        hard_vocab_limit=False,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        minloglevel=2,
    )
    tiny_siglip().save_pretrained(folder)
    named = {"pad_token": "</s>", "eos_token": "</s>", "unk_token": "<unk>"}
    tokenizer = {"tokenizer_class": "SiglipTokenizer", **named}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    image = {"size": {"height": 32, "width": 32}, "do_center_crop": False}
    (folder / "preprocessor_config.json").write_text(json.dumps(image))
    return folder


def test_a_checkpoint_with_a_sentencepiece_tokenizer_loads(tmp_path, monkeypatch):
    pytest.importorskip("sentencepiece")
    folder = siglip_folder(tmp_path)
    backbone = Backbone.from_pretrained(str(folder))
    ours = backbone.tokenize(["A photo of a Red."])
    theirs = [backbone.tokenizer(["a photo of a red"])["input_ids"][0]]
    assert ours == theirs and ours[0][-1] == backbone.tokenizer.eos_token_id
    assert backbone.encode_text(["a photo of a red."]).shape == (1, backbone.dim)

    def missing(*arguments, **options):
        raise ImportError("no sentencepiece")

    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", missing)
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "sentencepiece" else find(name)
    )
    with pytest.raises(DataError, match=r"shotfit\[siglip\]"):
        Backbone.from_pretrained(str(folder))
