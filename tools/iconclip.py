"""The shape of the embedded model and the look of its input, shared by the pretraining steps."""

from __future__ import annotations

from transformers import CLIPConfig, CLIPModel

IMAGE_SIZE = 32
PATCH_SIZE = 8
DIM = 256
VOCAB_SIZE = 4096
CONTEXT = 77
MEAN = (0.75, 0.75, 0.75)
STD = (0.35, 0.35, 0.35)
"""Icons are mostly white paper; these bring the average pixel to about zero and one."""

TEMPLATES = ("a photo of a {}.", "{}", "an icon of a {}.", "a picture of a {}.", "a drawing of {}.")


def build(vocab_size: int = VOCAB_SIZE) -> CLIPModel:
    """A CLIP of 5.4 million parameters: ViT-Ti-like towers, CLIP's own wiring."""
    text = {
        "vocab_size": vocab_size,
        "hidden_size": 192,
        "intermediate_size": 768,
        "num_hidden_layers": 4,
        "num_attention_heads": 3,
        "max_position_embeddings": CONTEXT,
        "hidden_act": "quick_gelu",
        "bos_token_id": vocab_size - 2,
        "eos_token_id": vocab_size - 1,
        "pad_token_id": vocab_size - 1,
        "projection_dim": DIM,
    }
    vision = {
        "hidden_size": 192,
        "intermediate_size": 768,
        "num_hidden_layers": 6,
        "num_attention_heads": 3,
        "image_size": IMAGE_SIZE,
        "patch_size": PATCH_SIZE,
        "hidden_act": "quick_gelu",
        "projection_dim": DIM,
    }
    return CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=DIM))
