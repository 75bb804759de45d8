"""Backbones of published sizes without weights, which take no memory and have no values."""

import torch
from conftest import SPEC, VOCABULARY, WordTokenizer
from transformers import CLIPConfig, CLIPModel

from shotfit.backbone import Backbone


def shapes_only(vision: dict, text: dict, dim: int) -> Backbone:
    """A backbone of the given sizes without weights."""
    config = CLIPConfig(
        text_config={
            "vocab_size": VOCABULARY,
            "bos_token_id": VOCABULARY - 2,
            "eos_token_id": VOCABULARY - 1,
            **text,
        },
        vision_config={"image_size": 224, **vision},
        projection_dim=dim,
    )
    with torch.device("meta"):
        model = CLIPModel(config)
    return Backbone.from_model(model, WordTokenizer(), SPEC, name="shapes")


def vit_b16() -> Backbone:
    vision = {"hidden_size": 768, "num_hidden_layers": 12, "patch_size": 16}
    return shapes_only(vision, {"hidden_size": 512, "num_hidden_layers": 12}, 512)


def vit_l14() -> Backbone:
    vision = {"hidden_size": 1024, "num_hidden_layers": 24, "patch_size": 14}
    vision |= {"num_attention_heads": 16, "intermediate_size": 4096}
    text = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12}
    return shapes_only(vision, text, 768)


def trains_and_scores_shapes(method, names):
    """On shapes without values, of the device that has nothing but shapes."""
    pixels = torch.zeros(2, 3, 224, 224, device="meta")
    labels = torch.zeros(2, dtype=torch.long, device="meta")
    method.loss(pixels, labels, names).loss.backward()
    for key, parameter in method.named_parameters():
        assert (parameter.grad is not None) == parameter.requires_grad, key
    with torch.no_grad():
        assert method(pixels, method.encode_classes(names)).shape == (2, 2)
