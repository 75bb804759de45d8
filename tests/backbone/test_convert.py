"""Converted weights give the embeddings of a plain implementation in OpenAI's naming."""

import json
import re
import warnings
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from small_tokenizer import small_tokenizer
from torch import nn

from shotfit.backbone import Backbone
from shotfit.backbone.convert.clip import Source, _heads, convert
from shotfit.data.transforms import CLIP_MEAN
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
    def __init__(
        self,
        vocabulary: int,
        activation: type[nn.Module] = QuickGELU,
        vision: tuple[int, int, int] = (WIDTH, 2, 2),
        text_heads: int = 1,
    ) -> None:
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
        torch.jit.save(torch.jit.trace(model, torch.randn(1, 3, SIDE, SIDE)), path)


def test_openai_archive(plain, tokenizer, tmp_path):
    archive(plain, tmp_path / "model.pt")
    convert(tmp_path / "model.pt", tmp_path / "out", tokenizer=tokenizer)
    assert_same(plain, tmp_path / "out")


def test_what_a_kill_left_in_an_empty_folder_does_not_stop_the_next_conversion(
    plain, tokenizer, tmp_path
):
    archive(plain, tmp_path / "model.pt")
    left = tmp_path / "out" / ".shotfit-x1"
    (left / "made").mkdir(parents=True)
    (left / "lock").touch()
    (left / "made" / "model.safetensors").write_bytes(b"half")
    convert(tmp_path / "model.pt", tmp_path / "out", tokenizer=tokenizer)
    assert_same(plain, tmp_path / "out")
    assert not list(tmp_path.rglob(".shotfit-*"))
    rights = {path.stat().st_mode & 0o777 for path in (tmp_path / "out").iterdir()}
    assert len(rights) == 1


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


def save_torch(found, folder):
    torch.save(found, folder / "model.pt")
    return folder / "model.pt"


@pytest.mark.parametrize(
    "wrap",
    [
        lambda state: {"model": state, "optimizer": {"state": {}}, "epoch": 3},
        lambda state: {**state, "epoch": 3, "optimizer": {}},
    ],
    ids=["model", "beside"],
)
def test_what_training_scripts_save_beside_the_weights_is_left_out(
    plain, tokenizer, tmp_path, wrap
):
    path = save_torch(wrap(plain.state_dict()), tmp_path)
    convert(path, tmp_path / "out", tokenizer=tokenizer, quick_gelu=True)
    assert_same(plain, tmp_path / "out")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: {"state_dict": [1]}, "holds no tensors.* 'state_dict'"),
        (lambda s: [1], "no weights by name: it is a list"),
        (lambda s: {**s, 3: torch.ones(1)}, "a tensor under 3"),
        (lambda s: {**s, "module.logit_scale": torch.ones(1)}, "two tensors for logit_scale"),
        (lambda s: {**s, "visual.proj": torch.ones(3)}, r"visual.proj has the shape \(3,\)"),
        (lambda s: {**s, "logit_scale": torch.ones(2)}, r"logit_scale .* shape \(2,\)"),
        (lambda s: {**s, "ln_final.bias": torch.ones(64).long()}, "ln_final.bias of .* no plain"),
        (lambda s: {**s, "ln_final.bias": torch.full((64,), torch.nan)}, "ln_final.bias of .* NaN"),
        (
            lambda s: {**s, "transformer.resblocks.0.attn.in_proj_bias": torch.ones(2)},
            r"in_proj_bias has the shape \(2,\)",
        ),
        (
            lambda s: {**s, "transformer.resblocks.999999999.ln_1.bias": torch.ones(64)},
            "left over|missing",
        ),
    ],
)
@pytest.mark.parametrize("exists", [False, True], ids=["new", "empty"])
def test_broken_weights_are_said_and_leave_nothing(plain, tmp_path, change, message, exists):
    out = tmp_path / "out"
    if exists:
        out.mkdir()
    path = save_torch(change(plain.state_dict()), tmp_path)
    with pytest.raises(DataError, match=message):
        convert(path, out, quick_gelu=True)
    assert out.exists() == exists
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["model.pt", *["out"] * exists]
    assert not exists or not list(out.iterdir())


def test_a_scale_in_a_list_becomes_a_number_in_an_empty_folder(
    plain, tokenizer, tmp_path, monkeypatch
):
    state = plain.state_dict()
    path = save_torch({**state, "logit_scale": state["logit_scale"].reshape(1)}, tmp_path)
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path / "out")
    convert(path, Path("."), tokenizer=tokenizer, quick_gelu=True)
    assert_same(plain, tmp_path / "out")
    assert not [entry for entry in (tmp_path / "out").iterdir() if entry.is_dir()]


def test_a_conversion_that_fails_late_leaves_nothing(plain, tmp_path, monkeypatch):
    path = save_torch(plain.state_dict(), tmp_path)
    real = torch.equal
    monkeypatch.setattr(torch, "equal", lambda *pair: False)
    with pytest.raises(DataError, match="not written correctly"):
        convert(path, tmp_path / "out", quick_gelu=True)
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.pt"]
    monkeypatch.setattr(torch, "equal", real)
    convert(path, tmp_path / "out", quick_gelu=True)


@pytest.mark.parametrize(
    ("facts", "error", "message"),
    [
        ({"model_cfg": {"vision_cfg": None}}, DataError, "vision_cfg is None"),
        ({"model_cfg": {}, "preprocess_cfg": [1]}, DataError, r"preprocess_cfg is \[1\]"),
        ({"model_cfg": {}, "preprocess_cfg": {"std": 1}}, DataError, "std = 1"),
        ({"model_cfg": {"quick_gelu": "no"}}, DataError, "quick_gelu = 'no'"),
        ({"model_cfg": {"text_cfg": {"heads": 7}}}, UsageError, "text tower, .* 64, .* 7 heads"),
        ({"model_cfg": {"text_cfg": {"heads": "8"}}}, DataError, "heads = '8'"),
        ({"model_cfg": {"vision_cfg": {"head_width": 0}}}, DataError, "head_width = 0"),
        ({"model_cfg": {"vision_cfg": {"head_width": 256}}}, UsageError, "image .* 0 heads"),
    ],
)
def test_an_open_clip_config_that_cannot_be_is_said(plain, tmp_path, facts, error, message):
    save_file(plain.state_dict(), tmp_path / "open_clip_model.safetensors")
    (tmp_path / "open_clip_config.json").write_text(json.dumps(facts))
    with pytest.raises(error, match=message):
        convert(tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_open_clip_config_may_not_know_its_preprocessing(plain, tmp_path):
    save_file(plain.state_dict(), tmp_path / "open_clip_model.safetensors")
    facts = {"model_cfg": {"text_cfg": {"heads": 1}}, "preprocess_cfg": None}
    (tmp_path / "open_clip_config.json").write_text(json.dumps(facts))
    convert(tmp_path, tmp_path / "out")
    written = json.loads((tmp_path / "out" / "preprocessor_config.json").read_text())
    assert written["image_mean"] == list(CLIP_MEAN)


def test_the_tokenizer_of_another_model_is_noticed(plain, tokenizer, tmp_path):
    state = plain.state_dict()
    embedding = state["token_embedding.weight"]
    few = save_torch({**state, "token_embedding.weight": embedding[:-1]}, tmp_path)
    known = len(embedding)
    with pytest.raises(DataError, match=f"another model's: .* up to {known - 1}, .* {known - 1},"):
        convert(few, tmp_path / "out", tokenizer=tokenizer, quick_gelu=True)
    assert not (tmp_path / "out").exists()
    padded = torch.cat([embedding, torch.zeros(3, TEXT_WIDTH)])
    many = save_torch({**state, "token_embedding.weight": padded}, tmp_path)
    with pytest.warns(UserWarning, match=f"may be another model's: .* knows {known + 3},"):
        convert(many, tmp_path / "out", tokenizer=tokenizer, quick_gelu=True)
    assert_same(plain, tmp_path / "out")


def test_a_tokenizer_that_cannot_be_read_is_said(plain, tokenizer, tmp_path):
    (tokenizer / "tokenizer.json").write_text("{")
    path = save_torch(plain.state_dict(), tmp_path)
    with pytest.raises(DataError, match=f"tokenizer in {tokenizer} cannot be read"):
        convert(path, tmp_path / "out", tokenizer=tokenizer, quick_gelu=True)


@pytest.mark.parametrize("name", ["model.pt", "model.safetensors"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"version https://git-lfs", "neither a torch archive nor safetensors.*b'version h'"),
        (b"\x80\x02broken", "tensors only: ."),
        (b"\x10" + bytes(7) + b"{broken", "tensors only: ."),
    ],
    ids=["empty", "text", "pickle", "safetensors"],
)
def test_a_file_that_holds_no_tensors_is_said(tmp_path, shotfit, name, content, message):
    (tmp_path / name).write_bytes(content)
    code, _, err = shotfit("convert", tmp_path / name, tmp_path / "out", "--gelu")
    assert code == 3
    assert re.search(message, " ".join(err.split())), err
