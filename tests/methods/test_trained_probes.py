"""ProLIP, CLAP and the cross-modal probe against their equations; facts of all probes."""

import dataclasses
import itertools

import pytest
import torch
from plain_features import (
    CLASSES,
    PAIR,
    assert_close,
    logits_of,
    make,
    plain_text,
    plain_views,
    prepared,
    several_views,
    unit,
)
from published_shapes import vit_b16, vit_l14
from torch.nn import functional as F
from written_out_clip import NAMES, FixedSupport, PlainCLIP, fixed_passes, pictures

from shotfit.data.task import Setting
from shotfit.layers.ensembles import IMAGENET_TEMPLATES
from shotfit.methods import get_method
from shotfit.methods.published import TaskFacts, TrainConfig
from shotfit.training.loop import total_iterations, train

PROBES = ("gda", "proker", "prolip", "clap", "cross_modal", "prototypes")


def plain_projection(updates, lr, penalty, views):
    """ProLIP written out: Adam with its published eps, one view after the next."""
    clip, passes = PlainCLIP(), fixed_passes()
    start = clip.tensors["visual_projection.weight"].T.clone()
    weight = start.clone().requires_grad_(True)
    clip.tensors["visual_projection.weight"] = torch.eye(64)
    inputs = [clip.images(pixels) for pixels, _ in passes[:views]]
    text = plain_text(clip)
    adam = torch.optim.Adam([weight], lr=lr, eps=1e-4)
    for step in range(updates):
        logits = clip.scale * unit(inputs[(step + 1) % views] @ weight) @ text.T
        loss = F.cross_entropy(logits, passes[0][1])
        loss = loss + penalty * F.mse_loss(weight, start, reduction="sum")
        adam.zero_grad()
        loss.backward()
        adam.step()
    return clip, weight.detach(), text


@pytest.mark.parametrize("penalty", [0.0, 2.0])
def test_prolip_matches_its_equation(penalty):
    method = prepared("prolip", views=3, weight=penalty, templates=PAIR)
    (config,) = type(method).published_training(TaskFacts("shapes", "all_to_all", 2, 3, 6))
    config = dataclasses.replace(config, lr=1e-2, iterations=5, epochs=None, schedule="constant")
    for _ in train(method, several_views(), config):
        pass
    clip, weight, text = plain_projection(5, 1e-2, penalty, views=3)
    assert_close(method.backbone.vision.projection.weight.T, weight)
    f = unit(clip.images(pictures()) @ weight)
    assert_close(logits_of(method, pictures()), clip.scale * f @ text.T)


def test_prolip_encodes_each_view_once_and_the_first_comes_last(monkeypatch):
    method, support = prepared("prolip", views=4), several_views()
    passes = []

    def encode_pass(batches, encode):
        passes.append(1)
        return torch.full((6, 64), float(len(passes)))

    monkeypatch.setattr(method, "encode_pass", encode_pass)
    batches = itertools.islice(method.batches(support, 6, False), 9)
    views = [int(inputs[0, 0]) for inputs, _ in batches]
    assert views == [2, 3, 4, 1, 2, 3, 4, 1, 2]
    assert len(passes) == 4
    method.finish(support, None)
    assert method._views == []
    parts = [len(labels) for _, labels in itertools.islice(method.batches(support, 4, False), 4)]
    assert parts == [4, 2, 4, 2]


def test_prolip_starts_at_the_identity_where_there_is_no_projection():
    method = prepared("prolip", family="siglip", views=2)
    dim = method.backbone.dim
    assert torch.equal(method.backbone.vision.projection.weight, torch.eye(dim))
    zero_shot = make("zero_shot", family="siglip")
    assert_close(logits_of(method, pictures()), logits_of(zero_shot, pictures()), 1e-6)
    assert list(method.learned_names()) == ["backbone.vision.projection.weight"]


@pytest.mark.parametrize("anchored", [True, False])
def test_clap_matches_its_equation(anchored):
    method = prepared("clap", anchored=anchored, views=4, templates=PAIR)
    clip, features, labels = plain_views(4)
    lines = [clip.texts([template.format(name) for name in NAMES]) for template in PAIR]
    text = torch.stack(lines).mean(0)
    assert not torch.allclose(text, plain_text(clip) * text.norm(dim=-1, keepdim=True), atol=1e-3)
    zero_shot = (clip.scale * features @ unit(text).T).softmax(-1)
    alpha = torch.stack([zero_shot[labels == c, c].mean() for c in range(CLASSES)])
    weight = text.clone().requires_grad_(True)
    sgd = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
    (config,) = type(method).published_training(TaskFacts("shapes", "all_to_all", 2, 3, 6))
    assert config == TrainConfig(
        optimizer="sgd",
        lr=0.1,
        weight_decay=0.0,
        batch_size=256,
        drop_last=True,
        epochs=300,
        schedule="cosine_per_epoch",
        lr_min=0.0,
        warmup_epochs=1,
    )
    config = dataclasses.replace(config, iterations=5, epochs=None, schedule="constant")
    for _ in train(method, several_views(), config):
        pass
    for _ in range(5):
        # With fewer images than a batch, an epoch is one batch of the whole pool of views.
        loss = F.cross_entropy(clip.scale * features @ unit(weight).T, labels)
        if anchored:
            loss = loss + (alpha * (weight - text).pow(2).sum(-1)).mean()
        sgd.zero_grad()
        loss.backward()
        sgd.step()
    assert (weight.detach() - text).abs().max() > 1e-2
    assert_close(method.get_parameter("weight"), weight)
    expected = clip.scale * unit(clip.images(pictures())) @ unit(weight).T
    assert_close(logits_of(method, pictures()), expected)
    novel = unit(torch.stack([clip.texts([t.format("violet")]) for t in PAIR]).mean(0))
    mixed = logits_of(method, pictures(), ("violet", "red"))
    assert_close(mixed[:, :1], clip.scale * unit(clip.images(pictures())) @ novel.T)
    assert_close(mixed[:, 1], expected[:, 0])


def test_clap_leaves_underscores_in_names():
    support = FixedSupport(fixed_passes(), ("sea_lion", "green", "blue"), several=True)
    expected = PlainCLIP().texts(["a photo of a sea_lion."])
    assert_close(prepared("clap", support, views=2).get_parameter("weight")[:1], expected)


def test_an_epoch_of_clap_is_as_long_as_one_of_images_and_takes_views_without_repetition():
    method, support = prepared("clap", views=4), several_views()
    batches = [x for x, _ in itertools.islice(method.batches(support, 2, True), 6)]
    assert [len(x) for x in batches] == [2] * 6
    for epoch in (torch.cat(batches[:3]), torch.cat(batches[3:])):
        assert len(torch.unique(epoch, dim=0)) == 6
    assert len(torch.unique(torch.cat(batches), dim=0)) > 6
    whole = [len(y) for _, y in itertools.islice(method.batches(support, 256, True), 3)]
    assert whole == [24] * 3


def plain_pairs():
    """Unit embeddings of the pictures, their mirror images and the prompts, with their labels."""
    clip, (pixels, labels) = PlainCLIP(), fixed_passes()[0]
    images = unit(clip.images(torch.cat([pixels, torch.flip(pixels, (3,))])))
    texts = unit(torch.cat([clip.texts([t.format(n) for n in NAMES]) for t in PAIR]))
    return clip, (images, labels.repeat(2)), (texts, torch.arange(CLASSES).repeat(2))


def row_of(features, pool):
    (row,) = (pool - features).abs().amax(dim=1).lt(1e-5).nonzero()[:, 0].tolist()
    return row


def test_cross_modal_batches_are_half_images_half_prompts():
    method, support = prepared("cross_modal", templates=PAIR), several_views()
    _, (images, image_labels), (texts, text_labels) = plain_pairs()
    epoch = []
    for inputs, labels in itertools.islice(method.batches(support, 8, False), 3):
        rows = [row_of(z, images) for z in inputs[:4]]
        assert torch.equal(labels[:4], image_labels[rows])
        epoch += rows
        prompts = [row_of(z, texts) for z in inputs[4:]]
        assert torch.equal(labels[4:], text_labels[prompts])
        assert len(set(prompts)) == 4
    assert sorted(epoch) == list(range(12)), "every view once before any comes again"
    # A half that is larger than its set is all of it.
    inputs, labels = next(method.batches(support, 32, False))
    assert inputs.shape == (12 + 6, 40)


def test_cross_modal_matches_its_equation():
    support = several_views()
    method = prepared("cross_modal", templates=PAIR)
    clip, (images, image_labels), (texts, text_labels) = plain_pairs()
    start = torch.stack([clip.texts([t.format(n) for n in NAMES]) for t in PAIR]).mean(0)
    weight = unit(start).requires_grad_(True)
    config = TrainConfig(lr=1e-2, batch_size=24, iterations=5, schedule="constant")
    for _ in train(method, support, config):
        pass
    adamw = torch.optim.AdamW([weight], lr=1e-2, weight_decay=1e-2)
    both, labels = torch.cat([images, texts]), torch.cat([image_labels, text_labels])
    for _ in range(5):
        loss = F.cross_entropy(clip.scale * both @ weight.T, labels)
        adamw.zero_grad()
        loss.backward()
        adamw.step()
    assert_close(method.get_parameter("weight"), weight)
    f = unit(clip.images(pictures()))
    assert_close(logits_of(method, pictures()), clip.scale * f @ weight.T)
    novel = logits_of(method, pictures(), ("violet", "red"))
    text = unit(torch.stack([clip.texts([t.format("violet")]) for t in PAIR]).mean(0))
    assert_close(novel[:, :1], clip.scale * f @ text.T)
    assert (unit(weight) - weight).abs().max() > 1e-3, "the length of a row must count here"


def test_cross_modal_keeps_the_first_of_the_best_checkpoints():
    pixels, right = fixed_passes(size=24)[3]
    validation = FixedSupport([(pixels, (right + 1) % CLASSES)])
    embeds = unit(PlainCLIP().images(pixels))
    method, support = prepared("cross_modal"), several_views()
    seen = []
    config = TrainConfig(lr=5e-2, batch_size=8, iterations=302, schedule="constant")
    for step in train(method, support, config):
        if step.iteration % 100 == 1:
            seen.append(method.get_parameter("weight").detach().clone())
    hits = [int(((embeds @ w.T).argmax(1) == validation.labels).sum()) for w in seen]
    assert len(seen) == 4 and len(set(hits)) > 1
    last = method.get_parameter("weight").detach().clone()
    method.finish(support, validation)
    assert torch.equal(method.get_parameter("weight"), seen[hits.index(max(hits))])
    assert method.selects_on == "validation shots"
    assert not torch.equal(method.get_parameter("weight"), last)


def test_cross_modal_without_validation_keeps_the_last_and_may_mix_in_text():
    for share in (0.0, 0.5):
        method, support = prepared("cross_modal", wise_ft=share), several_views()
        text = method.get_parameter("weight").detach().clone()
        config = TrainConfig(lr=1e-2, batch_size=8, iterations=4)
        for _ in train(method, support, config):
            pass
        last = method.get_parameter("weight").detach().clone()
        method.finish(support, None)
        assert_close(method.get_parameter("weight"), (1 - share) * last + share * text, 1e-6)
        assert method.selects_on == "nothing"


def facts_of(dataset, classes, shots=16, setting: Setting = "all_to_all"):
    return TaskFacts(dataset, setting, shots, classes, classes * shots)


def test_parameter_counts():
    for shapes, count in ((vit_b16(), 393_216), (vit_l14(), 786_432)):
        method = get_method("prolip")(shapes)
        assert sum(p.numel() for p in method.parameters() if p.requires_grad) == count
    for name in PROBES:
        method = prepared(name)
        count = sum(p.numel() for p in method.parameters() if p.requires_grad)
        rows = CLASSES * method.backbone.dim
        expected = {"prolip": 64 * 40, "clap": rows, "cross_modal": rows}
        assert count == expected.get(name, 0), name


def updates(name, facts):
    return sum(
        total_iterations(t, facts.images) for t in get_method(name).published_training(facts)
    )


@pytest.mark.parametrize(
    ("dataset", "classes", "clap", "halves"),
    [("imagenet", 1000, 18600, 32), ("caltech101", 100, 1800, 32), ("eurosat", 10, 300, 8)],
)
def test_published_updates_on_sixteen_shots(dataset, classes, clap, halves):
    facts = facts_of(dataset, classes)
    assert updates("prolip", facts) == 300
    assert updates("clap", facts) == clap
    assert updates("cross_modal", facts) == 12_800
    assert updates("gda", facts) == updates("proker", facts) == updates("prototypes", facts) == 0
    (prolip,) = get_method("prolip").published_training(facts)
    assert (prolip.optimizer, prolip.lr, prolip.eps, prolip.lr_min) == ("adam", 1e-5, 1e-4, 0.0)
    assert prolip.batch_size == facts.images
    (probe,) = get_method("cross_modal").published_training(facts)
    assert (probe.batch_size, probe.lr, probe.weight_decay) == (halves, 1e-3, 1e-2)
    assert (probe.warmup_iterations, probe.warmup_lr, probe.lr_min) == (50, 1e-5, 0.0)


def test_published_options_by_task():
    def config(name, **changes):
        return get_method(name).published_config(facts_of("dtd", 47, **changes))

    assert config("prolip", shots=4).weight == 0.25
    gda = config("gda"), config("gda", setting="base_to_novel")
    assert [(g.alpha, g.estimator) for g in gda] == [(10, "few_shot"), (0.1, "base_to_novel")]
    proker = {k: (config("proker", shots=k).beta, config("proker", shots=k).ridge) for k in (1, 5)}
    assert proker == {1: (3.0, 0.05), 5: (1.5, 0.05)}
    assert (config("proker").beta, config("proker").ridge) == (1.7, 0.1)
    assert [config("prototypes", shots=k).weight for k in (1, 4, 16)] == [0.5, 1, 2]


@pytest.mark.parametrize("name", PROBES)
def test_benchmarks_have_their_own_prompts(name):
    def prompts(dataset):
        return get_method(name).published_config(facts_of(dataset, 47)).templates

    assert prompts("dtd") == prompts("DescribableTextures") == ("{} texture.",)
    assert prompts("shapes") == ()
    generic = ("a photo of a {}.",) if name == "clap" else ()
    assert prompts("imagenet") == (*IMAGENET_TEMPLATES, *generic)


def test_what_probes_select_on():
    selecting = [name for name in PROBES if get_method(name).selects_on != "nothing"]
    assert selecting == ["cross_modal"]
    assert get_method("cross_modal").selects_on == "validation shots"
