"""The shape of the embedded model and the look of its input, shared by the pretraining steps."""

from __future__ import annotations

from transformers import CLIPConfig, CLIPModel

IMAGE_SIZE = 32
PATCH_SIZE = 8
VISION_WIDTH = 192
VISION_DEPTH = 6
TEXT_WIDTH = 192
TEXT_DEPTH = 4
DIM = 256
VOCAB_SIZE = 4096
CONTEXT = 77
MEAN = (0.75, 0.75, 0.75)
STD = (0.35, 0.35, 0.35)
"""Icons are mostly white paper; these bring the average pixel to about zero and one."""

TEMPLATES = (
    "a photo of a {}.",
    "{}",
    "an icon of a {}.",
    "a picture of a {}.",
    "a drawing of {}.",
    "a photo of the {}.",
    "an emoji of a {}.",
    "{} icon",
    "a {}",
    "a bad photo of a {}.",
)
"""The first is the suite's; a text is put into it half the time."""


def build(vocab_size: int = VOCAB_SIZE) -> CLIPModel:
    """The CLIP of these sizes, with weights drawn at random."""
    text = {
        "vocab_size": vocab_size,
        "hidden_size": TEXT_WIDTH,
        "intermediate_size": 4 * TEXT_WIDTH,
        "num_hidden_layers": TEXT_DEPTH,
        "num_attention_heads": TEXT_WIDTH // 64,
        "max_position_embeddings": CONTEXT,
        "hidden_act": "quick_gelu",
        "bos_token_id": vocab_size - 2,
        "eos_token_id": vocab_size - 1,
        "pad_token_id": vocab_size - 1,
        "projection_dim": DIM,
    }
    vision = {
        "hidden_size": VISION_WIDTH,
        "intermediate_size": 4 * VISION_WIDTH,
        "num_hidden_layers": VISION_DEPTH,
        "num_attention_heads": VISION_WIDTH // 64,
        "image_size": IMAGE_SIZE,
        "patch_size": PATCH_SIZE,
        "hidden_act": "quick_gelu",
        "projection_dim": DIM,
    }
    return CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=DIM))
