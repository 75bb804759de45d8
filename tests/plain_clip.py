"""CLIP over transformers' own modules, padded to 77 tokens: what the towers are checked against.

Written for tests alone, without the package: prompts are built token by token, every block sees
every position, and nothing is shared between classes.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

LENGTH = 77


def pooled(outputs: Any) -> Tensor:
    """The projected embedding among what transformers returns of a tower, (batch, dim)."""
    return outputs.pooler_output


def tokens(tokenizer, texts):
    """Token ids padded with zeros, (texts, 77)."""
    rows = tokenizer(texts)["input_ids"]
    return torch.tensor([row + [0] * (LENGTH - len(row)) for row in rows])


def words(model, tokenizer, phrase):
    """Token embeddings of a phrase, without the start and end tokens."""
    ids = tokenizer([phrase])["input_ids"][0][1:-1]
    return model.text_model.embeddings.token_embedding.weight[torch.tensor(ids)].detach()


def text_features(model, tokenizer, texts, ctx=None, deep=()):
    """Unnormalised text embeddings; `ctx` replaces tokens 1..n, `deep[i]` before block i + 1."""
    ids = tokens(tokenizer, texts)
    text = model.text_model
    x = text.embeddings.token_embedding(ids)
    if ctx is not None:
        n = ctx.shape[0]
        x = torch.cat([x[:, :1], ctx.expand(len(x), -1, -1), x[:, 1 + n :]], dim=1)
    x = x + text.embeddings.position_embedding.weight
    mask = torch.full((LENGTH, LENGTH), float("-inf")).triu(1)[None, None]
    for index, layer in enumerate(text.encoder.layers):
        if 0 < index <= len(deep):
            prompt = deep[index - 1].expand(len(x), -1, -1)
            x = torch.cat([x[:, :1], prompt, x[:, 1 + prompt.shape[1] :]], dim=1)
        x = layer(x, attention_mask=mask)
    x = text.final_layer_norm(x)[torch.arange(len(x)), ids.argmax(dim=-1)]
    return model.text_projection(x)


def image_features(model, pixels, ctx=None, deep=()):
    """Unnormalised image embeddings; `ctx` is appended to the patches, `deep[i]` replaces it."""
    vision = model.vision_model
    x = vision.embeddings(pixels)
    n = 0
    if ctx is not None:
        n = ctx.shape[-2]
        x = torch.cat([x, ctx.expand(len(x), -1, -1)], dim=1)
    x = vision.pre_layrnorm(x)
    for index, layer in enumerate(vision.encoder.layers):
        if 0 < index <= len(deep):
            x = torch.cat([x[:, :-n], deep[index - 1].expand(len(x), -1, -1)], dim=1)
        x = layer(x, attention_mask=None)
    return model.visual_projection(vision.post_layernorm(x[:, 0]))


def cosine_logits(model, images, texts):
    """Scaled cosines of unnormalised embeddings."""
    images, texts = F.normalize(images, dim=-1), F.normalize(texts, dim=-1)
    return model.logit_scale.exp().detach() * images @ texts.T


def same(left, right, tolerance=1e-4):
    """Equal up to rounding, relative to the largest value."""
    torch.testing.assert_close(
        left, right, rtol=tolerance, atol=tolerance * right.abs().max().item()
    )


def copies_of_what_trains(method, start):
    """The trained tensors by name, to be trained apart; they must be those of `start`, and have
    its values where it says any."""
    own = {key: value for key, value in method.named_parameters() if value.requires_grad}
    assert set(start) == set(own)
    for key, value in start.items():
        if value is not None:
            same(own[key].detach(), value)
    return {key: value.detach().clone().requires_grad_() for key, value in own.items()}
