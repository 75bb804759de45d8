"""A CLIP's modules from a folder's config and tensors, without importing transformers.

That import takes more time than everything else that the prediction of an image needs. What is not
exactly as expected here is left to transformers, which knows more forms and says what is wrong.
"""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from shotfit.backbone.activation import quick_gelu
from shotfit.system.parsing import parse_json

WEIGHTS = "model.safetensors"
ACTIVATIONS = {"quick_gelu": quick_gelu, "gelu": nn.functional.gelu}
# What transformers' `CLIPTextConfig` and `CLIPVisionConfig` take for what a config does not say.
TEXT = {
    "hidden_size": 512,
    "intermediate_size": 2048,
    "num_hidden_layers": 12,
    "num_attention_heads": 8,
    "hidden_act": "quick_gelu",
    "layer_norm_eps": 1e-5,
    "vocab_size": 49408,
    "max_position_embeddings": 77,
}
VISION = {
    **TEXT,
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_attention_heads": 12,
    "image_size": 224,
    "patch_size": 32,
}
DIM = 512
# What would make another model of the same tensors.
FOREIGN = ("quantization_config", "text_config_dict", "vision_config_dict")


def read_clip(folder: Path) -> Any | None:
    """The modules under the names that they have in transformers' `CLIPModel`, in single precision;
    None for anything but the usual CLIP, whole, in a single file."""
    try:
        config = parse_json((folder / "config.json").read_text(encoding="utf-8"))
        if config.get("model_type") != "clip" or any(config.get(key) for key in FOREIGN):
            return None
        text, vision = ({**TEXT, **config["text_config"]}, {**VISION, **config["vision_config"]})
        dim = config.get("projection_dim", DIM)
        tensors = safetensors.torch.load_file(folder / WEIGHTS)
        modules = _Modules({name: value.float() for name, value in tensors.items()})
        found = SimpleNamespace(
            config=SimpleNamespace(model_type="clip"),
            vision_model=modules.vision(vision),
            text_model=modules.text(text),
            visual_projection=modules.projection("visual_projection", vision, dim),
            text_projection=modules.projection("text_projection", text, dim),
            logit_scale=modules.take("logit_scale", ()),
        )
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return found if modules.finite else None


class _Modules:
    """Modules made of named tensors.

    Raises (by any method):
        KeyError: for a tensor that is not there. ValueError: for one of another shape.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.tensors = tensors

    @property
    def finite(self) -> bool:
        """Whether every value is a number."""
        return all(bool(torch.isfinite(value).all()) for value in self.tensors.values())

    def vision(self, facts: dict[str, Any]) -> Any:
        """What is used of a `CLIPVisionModel`."""
        width, size = facts["hidden_size"], facts["patch_size"]
        places = (facts["image_size"] // size) ** 2 + 1
        name = "vision_model.embeddings"
        weight = self.take(f"{name}.patch_embedding.weight", (width, 3, size, size))
        patches = nn.Conv2d(3, width, size, stride=size, bias=False)
        patches.weight = nn.Parameter(weight)
        embeddings = SimpleNamespace(
            patch_embedding=patches,
            class_embedding=nn.Parameter(self.take(f"{name}.class_embedding", (width,))),
            position_embedding=self.embedding(f"{name}.position_embedding", places, width),
        )
        return SimpleNamespace(
            config=SimpleNamespace(**facts),
            embeddings=embeddings,
            encoder=self.encoder("vision_model.encoder", facts),
            pre_layrnorm=self.norm("vision_model.pre_layrnorm", facts),
            post_layernorm=self.norm("vision_model.post_layernorm", facts),
        )

    def text(self, facts: dict[str, Any]) -> Any:
        """What is used of a `CLIPTextModel`."""
        width, name = facts["hidden_size"], "text_model.embeddings"
        words, places = facts["vocab_size"], facts["max_position_embeddings"]
        embeddings = SimpleNamespace(
            token_embedding=self.embedding(f"{name}.token_embedding", words, width),
            position_embedding=self.embedding(f"{name}.position_embedding", places, width),
        )
        return SimpleNamespace(
            config=SimpleNamespace(**facts),
            embeddings=embeddings,
            encoder=self.encoder("text_model.encoder", facts),
            final_layer_norm=self.norm("text_model.final_layer_norm", facts),
        )

    def encoder(self, name: str, facts: dict[str, Any]) -> Any:
        """The blocks of a tower, of which there are no more than the config says."""
        count = facts["num_hidden_layers"]
        if any(key.startswith(f"{name}.layers.{count}.") for key in self.tensors):
            raise ValueError("there are more layers")
        layers = [self.layer(f"{name}.layers.{number}", facts) for number in range(count)]
        return SimpleNamespace(layers=layers)

    def layer(self, name: str, facts: dict[str, Any]) -> Any:
        """What is used of a `CLIPEncoderLayer`."""
        projections = ("q_proj", "k_proj", "v_proj", "out_proj")
        width, hidden = facts["hidden_size"], facts["intermediate_size"]
        attention = {
            part: self.linear(f"{name}.self_attn.{part}", width, width) for part in projections
        }
        return SimpleNamespace(
            self_attn=SimpleNamespace(**attention),
            mlp=SimpleNamespace(
                fc1=self.linear(f"{name}.mlp.fc1", width, hidden),
                fc2=self.linear(f"{name}.mlp.fc2", hidden, width),
                activation_fn=ACTIVATIONS[facts["hidden_act"]],
            ),
            layer_norm1=self.norm(f"{name}.layer_norm1", facts),
            layer_norm2=self.norm(f"{name}.layer_norm2", facts),
        )

    def projection(self, name: str, facts: dict[str, Any], dim: int) -> nn.Linear:
        """The projection of a tower into the joint space."""
        return self.linear(name, facts["hidden_size"], dim, bias=False)

    def linear(self, name: str, inputs: int, outputs: int, *, bias: bool = True) -> nn.Linear:
        """A linear layer."""
        # One output, then all of them: random numbers for 80 million weights take a second.
        made = nn.Linear(inputs, 1, bias=bias)
        made.out_features = outputs
        made.weight = nn.Parameter(self.take(f"{name}.weight", (outputs, inputs)))
        if bias:
            made.bias = nn.Parameter(self.take(f"{name}.bias", (outputs,)))
        return made

    def norm(self, name: str, facts: dict[str, Any]) -> nn.LayerNorm:
        """A LayerNorm."""
        width = facts["hidden_size"]
        made = nn.LayerNorm(width, eps=facts["layer_norm_eps"])
        made.weight = nn.Parameter(self.take(f"{name}.weight", (width,)))
        made.bias = nn.Parameter(self.take(f"{name}.bias", (width,)))
        return made

    def embedding(self, name: str, rows: int, width: int) -> nn.Embedding:
        """A table of embeddings."""
        weight = self.take(f"{name}.weight", (rows, width))
        return nn.Embedding.from_pretrained(weight, freeze=False)

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """The tensor of a name."""
        if self.tensors[name].shape != shape:
            raise ValueError(f"{name} has another shape")
        return self.tensors[name]
