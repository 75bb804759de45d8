"""Tip-Adapter, TaskRes and LP++ against their equations written out on plain features."""

import dataclasses

import pytest
import torch
from conftest import make_backbone
from torch.nn import functional as F
from written_out_clip import NAMES, FixedSupport, PlainCLIP, fixed_passes, fixed_support, pictures

from shotfit.adaptation import adapt
from shotfit.errors import UsageError
from shotfit.layers.ensembles import IMAGENET_TEMPLATES
from shotfit.methods import get_method
from shotfit.methods.lp_pp import LPPlusPlus
from shotfit.methods.published import TaskFacts, TrainConfig
from shotfit.plan import plan
from shotfit.recipe import Recipe, Stage
from shotfit.training.loop import total_iterations, train

CLASSES = len(NAMES)
PAIR = ("a photo of a {}.", "art of the {}.")


def facts_of(dataset, classes, shots=16):
    return TaskFacts(dataset, "all_to_all", shots, classes, classes * shots)


def make(name, **options):
    method = get_method(name)
    config = dataclasses.replace(method.Config(), **options)
    return method(make_backbone(), config, generator=torch.Generator().manual_seed(3))


def prepared(name, **options):
    method = make(name, **options)
    method.setup(fixed_support())
    return method


@torch.no_grad()
def logits_of(method, batch, names=NAMES):
    method.eval()
    return method(batch, method.encode_classes(names))


def number(method, name):
    return float(method.get_buffer(name))


def five_updates(method, config, **changes):
    cut = {"iterations": 5, "epochs": None, "warmup_epochs": 0, "schedule": "constant", "lr": 1e-2}
    for _ in train(method, fixed_support(), dataclasses.replace(config, **{**cut, **changes})):
        pass


def plain_updates(logits, optimizer):
    for pixels, labels in fixed_passes():
        loss = F.cross_entropy(logits(pixels), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def assert_close(ours, reference):
    assert (ours - reference).abs().max() <= 1e-4 * reference.abs().max()


def plain_features():
    """The cache's images, unit-norm, their labels, and unit-norm class embeddings."""
    clip = PlainCLIP()
    pixels, labels = fixed_passes()[0]
    texts = [[template.format(name) for name in NAMES] for template in PAIR]
    text = torch.stack([F.normalize(clip.texts(line), dim=-1) for line in texts]).mean(0)
    return clip, F.normalize(clip.images(pixels), dim=-1), labels, F.normalize(text, dim=-1)


@pytest.mark.parametrize("finetune", [False, True])
def test_tip_adapter_matches_its_equation(finetune):
    method = prepared("tip_adapter", finetune=finetune, alpha=2.0, beta=3.0, templates=PAIR)
    clip, cache, labels, text = plain_features()
    keys = cache.clone().requires_grad_(True)
    values = F.one_hot(labels, CLASSES).float()

    def logits(pixels):
        f = F.normalize(clip.images(pixels), dim=-1)
        return clip.scale * f @ text.T + 2 * torch.exp(-3 * (1 - f @ keys.T)) @ values

    assert_close(logits_of(method, pictures()), logits(pictures()).detach())
    assert_close(logits_of(method, pictures(), NAMES[::-1]), logits(pictures()).detach().flip(1))
    if finetune:
        (config,) = type(method).training_for(facts_of("shapes", 3), method.config)
        five_updates(method, config)
        plain_updates(logits, torch.optim.AdamW([keys], lr=1e-2, eps=1e-4, weight_decay=1e-2))
        assert (keys - cache).abs().max() > 1e-2
        assert_close(logits_of(method, pictures()), logits(pictures()).detach())


def test_tip_adapter_searches_its_grid_and_keeps_the_first_best():
    method = prepared("tip_adapter", beta_max=4.1, alpha_max=2.1, templates=PAIR)
    validation = FixedSupport(fixed_passes(size=24)[3:])
    method.eval()
    method.finish(fixed_support(), validation)
    clip, cache, labels, text = plain_features()
    pixels, wanted = validation.made[0]
    f = F.normalize(clip.images(pixels), dim=-1)
    best = (-1.0, 0.0, 0.0)
    for i in range(200):
        for j in range(20):
            beta, alpha = 0.1 + i * 4.0 / 200, 0.1 + j * 2.0 / 20
            values = F.one_hot(labels, CLASSES).float()
            scores = clip.scale * f @ text.T
            scores = scores + alpha * torch.exp(-beta * (1 - f @ cache.T)) @ values
            right = float((scores.argmax(1) == wanted).float().mean())
            best = max(best, (right, beta, alpha), key=lambda found: found[0])
    assert (number(method, "beta"), number(method, "alpha")) == pytest.approx(best[1:])


def test_tip_adapter_without_validation_leaves_each_shot_out():
    method = prepared("tip_adapter")
    method.eval()
    with torch.no_grad():
        own = logits_of(method, fixed_passes()[0][0]).argmax(1)
        method.finish(fixed_support(), None)
    # The cache alone would call every shot by its own label; a search on that learns nothing.
    assert (number(method, "alpha"), number(method, "beta")) != pytest.approx((1.17, 1.0))
    assert len(own) == 6
    single = make("tip_adapter")
    support = fixed_support(size=3)
    single.setup(support)
    single.finish(support, None)
    assert (number(single, "alpha"), number(single, "beta")) == pytest.approx((1.17, 1.0))


@pytest.mark.parametrize("finetune", [False, True])
def test_tip_adapter_restores_without_data(finetune):
    method = prepared("tip_adapter", finetune=finetune)
    method.finish(fixed_support(), None)
    other = make("tip_adapter", finetune=finetune)
    other.restore(method.learned_state(), method.trained_names)
    assert torch.equal(logits_of(method, pictures()), logits_of(other, pictures()))


def test_tip_adapter_f_is_reached_by_an_option(task, support):
    from conftest import make_support

    recipe = Recipe((Stage("tip_adapter", options={"finetune": True}),))
    facts = TaskFacts("shapes", "base_to_novel", shots=4, classes=3, images=12)
    steps = []
    method = adapt(
        make_backbone(), make_support(task), recipe, facts, observe=lambda *step: steps.append(step)
    )
    assert len(steps) == 20
    assert isinstance(method.cache_keys, torch.nn.Parameter)
    assert plan(Recipe((Stage("tip_adapter"),)), facts)[0][2] == ()


def test_taskres_matches_its_equation():
    method = prepared("taskres", alpha=0.5, templates=PAIR)
    clip = PlainCLIP()
    base = torch.stack([clip.texts([t.format(n) for n in NAMES]) for t in PAIR]).mean(0)
    x = torch.zeros_like(base, requires_grad=True)

    def logits(pixels):
        f = F.normalize(clip.images(pixels), dim=-1)
        return clip.scale * f @ F.normalize(base + 0.5 * x, dim=-1).T

    assert_close(logits_of(method, pictures()), logits(pictures()).detach())
    five_updates(method, type(method).published_training(facts_of("shapes", 3))[0])
    plain_updates(logits, torch.optim.Adam([x], lr=1e-2, weight_decay=5e-4))
    assert x.abs().max() > 1e-3
    assert_close(logits_of(method, pictures()), logits(pictures()).detach())


def test_taskres_leaves_underscores_in_names():
    method = make("taskres")
    method.setup(fixed_support(names=("sea_lion", "green", "blue")))
    expected = PlainCLIP().texts(["a photo of a sea_lion."])
    assert_close(method.get_buffer("base")[:1], expected)


def plain_lp_pp(features, labels, text, bias, epochs, accumulate):
    """LP++ with autograd and torch's SGD, as its equations and its official loop have it."""
    count = len(features)
    one_hot = F.one_hot(labels, CLASSES).float()
    similar = features @ text.T
    start = 250 * torch.stack([similar[labels == k, k].mean() for k in range(CLASSES)]).mean()
    w = (one_hot.T @ features).requires_grad_(True)
    b = bias.clone().requires_grad_(True)
    alpha = torch.full((CLASSES,), float(start), requires_grad=True)
    largest = torch.linalg.svdvals(features).max() ** 2
    sgd = torch.optim.SGD([w, b], lr=float(4 * count / largest), momentum=0.9)
    lr_alpha = count / (4 * max(float((similar[:, k] ** 2).sum()) for k in range(CLASSES)))
    for epoch in range(epochs):
        if not accumulate:
            alpha.grad = None
        sgd.zero_grad()
        F.cross_entropy(features @ w.T + b + similar * alpha, labels).backward()
        sgd.step()
        if (epoch + 1) % 10 == 0:
            assert alpha.grad is not None
            alpha.data -= lr_alpha * alpha.grad
    return w.detach(), b.detach(), alpha.detach()


@pytest.mark.parametrize("accumulate", [True, False])
@pytest.mark.parametrize("epochs", [0, 5, 25])
def test_lp_pp_matches_its_equations(accumulate, epochs):
    method = prepared("lp_pp", epochs=max(epochs, 1), accumulate=accumulate, templates=PAIR)
    clip, features, labels, text = plain_features()
    bias = method.get_parameter("bias").detach().clone()
    assert bias.abs().max() <= method.backbone.dim**-0.5
    w, b, alpha = plain_lp_pp(features, labels, text, bias, epochs, accumulate)
    if epochs:
        method.finish(fixed_support(), None)
    f = F.normalize(clip.images(pictures()), dim=-1)
    assert_close(logits_of(method, pictures()), f @ w.T + b + alpha * (f @ text.T))


def test_lp_pp_takes_the_last_of_the_best_validation_epochs():
    """With validation images labelled wrong on purpose, the best epoch is not the last."""
    method = prepared("lp_pp", epochs=40)
    pixels, right = fixed_passes(size=24)[2]
    labels = (right + 1) % CLASSES
    validation = FixedSupport([(pixels, labels)])
    f = method.encode_images(pixels)
    hits = []
    assert isinstance(method, LPPlusPlus)
    solutions, text = list(method._descend()), method.get_buffer("class_weight")
    for w, b, alpha in solutions:
        scores = f @ w.T + b + alpha * (f @ text.T)
        hits.append(int((scores.argmax(1) == labels).sum()))
    best = max(epoch for epoch, count in enumerate(hits) if count == max(hits))
    method.finish(fixed_support(), validation)
    assert torch.equal(method.get_parameter("weight"), solutions[best][0])


@pytest.mark.parametrize("name", ["tip_adapter", "taskres", "lp_pp"])
def test_an_unseen_class_is_refused_by_name(name):
    with pytest.raises(UsageError, match="'violet'"):
        prepared(name).encode_classes(("red", "violet"))


@pytest.mark.parametrize(
    ("name", "options", "count"),
    [
        ("tip_adapter", {}, 0),
        ("tip_adapter", {"finetune": True}, 6 * 40),
        ("taskres", {}, 3 * 40),
        ("lp_pp", {}, 3 * 42),
    ],
)
def test_parameter_counts(name, options, count):
    method = prepared(name, **options)
    assert sum(p.numel() for p in method.parameters() if p.requires_grad) == count


def updates(name, facts, **options):
    method = get_method(name)
    config = dataclasses.replace(method.published_config(facts), **options)
    return sum(total_iterations(t, facts.images) for t in method.training_for(facts, config))


def test_published_updates_all_to_all():
    tip = {
        dataset: updates("tip_adapter", facts_of(dataset, classes), finetune=True)
        for dataset, classes in (("imagenet", 1000), ("eurosat", 10), ("caltech101", 100))
    }
    assert tip == {"imagenet": 1260, "eurosat": 100, "caltech101": 140}
    assert updates("taskres", facts_of("imagenet", 1000)) == 12400
    assert updates("taskres", facts_of("eurosat", 10)) == 200
    assert updates("tip_adapter", facts_of("imagenet", 1000)) == 0
    assert updates("lp_pp", facts_of("imagenet", 1000)) == 0


def test_published_options_by_dataset():
    tip = get_method("tip_adapter").published_config
    flowers = tip(facts_of("oxford_flowers", 102))
    assert (flowers.alpha, flowers.beta_max, flowers.alpha_max, flowers.finetune) == (
        10,
        50,
        50,
        False,
    )
    assert tip(facts_of("imagenet", 1000)).templates == IMAGENET_TEMPLATES
    taskres = get_method("taskres").published_config
    assert taskres(facts_of("oxford_flowers", 102)).alpha == 1
    assert taskres(facts_of("dtd", 47)).alpha == 0.5
    assert len(taskres(facts_of("imagenet", 1000)).templates) == 8
    (training,) = get_method("tip_adapter").training_for(
        facts_of("dtd", 47), dataclasses.replace(tip(facts_of("dtd", 47)), finetune=True)
    )
    assert training == TrainConfig(lr=1e-3, eps=1e-4, batch_size=256, epochs=20, lr_min=0.0)


@pytest.mark.parametrize("name", ["tip_adapter", "taskres", "lp_pp", "clip_adapter"])
def test_benchmarks_have_their_own_prompts(name):
    def prompts(dataset):
        config = get_method(name).published_config(facts_of(dataset, 47))
        return (config.template,) if name == "clip_adapter" else config.templates

    assert prompts("dtd") == prompts("DescribableTextures") == ("{} texture.",)
    assert prompts("ucf101") == ("a photo of a person doing {}.",)
    assert prompts("shapes") in ((), (None,))
    if name != "clip_adapter":
        assert prompts("imagenet")[:7] == IMAGENET_TEMPLATES


def test_clip_adapter_takes_its_prompt():
    given = make("clip_adapter", template="art of the {}.")
    other = make("clip_adapter")
    other.template = "art of the {}."
    embeds = (method.encode_classes(NAMES).weight for method in (given, other))
    assert torch.equal(*embeds)
    assert not torch.equal(
        given.encode_classes(NAMES).weight, make("clip_adapter").encode_classes(NAMES).weight
    )


def test_mma_refuses_a_block_zero():
    with pytest.raises(UsageError, match="start_block"):
        make("mma", start_block=0)


def test_what_a_run_has_selected_on():
    """Of the class, what the default looks at; of an instance, what there was to look at."""
    one_each, two_each = fixed_support(size=3), fixed_support()
    for name, options, support, validation, expected in (
        ("tip_adapter", {}, two_each, two_each, "validation shots"),
        ("tip_adapter", {}, two_each, None, "shots"),
        ("tip_adapter", {}, one_each, None, "nothing"),
        ("tip_adapter", {"search": False}, two_each, two_each, "nothing"),
        ("lp_pp", {"epochs": 1}, two_each, two_each, "validation shots"),
        ("lp_pp", {"epochs": 1}, two_each, None, "nothing"),
    ):
        method = make(name, **options)
        assert method.selects_on == "validation shots"
        method.setup(support)
        method.finish(support, validation)
        assert method.selects_on == expected, (name, options)
