"""Folders in, backbones out: layouts of weights, tokenizers, and what is refused how."""

import json
import subprocess
import sys
import time

import pytest
import torch
from conftest import tiny_clip
from pil_processors import CLIPImageProcessorPil
from plain_clip import pooled
from safetensors.torch import load_file, save_file
from small_tokenizer import small_tokenizer
from transformers import BertConfig, CLIPModel, CLIPTextConfig

from shotfit.backbone import Backbone, hub
from shotfit.backbone.clip_modules import read_clip
from shotfit.errors import DataError, UsageError

TEXTS = ["a photo of a cat.", "cat cat cat", "a"]


def save(folder, *, eos=None, dtype=None, shard="5GB"):
    model, tokenizer = tiny_clip(), small_tokenizer()
    text = model.config.text_config
    assert isinstance(text, CLIPTextConfig)
    text.update(
        {"eos_token_id": eos or tokenizer.eos_token_id, "bos_token_id": tokenizer.bos_token_id}
    )
    (model.to(dtype) if dtype else model).save_pretrained(folder, max_shard_size=shard)
    tokenizer.save_pretrained(folder)
    processor = CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size=32)
    processor.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("eos", [None, 2])
@torch.no_grad()
def test_texts_end_where_transformers_reads_them(tmp_path, eos):
    save(tmp_path, eos=eos)
    backbone = Backbone.from_pretrained(str(tmp_path))
    tokenizer = small_tokenizer()
    tokens = backbone.tokenize(TEXTS)
    assert all(row[0] == tokenizer.bos_token_id for row in tokens)
    assert all(row[-1] == tokenizer.eos_token_id for row in tokens)
    inputs = tokenizer(TEXTS, padding="max_length", return_tensors="pt")
    model = CLIPModel.from_pretrained(tmp_path).eval()
    assert (model.config.to_dict()["text_config"]["eos_token_id"] == 2) == (eos == 2)
    expected = pooled(model.get_text_features(**inputs))
    assert torch.allclose(backbone.encode_text(TEXTS), expected, atol=1e-5)
    with pytest.raises(DataError, match="reads 77"):
        backbone.encode_text(["x " * 80])


def test_shards_and_half_precision_load_as_float32(tmp_path):
    save(tmp_path, dtype=torch.float16, shard="100KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    backbone = Backbone.from_pretrained(str(tmp_path))
    assert {p.dtype for p in backbone.parameters()} == {torch.float32}
    expected = tiny_clip().text_projection.weight.half().float()
    assert torch.equal(backbone.text.projection.weight, expected)


def test_what_cannot_be_read_is_said(tmp_path):
    def broken(name, change):
        folder = save(tmp_path / name)
        change(folder)
        with pytest.raises(DataError) as caught:
            Backbone.from_pretrained(str(folder))
        return str(caught.value)

    def pickled(folder):
        (folder / "model.safetensors").rename(folder / "pytorch_model.bin")

    def truncated(folder):
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:5000])

    def without_tokenizer(folder):
        for path in [*folder.glob("tokenizer*"), *folder.glob("vocab*"), *folder.glob("merges*")]:
            path.unlink()

    assert "safetensors" in broken("pickled", pickled)
    assert "truncated" in broken("truncated", truncated)
    assert "tokenizer" in broken("no-tokenizer", without_tokenizer)
    assert "config" in broken("bad", lambda f: (f / "config.json").write_text("{"))


def test_another_model_type_is_a_usage_error(tmp_path):
    folder = save(tmp_path)
    BertConfig(num_hidden_layers=1).save_pretrained(folder)
    with pytest.raises(UsageError, match="bert"):
        Backbone.from_pretrained(str(folder))


def test_a_model_loads_without_a_word(tmp_path, capfd):
    save(tmp_path)
    capfd.readouterr()
    Backbone.from_pretrained(str(tmp_path))
    assert capfd.readouterr() == ("", "")


def test_an_unreachable_hub_is_said_at_once(tmp_path, monkeypatch):
    from huggingface_hub import constants

    # A port where nobody listens.
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    start = time.monotonic()
    with pytest.raises(DataError, match="cannot be reached"):
        Backbone.from_pretrained("someone/no-such-model")
    assert time.monotonic() - start < 2


class TestNothingOfACheckpointRuns:
    @pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
    def test_code_of_its_own_is_refused_without_a_question(self, tmp_path, monkeypatch, file):
        folder = save(tmp_path)
        facts = json.loads((folder / file).read_text())
        facts["auto_map"] = {"AutoConfig": "evil.Config", "AutoTokenizer": ["evil.T", None]}
        (folder / file).write_text(json.dumps(facts))
        (folder / "evil.py").write_text("raise SystemExit('ran')")
        monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("it asked"))
        with pytest.raises(DataError, match="code of its own"):
            Backbone.from_pretrained(str(folder))


class TestTensorsThatAnswersDependOn:
    def change(self, folder, change):
        state = load_file(folder / "model.safetensors")
        change(state)
        save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
        return str(folder)

    def test_a_missing_one_is_not_made_up(self, tmp_path):
        folder = self.change(save(tmp_path), lambda state: state.pop("visual_projection.weight"))
        with pytest.raises(DataError, match=r"lack visual_projection\.weight"):
            Backbone.from_pretrained(folder)

    def test_one_of_another_shape_is_refused(self, tmp_path):
        def narrower(state):
            state["visual_projection.weight"] = state["visual_projection.weight"][:, 1:].clone()

        with pytest.raises(DataError, match=r"visual_projection\.weight|shape"):
            Backbone.from_pretrained(self.change(save(tmp_path), narrower))

    @pytest.mark.parametrize("value", [float("nan"), float("inf")])
    def test_one_that_is_not_finite_is_refused(self, tmp_path, value):
        def spoil(state):
            state["visual_projection.weight"][0, 0] = value

        with pytest.raises(DataError, match=r"not finite in visual_projection\.weight"):
            Backbone.from_pretrained(self.change(save(tmp_path), spoil))


class TestWithoutTransformers:
    """A CLIP is read by its config and tensors alone; what is not as usual is left to
    transformers."""

    def test_it_is_the_same_model(self, tmp_path, monkeypatch):
        folder = str(save(tmp_path))
        names = ["a photo of a cat.", "a photo of a dog."]
        pixels = torch.linspace(-1, 1, 2 * 3 * 32 * 32).view(2, 3, 32, 32)
        quick = Backbone.from_pretrained(folder)
        monkeypatch.setattr(hub, "read_clip", lambda folder: None)
        usual = Backbone.from_pretrained(folder)
        assert str(quick) == str(usual)
        for (name, value), (other, same) in zip(
            quick.named_parameters(), usual.named_parameters(), strict=True
        ):
            assert name == other and torch.equal(value, same)
            assert value.requires_grad == same.requires_grad
        assert torch.equal(quick.encode_image(pixels), usual.encode_image(pixels))
        assert torch.equal(quick.encode_text(names), usual.encode_text(names))

    def test_it_does_not_load_transformers(self, checkpoint):
        code = (
            "import sys; from shotfit.backbone import Backbone; "
            f"b = Backbone.from_pretrained({str(checkpoint)!r}); "
            "assert 'transformers' not in sys.modules; b.tokenize(['a photo']); "
            "assert 'transformers' in sys.modules"
        )
        subprocess.run([sys.executable, "-c", code], check=True)

    @pytest.mark.parametrize(
        "change",
        [
            {"hidden_act": "silu"},
            {"num_hidden_layers": 1},
            {"hidden_size": 40},
            {"intermediate_size": 100},
            {"image_size": 64},
        ],
    )
    def test_what_is_not_as_usual_is_left_to_transformers(self, tmp_path, change):
        folder = save(tmp_path)
        assert read_clip(folder) is not None
        config = json.loads((folder / "config.json").read_text())
        config["vision_config"].update(change)
        (folder / "config.json").write_text(json.dumps(config))
        assert read_clip(folder) is None


@pytest.mark.parametrize(
    "facts",
    [
        "[",
        "[]",
        '{"size": {}}',
        '{"size": -1}',
        '{"size": "224"}',
        '{"size": {"height": 1e9}}',
        '{"crop_size": {"width": 1}}',
        '{"crop_size": 100000}',
        '{"resample": 99}',
        '{"image_mean": [0.5]}',
        '{"image_mean": null}',
        '{"image_std": [0, 1, 1]}',
        '{"image_std": [NaN, 1, 1]}',
        '{"rescale_factor": "1"}',
    ],
)
def test_a_preprocessor_that_cannot_be_followed_is_refused_by_its_name(tmp_path, facts):
    (tmp_path / "preprocessor_config.json").write_text(facts)
    with pytest.raises(DataError, match="preprocessor_config.json does not say how images"):
        hub.read_image_spec(tmp_path)


@pytest.mark.parametrize(
    ("tower", "values", "match"),
    [
        ("vision_config", {"num_hidden_layers": 10**9}, "num_hidden_layers = 1000000000"),
        ("text_config", {"vocab_size": 10**12}, "vocab_size = 1000000000000"),
        # transformers 5.0 leaves it to torch.
        ("text_config", {"hidden_size": [64]}, "hidden_size|must be tuple of ints,but got list"),
        ("vision_config", {"image_size": None}, "Cannot load the model"),
    ],
)
def test_a_config_of_a_model_that_cannot_be_is_refused_before_it_is_built(
    tmp_path, tower, values, match
):
    save(tmp_path)
    facts = json.loads((tmp_path / "config.json").read_text())
    facts[tower] |= values
    (tmp_path / "config.json").write_text(json.dumps(facts))
    with pytest.raises(DataError, match=match):
        Backbone.from_pretrained(str(tmp_path))
