"""Converted weights give the embeddings of a plain implementation in OpenAI's naming."""

import json
import warnings

import pytest
import torch
from safetensors.torch import save_file
from test_loading import small_tokenizer
from torch import nn

from shotfit.backbone import Backbone
from shotfit.convert import Source, _heads, convert
from shotfit.errors import DataError, UsageError

WIDTH, TEXT_WIDTH, DIM, SIDE, PATCH, LENGTH = 128, 64, 24, 32, 8, 20


class QuickGELU(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(1.702 * x)


class Residual(nn.Module):
    def __init__(self, width, heads, activation):
        super().__init__()
        self.attn = nn.MultiheadAttention(width, heads)
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential()
        self.mlp.add_module("c_fc", nn.Linear(width, 4 * width))
        self.mlp.add_module("act", activation())
        self.mlp.add_module("c_proj", nn.Linear(4 * width, width))

    def forward(self, x, mask=None):
        y = self.ln_1(x)
        x = x + self.attn(y, y, y, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


class Stack(nn.Module):
    def __init__(self, width, depth, heads, activation):
        super().__init__()
        self.resblocks = nn.ModuleList(Residual(width, heads, activation) for _ in range(depth))


def weight(*shape):
    return nn.Parameter(torch.randn(*shape) * 0.3)


class Visual(nn.Module):
    def __init__(self, width, depth, heads, activation):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, PATCH, PATCH, bias=False)
        self.class_embedding = weight(width)
        self.positional_embedding = weight((SIDE // PATCH) ** 2 + 1, width)
        self.ln_pre, self.ln_post = nn.LayerNorm(width), nn.LayerNorm(width)
        self.transformer = Stack(width, depth, heads, activation)
        self.proj = weight(width, DIM)

    def forward(self, images):
        x = self.conv1(images).flatten(2).permute(2, 0, 1)
        first = self.class_embedding.expand(1, x.shape[1], -1)
        x = self.ln_pre(torch.cat([first, x]) + self.positional_embedding[:, None])
        for block in self.transformer.resblocks:
            x = block(x)
        return self.ln_post(x[0]) @ self.proj


class Plain(nn.Module):
    def __init__(self, vocabulary, activation=QuickGELU, vision=(WIDTH, 2, 2), text_heads=1):
        super().__init__()
        self.visual = Visual(*vision, activation)
        self.transformer = Stack(TEXT_WIDTH, 3, text_heads, activation)
        self.token_embedding = nn.Embedding(vocabulary, TEXT_WIDTH)
        self.positional_embedding = weight(LENGTH, TEXT_WIDTH)
        self.ln_final = nn.LayerNorm(TEXT_WIDTH)
        self.text_projection = weight(TEXT_WIDTH, DIM)
        self.logit_scale = nn.Parameter(torch.tensor(2.5))

    def forward(self, images):
        return self.visual(images)

    def text(self, ids):
        x = (self.token_embedding(ids) + self.positional_embedding)[:, None]
        mask = torch.full((LENGTH, LENGTH), float("-inf")).triu(1)
        for block in self.transformer.resblocks:
            x = block(x, mask)
        return (self.ln_final(x[:, 0]) @ self.text_projection)[ids.argmax()]


@pytest.fixture
def plain():
    torch.manual_seed(0)
    model = Plain(len(small_tokenizer())).eval()
    # Norms and biases that start at ones and zeros would hide a swap.
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model


@pytest.fixture
def tokenizer(tmp_path):
    small_tokenizer().save_pretrained(tmp_path / "tokenizer")
    return tmp_path / "tokenizer"


@torch.no_grad()
def assert_same(plain, folder):
    backbone = Backbone.from_pretrained(str(folder))
    images = torch.randn(2, 3, SIDE, SIDE)
    assert torch.allclose(backbone.encode_image(images), plain(images), atol=1e-4, rtol=1e-4)
    text = "a cat."
    ids = torch.zeros(LENGTH, dtype=torch.long)
    tokens = small_tokenizer()(text)["input_ids"]
    ids[: len(tokens)] = torch.tensor(tokens)
    assert torch.allclose(backbone.encode_text([text])[0], plain.text(ids), atol=1e-4, rtol=1e-4)
    assert backbone.logit_scale == plain.logit_scale
    assert backbone.image_spec.size == SIDE


def archive(model, path):
    # The tracer warns of branches on shapes and of its own end.
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.trace(model, torch.randn(1, 3, SIDE, SIDE)).save(path)


def test_openai_archive(plain, tokenizer, tmp_path):
    archive(plain, tmp_path / "model.pt")
    convert(tmp_path / "model.pt", tmp_path / "out", tokenizer=tokenizer)
    assert_same(plain, tmp_path / "out")


def test_state_dict_needs_its_activation(plain, tokenizer, tmp_path):
    state = {f"module.{name}": value for name, value in plain.state_dict().items()}
    torch.save({"state_dict": state, "epoch": 3}, tmp_path / "epoch.pt")
    with pytest.raises(UsageError, match="--quick-gelu"):
        convert(tmp_path / "epoch.pt", tmp_path / "out", tokenizer=tokenizer)
    convert(tmp_path / "epoch.pt", tmp_path / "out", tokenizer=tokenizer, quick_gelu=True)
    assert_same(plain, tmp_path / "out")
    with pytest.raises(UsageError, match="exists"):
        convert(tmp_path / "epoch.pt", tmp_path / "out", quick_gelu=True)


def test_open_clip_folder(tokenizer, tmp_path):
    torch.manual_seed(1)
    plain = Plain(len(small_tokenizer()), nn.GELU).eval()
    folder = tmp_path / "open_clip"
    folder.mkdir()
    save_file(plain.state_dict(), folder / "open_clip_model.safetensors")
    facts = {
        "model_cfg": {
            "vision_cfg": {"head_width": 64, "pool_type": "tok"},
            "text_cfg": {"heads": 1},
        },
        "preprocess_cfg": {"mean": [0.5] * 3, "std": [0.25] * 3, "resize_mode": "squash"},
    }
    (folder / "open_clip_config.json").write_text(json.dumps(facts))
    convert(folder, tmp_path / "out", tokenizer=tokenizer)
    assert_same(plain, tmp_path / "out")
    spec = Backbone.from_pretrained(str(tmp_path / "out")).image_spec
    assert spec.square
    assert spec.std == (0.25, 0.25, 0.25)


def wide_model(text_heads):
    """As wide as ViT-H, with its 16 heads of 80."""
    torch.manual_seed(2)
    vision = (1280, 1, 16)
    return Plain(len(small_tokenizer()), nn.GELU, vision, text_heads).eval()


def test_a_wide_state_dict_needs_its_heads(tokenizer, tmp_path, shotfit):
    wide = wide_model(text_heads=1)
    torch.save(wide.state_dict(), tmp_path / "wide.pt")
    command = (
        "convert",
        tmp_path / "wide.pt",
        tmp_path / "out",
        "--gelu",
        "--tokenizer",
        tokenizer,
    )
    code, _, err = shotfit(*command)
    assert code == 2
    assert "width 1280" in err and "open_clip_config.json" in err and "--heads" in err
    code, _, err = shotfit(*command, "--heads", 17)
    assert code == 2
    assert "cannot have 17 heads" in err
    assert not (tmp_path / "out").exists()
    code, _, err = shotfit(*command, "--heads", 16)
    assert code == 0, err
    assert_same(wide, tmp_path / "out")


@pytest.mark.parametrize("text", [{"heads": 8}, {}], ids=["said", "default"])
def test_heads_of_an_open_clip_config(tokenizer, tmp_path, text):
    wide = wide_model(text_heads=8)
    folder = tmp_path / "open_clip"
    folder.mkdir()
    save_file(wide.state_dict(), folder / "open_clip_model.safetensors")
    facts = {"model_cfg": {"vision_cfg": {"head_width": 80}, "text_cfg": text}}
    (folder / "open_clip_config.json").write_text(json.dumps(facts))
    convert(folder, tmp_path / "out", tokenizer=tokenizer)
    assert_same(wide, tmp_path / "out")


@pytest.mark.parametrize(
    ("image", "text", "heads"),
    [
        (384, 256, (6, 4)),  # ViT-S of open_clip
        (768, 512, (12, 8)),  # ViT-B
        (896, 640, (14, 10)),  # ViT-B+ of open_clip
        (1024, 768, (16, 12)),  # ViT-L
    ],
)
def test_heads_are_64_wide_where_all_models_have_it(image, text, heads):
    assert _heads(Source({}), image, text, None) == heads


def test_heads_that_cannot_be_known_are_not_guessed():
    for width in (100, 1280, 1408, 1664):
        with pytest.raises(UsageError, match="--heads"):
            _heads(Source({}), width, 1024, None)
        assert _heads(Source({}), width, 1280, 4) == (4, 20)
    with pytest.raises(UsageError, match="text tower of width 1536 has: give the folder"):
        _heads(Source({}), 1024, 1536, None)


def test_what_is_no_clip_is_refused(plain, tmp_path):
    def attempt(change):
        state = plain.state_dict()
        change(state)
        torch.save(state, tmp_path / "model.bin")
        convert(tmp_path / "model.bin", tmp_path / "out", quick_gelu=True)

    with pytest.raises(DataError, match="left over extra"):
        attempt(lambda state: state.update(extra=torch.ones(1)))
    with pytest.raises(DataError, match=r"missing text_model\.final_layer_norm"):
        attempt(lambda state: state.pop("ln_final.bias"))
    with pytest.raises(UsageError, match="ResNet"):
        attempt(lambda state: state.pop("visual.proj"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("{", DataError, "no config of open_clip"),
        ("{}", DataError, "model_cfg"),
        # The same tensors, but pooled or masked in another way.
        ({"vision_cfg": {"global_average_pool": True}}, UsageError, "global_average_pool"),
        ({"vision_cfg": {"pool_type": "avg"}}, UsageError, "pool_type = 'avg'"),
        ({"text_cfg": {"no_causal_mask": True}}, UsageError, "no_causal_mask"),
    ],
)
def test_an_open_clip_config_of_another_model_is_refused(plain, tmp_path, text, error, message):
    save_file(plain.state_dict(), tmp_path / "open_clip_model.safetensors")
    text = text if isinstance(text, str) else json.dumps({"model_cfg": text})
    (tmp_path / "open_clip_config.json").write_text(text)
    with pytest.raises(error, match=message):
        convert(tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


class Payload:
    def __reduce__(self):
        return (pytest.fail, ("code in the file was run",))


def test_objects_are_never_unpickled(tmp_path):
    torch.save({"state_dict": Payload()}, tmp_path / "bad.pt")
    with pytest.raises(DataError, match="tensors only"):
        convert(tmp_path / "bad.pt", tmp_path / "out", quick_gelu=True)
