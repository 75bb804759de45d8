"""PromptSRC, TCP, MMRL, MMRL++, CLIP-SVD and CLIPFit against their equations, written out.

The towers are transformers' own blocks, called one by one on padded prompts; what a method does
between them is written here as its paper or code has it, without the package.
"""

import dataclasses
import math

import pytest
import torch
from conftest import WordTokenizer, make_backbone, tiny_clip, tiny_siglip
from plain_clip import LENGTH, copies_of_what_trains, same, tokens, words
from torch.nn import functional as F
from written_out_clip import FixedSupport, PlainCLIP

from shotfit.backbone import DeepPrompts
from shotfit.layers.ensembles import DIVERSE_TEMPLATES
from shotfit.methods import get_method
from shotfit.methods.mmrl import MMRL
from shotfit.methods.mmrl_pp import MMRLPlusPlus
from shotfit.methods.published import TaskFacts
from shotfit.training.loop import train

NAMES = ("red", "light_green bird", "blue")
UNSEEN = ("yellow", "very dark purple")
FACTS = TaskFacts("shapes", "base_to_novel", shots=4, classes=3, images=12)
TOKENIZER = WordTokenizer()
# Deep enough for tokens that enter in the middle, and of different depth.
SIZES = {"vision_blocks": 5, "text_blocks": 4}


def texts(template, names):
    return [template.format(name.replace("_", " ")) for name in names]


def nothing(index, x):
    return x


def text_features(model, prompts, ctx=None, before=nothing, longer=0):
    """Unit text embeddings; `before(i, x)` changes what enters block i, (texts, length, width)."""
    ids = tokens(TOKENIZER, prompts)
    text = model.text_model
    x = text.embeddings.token_embedding(ids)
    if ctx is not None:
        x = torch.cat([x[:, :1], ctx.expand(len(x), -1, -1), x[:, 1 + len(ctx) :]], dim=1)
    x = x + text.embeddings.position_embedding.weight
    for index, layer in enumerate(text.encoder.layers):
        x = before(index, x)
        mask = torch.full((x.shape[1], x.shape[1]), float("-inf")).triu(1)[None, None]
        x = layer(x, attention_mask=mask)
    assert x.shape[1] == LENGTH + longer
    ends = ids.argmax(dim=-1) + longer
    x = model.text_projection(text.final_layer_norm(x)[torch.arange(len(x)), ends])
    return x / x.norm(dim=-1, keepdim=True)


def image_states(model, pixels, ctx=None, before=nothing):
    """The normed states behind the last block, (images, length, width)."""
    vision = model.vision_model
    x = vision.embeddings(pixels)
    if ctx is not None:
        x = torch.cat([x, ctx.expand(len(x), -1, -1)], dim=1)
    x = vision.pre_layrnorm(x)
    for index, layer in enumerate(vision.encoder.layers):
        x = layer(before(index, x), attention_mask=None)
    return vision.post_layernorm(x)


def image_features(model, pixels, **options):
    x = model.visual_projection(image_states(model, pixels, **options)[:, 0])
    return x / x.norm(dim=-1, keepdim=True)


class PlainPromptSRC:
    template = "a photo of a {}."

    def start(self, model):
        names = ["vision_ctx", *(f"deep.{i}" for i in range(3))]
        names += [f"vision_deep.{i}" for i in range(4)]
        return {"context.ctx": words(model, TOKENIZER, "a photo of a")} | dict.fromkeys(names)

    def texts(self, model, p, names):
        def before(index, x):
            if index == 0:
                return x
            prompt = p[f"deep.{index - 1}"].expand(len(x), -1, -1)
            return torch.cat([x[:, :1], prompt, x[:, 5:]], dim=1)

        return text_features(model, texts(self.template, names), p["context.ctx"], before)

    def images(self, model, p, pixels):
        def before(index, x):
            if index == 0:
                return x
            return torch.cat([x[:, :-4], p[f"vision_deep.{index - 1}"].expand(len(x), 4, -1)], 1)

        return image_features(model, pixels, ctx=p["vision_ctx"], before=before)

    def logits(self, model, p, pixels, names):
        scale = model.logit_scale.exp()
        return scale * self.images(model, p, pixels) @ self.texts(model, p, names).T

    def loss(self, model, p, pixels, labels):
        scale = model.logit_scale.exp()
        f, t = self.images(model, p, pixels), self.texts(model, p, NAMES)
        with torch.no_grad():
            f0 = image_features(model, pixels)
            each = [
                model.text_projection(self._end(model, texts(template, NAMES)))
                for template in DIVERSE_TEMPLATES
            ]
            t0 = torch.stack(each, dim=1).mean(dim=1)
            t0 = t0 / t0.norm(dim=-1, keepdim=True)
        logits, teacher = scale * f @ t.T, scale * f0 @ t0.T
        q, q0 = logits.log_softmax(dim=1), teacher.log_softmax(dim=1)
        divergence = (q0.exp() * (q0 - q)).sum() / (len(pixels) * len(NAMES))
        distance = 25 * (t - t0).abs().mean() + 10 * (f - f0).abs().mean()
        return F.cross_entropy(logits, labels) + distance + divergence

    def _end(self, model, prompts):
        """Not normalised, as PromptSRC averages them."""
        ids = tokens(TOKENIZER, prompts)
        x = model.text_model(input_ids=ids).last_hidden_state
        return x[torch.arange(len(ids)), ids.argmax(dim=-1)]


class PlainTCP:
    template = "a photo of a {}."

    def start(self, model):
        drawn = 0.02 * torch.randn(4, 48, generator=torch.Generator().manual_seed(3))
        names = [f"{layer}.{part}" for layer in ("down", "up") for part in ("weight", "bias")]
        return {"ctx": drawn} | dict.fromkeys(names)

    def texts(self, model, p, names):
        with torch.no_grad():
            frozen = text_features(model, texts(self.template, names))
        hidden = frozen @ p["down.weight"].T + p["down.bias"]
        hidden = hidden * torch.sigmoid(1.702 * hidden)
        own = (hidden @ p["up.weight"].T + p["up.bias"]).reshape(len(names), 4, 48)

        def before(index, x):
            # The ninth block of twelve is the third of four.
            return torch.cat([x[:, :1], own, x[:, 5:]], dim=1) if index == 2 else x

        return text_features(model, texts("X X X X {}.", names), p["ctx"], before), frozen

    def logits(self, model, p, pixels, names):
        return (
            model.logit_scale.exp()
            * image_features(model, pixels)
            @ self.texts(model, p, names)[0].T
        )

    def loss(self, model, p, pixels, labels):
        t, frozen = self.texts(model, p, NAMES)
        score = 1 - F.cosine_similarity(t, frozen, dim=1, eps=1e-7).mean()
        return F.cross_entropy(self.logits(model, p, pixels, NAMES), labels) + 8 * score


class PlainMMRL:
    """Blocks 2 to 4 of four and five; the tokens of the image stand second, as published."""

    template = "a photo of a {}."
    blocks = 3
    beta = 1.0

    def start(self, model):
        generator = torch.Generator().manual_seed(3)
        names = [f"space.to_{tower}.{i}" for tower in ("vision", "text") for i in range(3)]
        parts = dict.fromkeys(f"{name}.{part}" for name in names for part in ("weight", "bias"))
        return {
            "space.projection.weight": torch.randn(64, 40, generator=generator) / 8,
            "space.tokens": 0.02 * torch.randn(5, 512, generator=generator),
        } | parts

    def tokens(self, p, tower, index):
        at = f"space.to_{tower}.{index}"
        return F.linear(p["space.tokens"], p[f"{at}.weight"], p[f"{at}.bias"])

    def before(self, p, tower):
        def enter(index, x):
            if not 1 <= index < 1 + self.blocks:
                return x
            new = self.tokens(p, tower, index - 1).expand(len(x), -1, -1)
            if index == 1:
                return torch.cat([x[:, :1], new, x[:, 1:]], dim=1)
            new = self.beta * new + (1 - self.beta) * x[:, 1:6]
            return torch.cat([x[:, :1], new, x[:, 6:]], dim=1)

        return enter

    def represent(self, model, p):
        return p["space.projection.weight"]

    def pair(self, model, p, pixels, names):
        scale = model.logit_scale.exp()
        states = image_states(model, pixels, before=self.before(p, "vision"))
        f = F.normalize(model.visual_projection(states[:, 0]), dim=-1)
        g = F.normalize(states[:, 1:6].mean(dim=1) @ self.represent(model, p), dim=-1)
        prompts = texts(self.template, names)
        t = text_features(model, prompts, before=self.before(p, "text"), longer=5)
        return scale * f @ t.T, scale * g @ t.T, f, t

    def logits(self, model, p, pixels, names):
        """Of the log probabilities: which kind of class by f, which trained class by both."""
        own, represented, _, _ = self.pair(model, p, pixels, names)
        trained = torch.tensor([name in NAMES for name in names])
        kind = own.softmax(dim=1)[:, trained].sum(dim=1, keepdim=True)
        within = (0.7 * own + 0.3 * represented)[:, trained].softmax(dim=1)
        joint = own.log_softmax(dim=1)
        joint[:, trained] = (kind * within).log()
        return joint + own.logsumexp(dim=1, keepdim=True)

    def loss(self, model, p, pixels, labels):
        own, represented, f, t = self.pair(model, p, pixels, NAMES)
        with torch.no_grad():
            f0 = image_features(model, pixels)
            t0 = text_features(model, texts(self.template, NAMES))
        mixed = 0.7 * F.cross_entropy(own, labels) + 0.3 * F.cross_entropy(represented, labels)
        distances = 2 - F.cosine_similarity(f, f0).mean() - F.cosine_similarity(t, t0).mean()
        return mixed + distances


class PlainMMRLPlusPlus(PlainMMRL):
    beta = 0.9

    def start(self, model):
        generator = torch.Generator().manual_seed(3)
        start: dict[str, torch.Tensor | None] = {
            "space.projection.a": torch.empty(64, 64).uniform_(-1 / 8, 1 / 8, generator=generator),
            "space.projection.b": torch.zeros(64, 40),
            "space.tokens": 0.02 * torch.randn(5, 512, generator=generator),
        }
        for tower in ("vision", "text"):
            start[f"space.to_{tower}.weight"] = None
            for block in range(3):
                start[f"space.to_{tower}.own.{block}.a"] = None
                start[f"space.to_{tower}.own.{block}.b"] = torch.zeros(4, 512)
                start[f"space.to_{tower}.bias.{block}"] = None
        return start

    def tokens(self, p, tower, index):
        at = f"space.to_{tower}"
        low = p[f"{at}.own.{index}.a"] @ p[f"{at}.own.{index}.b"]
        return F.linear(p["space.tokens"], p[f"{at}.weight"] + low, p[f"{at}.bias.{index}"])

    def represent(self, model, p):
        return model.visual_projection.weight.T + p["space.projection.a"] @ p["space.projection.b"]


class Merged(PlainCLIP):
    """CLIP whose tensors a method makes of what it trains."""

    def __init__(self, model):
        super().__init__()
        self.tensors = {name: p.detach().clone() for name, p in model.named_parameters()}
        self.depth = {"vision": SIZES["vision_blocks"], "text": SIZES["text_blocks"]}

    def logits(self, pixels, names=NAMES, template="a photo of a {}."):
        return super().logits(pixels, [name.replace("_", " ") for name in names], template)


class PlainCLIPSVD:
    projections = ("q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2")

    def start(self, model):
        self.factors = {}
        start = {}
        for tower in ("vision", "text"):
            for block in range(SIZES[f"{tower}_blocks"]):
                for name in self.projections:
                    part = "mlp" if name.startswith("fc") else "self_attn"
                    at = f"{tower}_model.encoder.layers.{block}.{part}.{name}.weight"
                    key = f"backbone.{tower}.blocks.{block}.{name}.singular_values"
                    u, s, v = torch.linalg.svd(model.get_parameter(at).detach(), False)
                    self.factors[at] = (u, key, v)
                    start[key] = s
        return start

    def logits(self, model, p, pixels, names):
        clip = Merged(model)
        for at, (u, key, v) in self.factors.items():
            clip.tensors[at] = u @ torch.diag(p[key]) @ v
        return clip.logits(pixels, names)

    def loss(self, model, p, pixels, labels):
        return F.cross_entropy(self.logits(model, p, pixels, NAMES), labels)


class PlainCLIPFit:
    def start(self, model):
        self.names = {}
        for block in range(SIZES["text_blocks"]):
            at = f"text_model.encoder.layers.{block}.mlp.fc2.bias"
            self.names[f"backbone.text.blocks.{block}.fc2.bias"] = at
        norms = {"norm_pre": "pre_layrnorm", "norm_post": "post_layernorm"}
        for block in range(SIZES["vision_blocks"]):
            for n in (1, 2):
                norms[f"blocks.{block}.norm{n}"] = f"encoder.layers.{block}.layer_norm{n}"
        for ours, theirs in norms.items():
            for part in ("weight", "bias"):
                self.names[f"backbone.vision.{ours}.{part}"] = f"vision_model.{theirs}.{part}"
        return {ours: model.get_parameter(at).detach() for ours, at in self.names.items()}

    def clip(self, model, p):
        clip = Merged(model)
        clip.tensors |= {at: p[ours] for ours, at in self.names.items()}
        return clip

    def logits(self, model, p, pixels, names):
        return self.clip(model, p).logits(pixels, names)

    def loss(self, model, p, pixels, labels):
        prompts = texts("a photo of a {}.", NAMES)
        now, then = self.clip(model, p).texts(prompts), Merged(model).texts(prompts)
        score = 1 - F.cosine_similarity(now, then, dim=1, eps=1e-7).mean()
        return F.cross_entropy(self.logits(model, p, pixels, NAMES), labels) + 8 * score


PLAIN = {
    "promptsrc": PlainPromptSRC(),
    "tcp": PlainTCP(),
    "mmrl": PlainMMRL(),
    "mmrl_pp": PlainMMRLPlusPlus(),
    "clip_svd": PlainCLIPSVD(),
    "clipfit": PlainCLIPFit(),
}


def batch(number):
    generator = torch.Generator().manual_seed(number)
    return torch.randn(4, 3, 32, 32, generator=generator), torch.tensor([0, 2, 1, number % 3])


def fixed_support(batches=5, images=4):
    return FixedSupport([batch(number) for number in range(batches)], NAMES, images=images)


def build(name, **options):
    kind = get_method(name)
    config = dataclasses.replace(kind.published_config(FACTS), **options)
    generator = torch.Generator().manual_seed(3)
    method = kind(make_backbone(family="clip", **SIZES), config, generator=generator)
    method.setup(fixed_support())
    method.trained_names = NAMES
    return method


def optimizer(parameters, training):
    """The published one, as torch has it, at a rate at which five updates show."""
    decay = training.weight_decay
    if training.optimizer == "sgd":
        return torch.optim.SGD(parameters, 0.05, momentum=0.9, weight_decay=decay)
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[training.optimizer]
    return kind(parameters, 1e-3, eps=training.eps, weight_decay=decay)


@pytest.mark.parametrize("name", PLAIN)
def test_five_updates_are_those_of_the_equations(name):
    plain, method = PLAIN[name], build(name)
    model = tiny_clip(**SIZES).requires_grad_(False)
    mine = copies_of_what_trains(method, plain.start(model))
    test, _ = batch(99)

    def logits(names):
        with torch.no_grad():
            ours = method(test, method.encode_classes(names))
            return ours, plain.logits(model, mine, test, names)

    names = (*UNSEEN[:1], *NAMES, *UNSEEN[1:])
    first = logits(names)
    same(*first)
    (training,) = get_method(name).published_training(FACTS)
    rate = 0.05 if training.optimizer == "sgd" else 1e-3
    short = dataclasses.replace(
        training, iterations=5, epochs=None, schedule="constant", lr=rate, batch_size=4
    )
    ours = [step.loss for step in train(method, fixed_support(), short)]
    update = optimizer(list(mine.values()), training)
    for number, loss in enumerate(ours):
        expected = plain.loss(model, mine, *batch(number))
        assert loss == pytest.approx(expected.item(), rel=1e-4)
        update.zero_grad()
        expected.backward()
        update.step()
    last = logits(names)
    # Five updates that change nothing would prove nothing.
    moved = (last[1] - first[1]).abs().max()
    assert moved > 1e-2
    assert (last[1] - last[0]).abs().max() < 1e-2 * moved


@pytest.mark.parametrize("name", ["mmrl", "mmrl_pp"])
def test_mmrl_answers_as_published_among_trained_and_among_other_classes(name):
    """Trained classes with both embeddings, others with one; in a list of both, each as before."""
    method = build(name)
    assert isinstance(method, MMRL | MMRLPlusPlus)
    pixels, _ = batch(1)

    def asked(names):
        return method(pixels, method.encode_classes(names))

    with torch.no_grad():
        assert method.encode_classes((*UNSEEN, *NAMES)).rows == (-1, -1, 0, 1, 2)
        together, trained, others = asked((*UNSEEN, *NAMES)), asked(NAMES), asked(UNSEEN)
        f, g = method.space.images(method.backbone, pixels)
        texts = method.encode_classes((*UNSEEN, *NAMES)).weight
        own, represented = method.logits(f, texts), method.logits(g, texts)
    same(trained, (0.7 * own + 0.3 * represented)[:, 2:], 1e-5)
    assert not torch.allclose(trained, own[:, 2:], atol=1e-2)
    same(others, own[:, :2], 1e-5)
    same(together[:, :2], others, 1e-5)
    # The same answers with the same confidence, moved as a whole.
    same(together[:, 2:].log_softmax(dim=1), trained.log_softmax(dim=1), 1e-4)
    same(together[:, 2:].logsumexp(dim=1), own[:, 2:].logsumexp(dim=1), 1e-5)


def test_promptsrc_trains_on_as_if_nothing_were_averaged_and_then_averages():
    """Four epochs of three updates: the states after each, weighed by a Gaussian at the third."""
    method, plain = build("promptsrc"), build("promptsrc")
    (training,) = get_method("promptsrc").published_training(FACTS)

    epochs = fixed_support(batches=100, images=12)
    training = dataclasses.replace(training, epochs=4, warmup_epochs=0, lr=0.05)
    states = []
    for step in train(method, epochs, training):
        if step.iteration % 3 == 0:
            states.append({n: p.detach().clone() for n, p in method.named_parameters()})
    assert len(states) == 4
    with torch.no_grad():
        method.finish(epochs, None)
    weights = [math.exp(-((epoch - 3) ** 2) / (2 * 0.2**2)) for epoch in (1, 2, 3, 4)]
    for name, parameter in method.named_parameters():
        if parameter.requires_grad:
            average = sum(w * s[name] for w, s in zip(weights, states, strict=True)) / sum(weights)
            same(parameter.detach(), average, 1e-6)
            assert not torch.equal(parameter, states[-1][name])
        else:
            assert torch.equal(parameter, plain.get_parameter(name))
    # A second call has nothing to do, and neither has one without training.
    before = {n: p.clone() for n, p in method.named_parameters()}
    method.finish(epochs, None)
    assert all(torch.equal(before[n], p) for n, p in method.named_parameters())


@pytest.mark.parametrize("name", ["tcp", "mmrl", "mmrl_pp"])
def test_names_given_twice_and_text_in_chunks(name, monkeypatch):
    method = build(name)
    names = [f"thing {number} {'long ' * (number % 3)}" for number in range(20)]
    with torch.no_grad():
        whole = method.encode_classes(names).weight
        twice = method.encode_classes([names[3], *names, names[3]]).weight
        same(twice[1:-1], whole, 1e-5)
        assert torch.equal(twice[0], twice[-1]) and torch.equal(twice[0], twice[4])
        alone = torch.cat([method.encode_classes([each]).weight for each in names])
        same(alone, whole, 1e-5)
    room = 100 * method.backbone.text.token_bytes
    monkeypatch.setattr("shotfit.backbone.model.TEXT_BYTES", room)
    method.backbone._prepared.clear()
    same(method.encode_classes(names).weight.detach(), whole, 1e-5)


def test_tokens_inserted_into_siglip():
    """No start of text to stand behind, and no mask: in front of the text, behind the patches."""
    sizes = {"vision_blocks": 3, "text_blocks": 3}
    backbone, model = make_backbone(family="siglip", **sizes), tiny_siglip(**sizes)
    draw = torch.Generator().manual_seed(0)
    first, second = torch.randn(2, 4, 64, generator=draw)
    pixels, _ = batch(0)

    def blocks(tower, x, tokens, front):
        for index, layer in enumerate(tower.encoder.layers):
            if index == 1:
                new = tokens[0].expand(len(x), -1, -1)
                x = torch.cat([new, x] if front else [x, new], dim=1)
            if index == 2:
                rest, old = (x[:, 4:], x[:, :4]) if front else (x[:, :-4], x[:, -4:])
                new = 0.7 * tokens[1] + 0.3 * old
                x = torch.cat([new, rest] if front else [rest, new], dim=1)
            x = layer(x, attention_mask=None)
        return x

    with torch.no_grad():
        deep = DeepPrompts((first, second), 1, inserted=True, share=0.7)
        embeds, states = backbone.encode_image_and_prompts(pixels, deep)
        vision = model.vision_model
        x = blocks(vision, vision.embeddings(pixels), (first, second), front=False)
        x = vision.post_layernorm(x)
        same(states, x[:, -4:])
        same(embeds, vision.head(x[:, :-4]))
        same(backbone.encode_image(pixels, deep=deep), embeds, 1e-6)
        narrow = DeepPrompts((first[:, :48], second[:, :48]), 1, inserted=True, share=0.7)
        ids = backbone.text.prepare(backbone.tokenize(["a red thing.", "green"])).ids
        text = model.text_model
        x = blocks(text, text.embeddings(ids), narrow.tokens, front=True)
        expected = text.head(text.final_layer_norm(x)[:, -1])
        same(backbone.encode_text(["a red thing.", "green"], deep=narrow), expected)
