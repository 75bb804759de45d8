"""What holds LayerNorm's class embeddings and the second stage's rows near where they started,
against its equations."""

import pytest
import torch
from plain_features import CLASSES, assert_close, logits_of, make, plain_text, several_views, unit
from torch.nn import functional as F
from written_out_clip import NAMES, FixedSupport, PlainCLIP, fixed_passes, pictures

from shotfit.methods.linear import LinearClassifier, LinearConfig
from shotfit.methods.published import TrainConfig
from shotfit.training.loop import train

TEMPLATE = ("a photo of a {}.",)


def training(lr):
    return TrainConfig(optimizer="sgd", lr=lr, iterations=4, schedule="constant", batch_size=6)


def plain_sgd(parameters, lr):
    return torch.optim.SGD(parameters, lr, momentum=0.9, weight_decay=training(lr).weight_decay)


@pytest.mark.parametrize("anchor", [0.0, 4.0])
def test_layernorm_with_an_anchor_matches_its_equation(anchor):
    method = make("layernorm", anchor=anchor)
    passes = fixed_passes(4, 6)
    method.setup(FixedSupport(passes))
    losses = [step.loss for step in train(method, FixedSupport(passes), training(0.4))]
    clip = PlainCLIP()
    start = plain_text(clip, templates=TEMPLATE)
    norms = [n for n in clip.tensors if "encoder.layers" in n and "layer_norm" in n]
    for name in norms:
        clip.tensors[name].requires_grad_(True)
    update = plain_sgd([clip.tensors[name] for name in norms], 0.4)
    for (pixels, labels), ours in zip(passes, losses, strict=True):
        text = plain_text(clip, templates=TEMPLATE)
        loss = F.cross_entropy(clip.scale * unit(clip.images(pixels)) @ text.T, labels)
        loss = loss + anchor * (1 - (text * start).sum(-1).mean())
        assert ours == pytest.approx(loss.item(), rel=1e-4)
        update.zero_grad()
        loss.backward()
        update.step()
    with torch.no_grad():
        text = plain_text(clip, templates=TEMPLATE)
        expected = clip.scale * unit(clip.images(pictures())) @ text.T
    assert_close(logits_of(method, pictures()), expected, 1e-3)
    moved = 1 - (text * start).sum(-1).mean()
    assert moved < 1e-3 if anchor else moved > 1.5e-3


@pytest.mark.parametrize("leash", [0.0, 5.0])
def test_a_second_stage_on_a_leash_matches_its_equation(leash):
    passes = fixed_passes(4, 6)
    support = several_views(4)
    method = LinearClassifier(make("layernorm"), LinearConfig(leash=leash))
    method.setup(support)
    losses = [step.loss for step in train(method, FixedSupport(passes), training(0.02))]
    clip = PlainCLIP()
    with torch.no_grad():
        start = plain_text(clip, templates=TEMPLATE)
        features = [unit(clip.images(pixels)) for pixels, _ in passes]
    labels = passes[0][1]
    # The constraint is weighed on the support set as it is tested, here its first pass.
    answers = (clip.scale * features[0] @ start.T).softmax(-1)
    alpha = torch.stack([answers[labels == c, c].mean() for c in range(CLASSES)])
    weight = start.clone().requires_grad_(True)
    update = plain_sgd([weight], 0.02)
    for inputs, ours in zip(features, losses, strict=True):
        loss = F.cross_entropy(clip.scale * inputs @ unit(weight).T, labels)
        loss = loss + leash * (alpha * (weight - start).pow(2).sum(-1)).mean()
        assert ours == pytest.approx(loss.item(), rel=1e-4)
        update.zero_grad()
        loss.backward()
        update.step()
    rows = weight.detach()
    assert_close(method.get_parameter("weight"), rows)
    assert (rows - start).abs().max() > 1e-2
    # An unseen name is not held: it has no row.
    novel = logits_of(method, pictures(), ("violet", *NAMES))[:, :1]
    text = plain_text(clip, ("violet",), TEMPLATE)
    assert_close(novel, clip.scale * unit(clip.images(pictures())) @ text.T)
