"""The prompt methods against their equations, written out over transformers' own modules."""

from typing import ClassVar

import pytest
import torch
from conftest import WordTokenizer, make_backbone, make_support, tiny_clip
from plain_clip import (
    copies_of_what_trains,
    cosine_logits,
    image_features,
    same,
    text_features,
    words,
)
from torch.nn import functional as F
from written_out_clip import FixedSupport

from shotfit.layers.sinkhorn import transport_plan
from shotfit.methods import get_method
from shotfit.methods.maple import MaPLe
from shotfit.methods.plot_pp import PLOT
from shotfit.methods.prograd import align
from shotfit.methods.published import TaskFacts

NAMES = ("red", "light_green bird", "blue")
FACTS = TaskFacts("shapes", "base_to_novel", shots=4, classes=3, images=12)
ALL = TaskFacts("shapes", "all_to_all", shots=4, classes=3, images=12)
TOKENIZER = WordTokenizer()


def texts(prefix):
    return [f"{prefix} {name.replace('_', ' ')}." for name in NAMES]


def cross_entropy(model, images, embeds, labels):
    logits = cosine_logits(model, images, embeds)
    return F.cross_entropy(logits, labels), logits


class PlainCoOp:
    prefix = "a photo of a"

    def start(self, model):
        return {"context.ctx": words(model, TOKENIZER, self.prefix)}

    def embeds(self, model, p):
        return text_features(model, TOKENIZER, texts(self.prefix), p["context.ctx"])

    def logits(self, model, p, pixels):
        return cosine_logits(model, image_features(model, pixels), self.embeds(model, p))

    def gradients(self, model, p, pixels, labels):
        loss = F.cross_entropy(self.logits(model, p, pixels), labels)
        return dict(zip(p, torch.autograd.grad(loss, list(p.values())), strict=True))


class PlainRandomCoOp(PlainCoOp):
    prefix = " ".join(["X"] * 16)

    def start(self, model):
        drawn = torch.randn(16, 48, generator=torch.Generator().manual_seed(3))
        return {"context.ctx": 0.02 * drawn}


class PlainKgCoOp(PlainCoOp):
    def gradients(self, model, p, pixels, labels):
        embeds = self.embeds(model, p)
        loss, _ = cross_entropy(model, image_features(model, pixels), embeds, labels)
        targets = text_features(model, TOKENIZER, texts("a photo of a")).detach()
        loss = loss + 8.0 * (1 - F.cosine_similarity(embeds, targets, dim=-1)).mean()
        return dict(zip(p, torch.autograd.grad(loss, list(p.values())), strict=True))


class PlainProGrad(PlainCoOp):
    conflicts: ClassVar[list[bool]] = []
    prefix = " ".join(["X"] * 12) + " a photo of a"

    def start(self, model):
        return {
            "context.ctx": torch.cat([torch.zeros(12, 48), words(model, TOKENIZER, "a photo of a")])
        }

    def gradients(self, model, p, pixels, labels):
        images = image_features(model, pixels)
        with torch.no_grad():
            zero_shot = text_features(model, TOKENIZER, texts("a photo of a"))
            teacher = cosine_logits(model, images, zero_shot).softmax(dim=-1)
        loss, logits = cross_entropy(model, images, self.embeds(model, p), labels)
        kl = -(teacher * logits.log_softmax(dim=-1)).sum(dim=-1).mean()
        ctx = p["context.ctx"]
        general = torch.autograd.grad(kl, ctx, retain_graph=True)[0].flatten()
        special = torch.autograd.grad(loss, ctx)[0].flatten()
        direction = general / general.norm()
        self.conflicts.append(bool(special @ direction < 0))
        if special @ direction < 0:
            special = special - (special @ direction) * direction
        return {"context.ctx": special.view_as(ctx)}


class PlainCoCoOp(PlainCoOp):
    def start(self, model):
        layers = (0, 2)
        names = [f"meta_net.{layer}.{part}" for layer in layers for part in ("weight", "bias")]
        return super().start(model) | dict.fromkeys(names)

    def logits(self, model, p, pixels):
        rows = []
        for image in F.normalize(image_features(model, pixels), dim=-1):
            hidden = F.relu(p["meta_net.0.weight"] @ image + p["meta_net.0.bias"])
            shift = p["meta_net.2.weight"] @ hidden + p["meta_net.2.bias"]
            ctx = p["context.ctx"] + shift
            embeds = text_features(model, TOKENIZER, texts(self.prefix), ctx)
            rows.append(cosine_logits(model, image[None], embeds)[0])
        return torch.stack(rows)


class PlainMaPLe(PlainCoOp):
    def start(self, model):
        names = ["projection.weight", "projection.bias", "deep.0"]
        names += ["deep_projections.0.weight", "deep_projections.0.bias"]
        first_two = words(model, TOKENIZER, "a photo")
        return {"context.ctx": first_two} | dict.fromkeys(names)

    def embeds(self, model, p):
        deep = [p["deep.0"]]
        return text_features(model, TOKENIZER, texts(self.prefix), p["context.ctx"], deep)

    def logits(self, model, p, pixels):
        visual = p["context.ctx"] @ p["projection.weight"].T + p["projection.bias"]
        weight, bias = p["deep_projections.0.weight"], p["deep_projections.0.bias"]
        images = image_features(model, pixels, visual, [p["deep.0"] @ weight.T + bias])
        return cosine_logits(model, images, self.embeds(model, p))


class PlainIVLP(PlainMaPLe):
    def start(self, model):
        names = ["vision_ctx", "deep.0", "vision_deep.0", "vision_deep.1"]
        return PlainCoOp.start(self, model) | dict.fromkeys(names)

    def logits(self, model, p, pixels):
        deep = [p["vision_deep.0"], p["vision_deep.1"]]
        images = image_features(model, pixels, p["vision_ctx"], deep)
        return cosine_logits(model, images, self.embeds(model, p))


class PlainPLOT(PlainCoOp):
    phrases = ("a photo of a", "this is a photo", "this is picture of", "one picture of a")
    pooled = False

    def start(self, model):
        return {
            "ctx": torch.stack([words(model, TOKENIZER, phrase) for phrase in self.phrases]),
            "vision_ctx": None,
        }

    def logits(self, model, p, pixels):
        images = torch.stack([image_features(model, pixels, ctx) for ctx in p["vision_ctx"]])
        classes = torch.stack(
            [
                text_features(model, TOKENIZER, texts(phrase), ctx)
                for phrase, ctx in zip(self.phrases, p["ctx"], strict=True)
            ]
        )
        rows = []
        for image in range(images.shape[1]):
            row = []
            for name in range(classes.shape[1]):
                sim = (
                    F.normalize(images[:, image], dim=-1) @ F.normalize(classes[:, name], dim=-1).T
                )
                row.append((sinkhorn(sim.detach()) * sim).sum())
            rows.append(torch.stack(row))
        logits = model.logit_scale.exp().detach() * torch.stack(rows)
        if self.pooled:
            logits = logits + cosine_logits(model, images.mean(dim=0), classes.mean(dim=0))
        return logits


def sinkhorn(sim, stop=1e-2):
    """One problem: r = u / Kc, c = v / K'r from ones, until r settles."""
    kernel = torch.exp(-(1 - sim) / 0.1)
    r, c = torch.ones(len(sim)), torch.ones(sim.shape[1])
    for _ in range(100):
        before, r = r, (1 / len(sim)) / (kernel @ c)
        c = (1 / sim.shape[1]) / (kernel.T @ r)
        if (r - before).abs().mean() < stop:
            break
    return r[:, None] * c[None] * kernel


PLAIN = {
    "coop": (PlainCoOp(), FACTS),
    "coop-random": (PlainRandomCoOp(), ALL),
    "kgcoop": (PlainKgCoOp(), FACTS),
    "prograd": (PlainProGrad(), FACTS),
    "cocoop": (PlainCoCoOp(), FACTS),
    "maple": (PlainMaPLe(), FACTS),
    "ivlp": (PlainIVLP(), FACTS),
    "plot_pp": (PlainPLOT(), FACTS),
}


def batch(number):
    generator = torch.Generator().manual_seed(number)
    return torch.randn(4, 3, 32, 32, generator=generator), torch.tensor([0, 2, 1, number % 3])


def build(name, facts):
    kind = get_method(name.split("-")[0])
    generator = torch.Generator().manual_seed(3)
    method = kind(make_backbone(), kind.published_config(facts), generator=generator)
    method.setup(FixedSupport((), NAMES, images=0))
    return method


def sgd(parameters):
    return torch.optim.SGD(parameters, 0.5, momentum=0.9, weight_decay=5e-4)


@pytest.mark.parametrize("name", PLAIN)
def test_logits_at_the_start_and_after_five_updates(name):
    plain, facts = PLAIN[name]
    method, model = build(name, facts), tiny_clip()
    model.requires_grad_(False)
    mine = copies_of_what_trains(method, plain.start(model))
    test, _ = batch(99)

    def logits():
        with torch.no_grad():
            return method(test, method.encode_classes(NAMES)), plain.logits(model, mine, test)

    first = logits()
    same(*first)
    trained = [value for value in method.parameters() if value.requires_grad]
    optimizers = sgd(trained), sgd(mine.values())
    for step in range(5):
        pixels, labels = batch(step)
        for optimizer in optimizers:
            optimizer.zero_grad()
        method.loss(pixels, labels, NAMES).loss.backward()
        for key, gradient in plain.gradients(model, mine, pixels, labels).items():
            mine[key].grad = gradient
        for optimizer in optimizers:
            optimizer.step()
    last = logits()
    same(*last)
    if name == "prograd":
        assert set(plain.conflicts) == {True, False}, "the batches must show both cases"
    # Five updates that change nothing would prove nothing.
    moved = (last[1] - first[1]).abs().max()
    assert moved > 1e-2
    assert (last[1] - last[0]).abs().max() < 1e-2 * moved


def test_plot_first_phase_trains_visual_prompts_on_both_logits():
    method, model = build("plot_pp", FACTS), tiny_clip().requires_grad_(False)
    assert isinstance(method, PLOT)
    plain = PlainPLOT()
    plain.pooled = True
    method.begin_round(0)
    pixels, labels = batch(0)
    mine = {"ctx": method.ctx.detach(), "vision_ctx": method.vision_ctx.detach().requires_grad_()}
    output = method.loss(pixels, labels, NAMES)
    output.loss.backward()
    logits = plain.logits(model, mine, pixels)
    same(output.logits, logits)
    (expected,) = torch.autograd.grad(F.cross_entropy(logits, labels), mine["vision_ctx"])
    same(method.vision_ctx.grad, expected)
    assert method.ctx.grad is None
    method.begin_round(1)
    assert method.ctx.requires_grad


def test_transport_meets_its_marginals_and_the_stopping_rules_agree():
    cosines = 0.3 + 0.05 * torch.randn(6, 5, 4, 4, generator=torch.Generator().manual_seed(0))
    plan = transport_plan(cosines, 0.1, 100, 1e-2)
    assert torch.allclose(plan.sum(dim=-2), torch.full((6, 5, 4), 0.25), atol=1e-6)
    assert torch.allclose(plan.sum(dim=-1), torch.full((6, 5, 4), 0.25), atol=1e-4)
    alone = torch.stack([sinkhorn(problem) for problem in cosines.flatten(0, 1)])
    same(plan.flatten(0, 1), alone)
    # As released: all problems of a batch stop together, when their mean has settled.
    flat = cosines.flatten(0, 1)
    kernel = torch.exp((flat - 1) / 0.1)
    r, c = torch.ones(30, 4), torch.ones(30, 4)
    for _ in range(100):
        before, r = r, 0.25 / (kernel @ c[:, :, None])[..., 0]
        c = 0.25 / (kernel.mT @ r[:, :, None])[..., 0]
        if (r - before).abs().mean() < 1e-2:
            break
    together = r[:, :, None] * c[:, None] * kernel
    same((plan.flatten(0, 1) * flat).sum(dim=(1, 2)), (together * flat).sum(dim=(1, 2)))


def test_projected_gradient_is_exact_in_both_cases():
    special, general = torch.tensor([[1.0, -2.0]]), torch.tensor([[0.0, 3.0]])
    assert torch.equal(align(special, general, 1.0), torch.tensor([[1.0, 0.0]]))
    assert torch.allclose(align(special, general, 0.8), torch.tensor([[1.0, -0.4]]))
    assert torch.equal(align(special, -general, 1.0), special)
    assert torch.equal(align(special, torch.zeros(1, 2), 1.0), special)


def test_prograd_returns_the_value_of_the_cross_entropy():
    method = build("prograd", FACTS)
    pixels, labels = batch(1)
    output = method.loss(pixels, labels, NAMES)
    assert torch.isclose(output.loss, F.cross_entropy(output.logits, labels))


def test_cocoop_in_chunks_is_cocoop_at_once():
    kind = get_method("cocoop")
    pixels, _ = batch(0)
    logits = []
    for pairs in (1, 7, 10_000):
        method = kind(make_backbone(), kind.Config(pairs_at_once=pairs))
        with torch.no_grad():
            logits.append(method(pixels, method.encode_classes(NAMES)))
    same(logits[0], logits[2])
    same(logits[1], logits[2])


def test_maple_projections_start_alike():
    method = MaPLe(make_backbone(vision_blocks=4, text_blocks=4))
    assert len(method.deep) == 3, "nine blocks asked for, four there"
    first, *others = (method.get_parameter(f"deep_projections.{n}.weight") for n in range(3))
    assert all(torch.equal(first, other) for other in others)
    assert not torch.equal(first, method.projection.weight)


def test_frozen_targets_are_not_saved(task):
    for name in ("kgcoop", "prograd"):
        method = get_method(name)(make_backbone())
        method.setup(make_support(task))
        assert list(method.learned_state()) == ["context.ctx"]
