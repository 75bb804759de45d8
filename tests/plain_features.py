"""What tests of methods on frozen features share: fixed passes, and features written out."""

import dataclasses

import torch
from conftest import make_backbone
from torch.nn import functional as F
from written_out_clip import NAMES, FixedSupport, PlainCLIP, fixed_passes

from shotfit.methods import get_method

CLASSES = len(NAMES)
PAIR = ("a photo of a {}.", "art of the {}.")


def make(name, family="clip", **options):
    method = get_method(name)
    config = dataclasses.replace(method.Config(), **options)
    return method(make_backbone(family=family), config)


def several_views(batches=5, size=6):
    """A support set whose passes differ, in an order that is the same for everyone who asks."""
    return FixedSupport(fixed_passes(batches, size), several=True)


def prepared(name, support=None, **options):
    method = make(name, **options)
    method.setup(support or several_views())
    return method


@torch.no_grad()
def logits_of(method, batch, names=NAMES):
    method.eval()
    return method(batch, method.encode_classes(names))


def unit(x):
    return F.normalize(x, dim=-1)


def plain_views(count, size=6):
    """Unit features (count * size, dim) of so many passes, and their labels."""
    clip, passes = PlainCLIP(), fixed_passes(count, size)
    features = torch.cat([unit(clip.images(pixels)) for pixels, _ in passes])
    return clip, features, torch.cat([labels for _, labels in passes])


def plain_text(clip, names=NAMES, templates=PAIR):
    lines = [[template.format(name) for name in names] for template in templates]
    return unit(torch.stack([unit(clip.texts(line)) for line in lines]).mean(0))


def assert_close(ours, reference, tolerance=1e-4):
    assert (ours - reference).abs().max() <= tolerance * reference.abs().max()
