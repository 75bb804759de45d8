"""Published facts of PromptSRC, TCP, MMRL, MMRL++, CLIP-SVD and CLIPFit: parameters, updates,
schedules, prompts."""

import dataclasses
from typing import Any

import pytest
import torch
from conftest import make_backbone
from published_shapes import shapes_only, trains_and_scores_shapes, vit_b16, vit_l14
from torch import nn
from written_out_clip import FixedSupport

from shotfit.config import override
from shotfit.data.benchmark.templates import dataset_templates
from shotfit.data.task import Setting
from shotfit.errors import UsageError
from shotfit.layers.averaging import EpochAverage
from shotfit.layers.depth import last_block, scaled_block
from shotfit.layers.ensembles import DIVERSE_TEMPLATES
from shotfit.methods import get_method
from shotfit.methods.mmrl import MMRL
from shotfit.methods.mmrl_pp import MMRLPlusPlus
from shotfit.methods.published import TaskFacts, TrainConfig
from shotfit.methods.tcp import TCP
from shotfit.plan import plan
from shotfit.recipe import Overrides, one_stage, two_stage
from shotfit.training.loop import learning_rate, total_iterations, updates_per_epoch

METHODS = ("promptsrc", "clip_svd", "mmrl", "mmrl_pp", "tcp", "clipfit")
# Of the 512 dimensions of the shared tokens, to each encoder's width and back.
MMRL_L14 = 5 * 512 + 7 * (513 * 1024 + 513 * 768) + 1024 * 768
MMRL_PP_L14 = (
    5 * 512
    + (1024 * 512 + 7 * (1024 * 4 + 4 * 512 + 1024))
    + (768 * 512 + 7 * (768 * 4 + 4 * 512 + 768))
    + 1024 * 64
    + 64 * 768
)
COUNTS = [
    ("promptsrc", "caltech101", 46_080, 9 * 4 * (768 + 1024)),
    ("clip_svd", "caltech101", 92_160, 202_752),
    ("mmrl", "caltech101", 4_992_256, MMRL_L14),
    ("mmrl", "eurosat", 18_762_496, None),
    ("mmrl_pp", "caltech101", 813_312, MMRL_PP_L14),
    ("mmrl_pp", "eurosat", 813_312, MMRL_PP_L14),
    ("tcp", "caltech101", 331_904, 4 * 768 + 769 * 192 + 193 * 4 * 768),
    ("clipfit", "caltech101", 46_080, 12 * 768 + 50 * 2 * 1024),
]


def facts_of(dataset, classes=50, setting: Setting = "base_to_novel", shots=16):
    return TaskFacts(dataset, setting, shots, classes, classes * shots)


def published(name, dataset, **task):
    facts = facts_of(dataset, **task)
    (training,) = get_method(name).published_training(facts)
    return get_method(name).published_config(facts), training


@pytest.mark.parametrize(("name", "dataset", "base", "large"), COUNTS)
def test_trainable_parameters(name, dataset, base, large):
    for backbone, expected in ((vit_b16, base), (vit_l14, large)):
        if expected is not None:
            method = get_method(name)(backbone(), published(name, dataset)[0])
            count = sum(p.numel() for p in method.parameters() if p.requires_grad)
            assert count == expected


# Base-to-novel, 16 shots: base classes, then the updates of PromptSRC, CLIP-SVD, MMRL and MMRL++,
# TCP, CLIPFit.
UPDATES = {
    "imagenet": (500, 40000, 2500, 1250, 12500, 2500),
    "caltech101": (50, 4000, 500, 2000, 1250, 2500),
    "fgvc_aircraft": (50, 4000, 500, 2000, 1250, 2500),
    "oxford_pets": (19, 1520, 200, 760, 450, 900),
    "stanford_cars": (98, 7840, 490, 3920, 2450, 4900),
    "oxford_flowers": (51, 4080, 260, 2040, 1250, 2500),
    "ucf101": (51, 4080, 260, 2040, 1250, 2500),
    "food101": (51, 4080, 260, 2040, 1250, 250),
    "sun397": (199, 15920, 1000, 7960, 4950, 9900),
    "dtd": (24, 1920, 240, 960, 600, 1200),
    "eurosat": (5, 400, 60, 200, 100, 200),
}


@pytest.mark.parametrize("dataset", UPDATES)
def test_update_counts(dataset):
    classes, promptsrc, svd, mmrl, tcp, clipfit = UPDATES[dataset]
    expected = dict(zip(METHODS, (promptsrc, svd, mmrl, mmrl, tcp, clipfit), strict=True))
    for name, count in expected.items():
        training = published(name, dataset, classes=classes)[1]
        assert total_iterations(training, 16 * classes) == count, name


def test_trainers():
    """Optimiser, rate, decay, batch, epochs of either setting, and what a whole trainer shares."""
    sgd, adam, adamw = "sgd", "adam", "adamw"
    expected = {
        ("promptsrc", "base_to_novel"): (sgd, 2.5e-3, 5e-4, 4, 20),
        ("promptsrc", "all_to_all"): (sgd, 2.5e-3, 5e-4, 4, 50),
        ("clip_svd", "base_to_novel"): (adamw, 4e-4, 1e-2, 32, 20),
        ("clip_svd", "all_to_all"): (adamw, 5e-4, 1e-2, 32, None),
        ("mmrl", "base_to_novel"): (adamw, 1e-3, 5e-4, 4, 10),
        ("mmrl", "all_to_all"): (adamw, 1e-3, 5e-4, 32, 50),
        ("mmrl_pp", "base_to_novel"): (adamw, 1e-3, 5e-4, 4, 10),
        ("mmrl_pp", "all_to_all"): (adamw, 2e-3, 5e-4, 32, 100),
        ("tcp", "base_to_novel"): (adam, 2e-3, 5e-4, 32, 50),
        ("clipfit", "base_to_novel"): (sgd, 2e-3, 5e-4, 32, 100),
    }
    for (name, setting), wanted in expected.items():
        t = published(name, "dtd", setting=setting)[1]
        assert (t.optimizer, t.lr, t.weight_decay, t.batch_size, t.epochs) == wanted
        dassl = name != "clip_svd"
        assert (t.drop_last, t.warmup_epochs, t.lr_min) == (
            (True, 1, 0) if dassl else (False, 0, 1e-6)
        )
        assert t.schedule == ("cosine_per_epoch" if dassl else "cosine")
        assert t.eps == (1e-3 if name == "tcp" else 1e-8)
        crops = (0.5, 1.0) if name.startswith("mmrl") else (0.08, 1.0)
        assert get_method(name).crop_scale == crops
    assert published("clip_svd", "dtd", setting="all_to_all", shots=4)[1].iterations == 800
    for setting in ("base_to_novel", "all_to_all"):
        for name in ("mmrl", "mmrl_pp"):
            t = published(name, "ImageNet", setting=setting)[1]
            assert (t.lr, t.batch_size, t.epochs) == (1e-3, 32, 5)


def test_the_rate_of_clip_svd_falls_and_rises_as_torchs():
    for period in (1, 10, 20):
        config = TrainConfig(lr=4e-4, iterations=75, cosine_iterations=period)
        optimizer = torch.optim.AdamW([nn.Parameter(torch.zeros(1))], lr=4e-4)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, period, eta_min=1e-6)
        for iteration in range(75):
            rate = optimizer.param_groups[0]["lr"]
            assert learning_rate(config, iteration, 75, 1) == pytest.approx(rate, rel=1e-6)
            optimizer.step()
            schedule.step()
    once = TrainConfig(lr=4e-4, iterations=75)
    assert learning_rate(once, 0, 75, 1) == 4e-4
    assert learning_rate(once, 74, 75, 1) < 2e-6


# Of the last update in base-to-novel with 16 shots.
LAST_RATES = {
    ("caltech101", "fgvc_aircraft", "eurosat"): 3.5e-6,
    ("stanford_cars",): 1.1e-5,
    ("dtd", "oxford_pets"): 3.97e-4,
    ("food101", "oxford_flowers", "ucf101", "sun397", "imagenet"): 3.90e-4,
}


@pytest.mark.parametrize(("datasets", "rate"), LAST_RATES.items())
def test_the_last_rate_of_clip_svd(datasets, rate):
    for dataset in datasets:
        classes, _, updates, *_ = UPDATES[dataset]
        training = published("clip_svd", dataset, classes=classes)[1]
        per_epoch = updates_per_epoch(training, 16 * classes)
        last = learning_rate(training, updates - 1, updates, per_epoch)
        assert last == pytest.approx(rate, rel=3e-2)


def test_the_schedule_of_clip_svd_can_be_a_plain_cosine_and_stays_itself_in_a_first_stage():
    facts = facts_of("dtd", 24)
    plain = Overrides(options={"training.cosine_iterations": "none"}).applied(one_stage("clip_svd"))
    ((_, _, (training,)),) = plan(plain, facts)
    assert (training.cosine_iterations, training.epochs) == (None, 20)
    (_, _, (first,)), (_, _, (second,)) = plan(two_stage("clip_svd"), facts)
    assert (first.cosine_iterations, first.iterations) == (20, int(0.6 * 240))
    assert second.cosine_iterations is None


def gaussian(mean, std, epochs):
    """The weights of so many epochs, seen by averaging states that tell them apart."""
    parameter = nn.Parameter(torch.zeros(epochs))
    average = EpochAverage([parameter], mean / epochs, std / epochs)
    for epoch in average.during(range(epochs), per_epoch=1):
        parameter.data = torch.eye(epochs)[epoch]
    average.take()
    return parameter.detach()


def test_gaussian_weights():
    weights = gaussian(15, 1, 20)
    rounded = [round(w, 3) for w in weights[12:17].tolist()]
    assert rounded == [0.054, 0.242, 0.399, 0.242, 0.054]
    assert weights[17:].sum().item() == pytest.approx(0.005, abs=5e-4)
    weights = gaussian(6, 10, 20)
    assert [round(weights[e - 1].item(), 3) for e in (1, 6, 20)] == [0.055, 0.063, 0.024]
    assert weights.argmax() == 5
    weights = gaussian(30, 30, 50)
    assert (round(weights.min().item(), 3), round(weights.max().item(), 3)) == (0.014, 0.023)
    weights = gaussian(45, 5, 50)
    assert (weights.argmax() + 1, round(weights.max().item(), 3)) == (45, 0.092)
    assert round(weights[-1].item(), 3) == 0.056
    # Too short for the mean to be reached: nothing is lost in rounding to zero.
    assert gaussian(1e-4, 1e-6, 2).tolist() == [1, 0]


def test_where_promptsrc_averages():
    averages = {
        (dataset, setting): dataclasses.astuple(published("promptsrc", dataset, setting=setting)[0])
        for dataset in ("dtd", "EuroSAT", "UCF101", "my photos")
        for setting in ("base_to_novel", "all_to_all")
    }
    for (dataset, setting), (*_, mean, std) in averages.items():
        few = (0.9, 0.1) if dataset in ("dtd", "EuroSAT") else (0.6, 0.6)
        assert (mean, std) == ((0.75, 0.05) if setting == "base_to_novel" else few)


def test_sixty_diverse_templates():
    assert len(set(DIVERSE_TEMPLATES)) == 60
    assert all(template.count("{}") == 1 for template in DIVERSE_TEMPLATES)
    left_out = (
        "a jpeg corrupted photo of the {}.|a good photo of a {}.|a plushie {}.|a photo of the nice"
        " {}.|a photo of the small {}.|a photo of the weird {}.|the cartoon {}.|art of the {}.|a "
        "drawing of the {}.|a photo of the large {}.|a black and white photo of a {}.|the plushie "
        "{}.|a dark photo of a {}.|itap of a {}.|graffiti of the {}.|a toy {}.|itap of my {}.|a "
        "photo of a cool {}.|a photo of a small {}.|a tattoo of the {}."
    ).split("|")
    assert len(left_out) == 20
    assert not set(left_out) & set(DIVERSE_TEMPLATES)


def test_prompts():
    assert published("tcp", "my photos")[0].teacher_template is None
    for dataset in UPDATES:
        config = published("tcp", dataset)[0]
        templates = dataset_templates(dataset)
        assert templates is not None
        assert config.teacher_template == templates.tcp_teacher
        assert published("clipfit", dataset)[0].template == templates.kgcoop
        assert published("mmrl", dataset)[0].template == published("mmrl_pp", dataset)[0].template
    tcp = {name: published("tcp", name)[0] for name in UPDATES}
    assert tcp["fgvc_aircraft"].teacher_template == "a photo of an aircraft {}."
    assert tcp["food101"].teacher_template == "a photo of a {}, a type of food."
    assert tcp["stanford_cars"].tail == "{}, a type of car"
    assert tcp["ucf101"].tail == "person doing {}."
    assert tcp["imagenet"].tail == tcp["sun397"].tail == "{}."
    assert published("mmrl", "dtd")[0].template == "{} texture."
    assert published("clipfit", "dtd")[0].template == "a photo of a {}, a type of texture."
    assert published("mmrl", "my photos")[0].template is None
    svd = {
        (dataset, setting): published("clip_svd", dataset, setting=setting)[0].template
        for dataset in ("dtd", "eurosat", "ucf101", "food101", "oxford_pets", "my photos")
        for setting in ("base_to_novel", "all_to_all")
    }
    generic = "a photo of a {}."
    pets = "a photo of a {}, a type of pet."
    assert list(svd.values()) == [
        *(generic, "{} texture."),
        *(generic, "a centered satellite photo of {}."),
        *(generic, "a photo of a person doing {}."),
        *("a photo of {}, a type of food.", "a photo of a {}, a type of food."),
        *(pets, pets),
        *(None, None),
    ]


def test_values_by_dataset():
    mmrl = {name: published("mmrl", name)[0] for name in (*UPDATES, "my photos")}
    weights = [config.weight for config in mmrl.values()]
    assert weights == [0.5, 0.5, 6, 0.2, 7, 4, 3, 5, 6, 6, 0.01, 1]
    assert {name for name, config in mmrl.items() if config.rep_dim == 2048} == {"eurosat"}
    pp = {name: published("mmrl_pp", name)[0] for name in (*UPDATES, "my photos")}
    betas = [config.beta for config in pp.values()]
    assert betas == [0.9, 0.6, 0.9, 0.7, 0.7, 0.4, 0.9, 0.1, 0.5, 0.9, 0.2, 0.9]
    weights = [config.weight for config in pp.values()]
    assert weights == [0.2, 3, 2, 0.01, 6, 7, 3, 1, 3, 7, 0.01, 1]
    clipfit = {
        (dataset, setting): published("clipfit", dataset, setting=setting)[0].weight
        for dataset in ("dtd", "SUN397", "food101", "my photos")
        for setting in ("base_to_novel", "all_to_all")
    }
    assert list(clipfit.values()) == [8, 8, 8, 8, 8, 2, 8, 2]


def projections(layers: nn.Module) -> int:
    return len(list(layers.children()))


def test_blocks_in_towers_of_other_depths():
    assert [scaled_block(6, depth) for depth in (2, 4, 6, 12, 24)] == [1, 2, 3, 6, 6]
    assert [scaled_block(9, depth) for depth in (2, 4, 6, 12, 24)] == [2, 3, 5, 9, 9]
    assert [last_block(depth) for depth in (4, 12, 24)] == [4, 12, 12]
    space = MMRL(make_backbone(vision_blocks=6, text_blocks=4)).space
    assert (space.first, projections(space.to_vision), projections(space.to_text)) == (1, 3, 3)
    large = MMRL(vit_l14()).space
    assert (large.first, projections(large.to_vision), projections(large.to_text)) == (5, 7, 7)
    assert TCP(vit_l14())._block == 8


NAMES = ("red", "light blue")


@pytest.mark.parametrize("name", METHODS)
def test_models_train_and_score_on_their_own_device(name):
    vision = {"hidden_size": 1024, "num_hidden_layers": 3, "patch_size": 14}
    vision |= {"num_attention_heads": 16, "intermediate_size": 256}
    text = {"hidden_size": 768, "num_hidden_layers": 2, "num_attention_heads": 12}
    method = get_method(name)(shapes_only(vision, text, 768), published(name, "dtd")[0])
    method.setup(FixedSupport((), NAMES, images=0))
    trains_and_scores_shapes(method, NAMES)


@pytest.mark.parametrize("name", METHODS)
def test_no_names_at_all(name):
    method = get_method(name)(make_backbone())
    assert method.encode_classes([]).weight.shape == (0, method.backbone.dim)


@pytest.mark.parametrize("name", METHODS)
def test_the_generator_decides_the_start(name):
    states = [
        get_method(name)(
            make_backbone(), generator=torch.Generator().manual_seed(seed)
        ).learned_state()
        for seed in (1, 1, 2)
    ]
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    random = name not in ("clip_svd", "clipfit")
    assert any(not torch.equal(states[0][k], states[2][k]) for k in states[0]) == random


def test_what_starts_alike():
    space: Any = MMRL(make_backbone(vision_blocks=4, text_blocks=4)).space
    for layers in (space.to_vision, space.to_text):
        assert all(torch.equal(layers[0].weight, layer.weight) for layer in layers)
    method = MMRLPlusPlus(make_backbone(vision_blocks=4, text_blocks=4))
    layers: Any = method.space.to_vision
    own, bias = layers.own, layers.bias
    assert torch.equal(bias[0], bias[1]) and not torch.equal(own[0].a, own[1].a)
    assert all(part.b.count_nonzero() == 0 for part in own)
    assert max(part.a.abs().max() for part in own) <= 1 / 2
    assert method.get_parameter("space.projection.a").abs().max() <= 1 / 8
    tower, states = method.backbone.vision, torch.randn(3, 64)
    represent = method.space.get_submodule("projection")
    same = torch.allclose(represent(states, tower), tower.get_submodule("projection")(states))
    assert same, "the second image embedding starts under CLIP's own projection"


def test_only_what_changed_is_saved(task):
    """Neither teachers nor anchors nor singular vectors."""
    expected = {"clip_svd": 6 * (3 + 2), "clipfit": 2 + 2 * 8, "tcp": 5, "promptsrc": 1 + 1 + 1 + 2}
    for name, count in expected.items():
        method = get_method(name)(make_backbone())
        method.setup(FixedSupport((), NAMES, images=0))
        state = method.learned_state()
        assert len(state) == count, list(state)
        assert set(state) == {n for n, p in method.named_parameters() if p.requires_grad}
    svd = get_method("clip_svd")(make_backbone()).learned_state()
    assert {value.dim() for value in svd.values()} == {1}


@pytest.mark.parametrize(
    "case",
    [
        "promptsrc gpa_std=0",
        "promptsrc prompt_depth=0",
        "promptsrc text_weight=-1",
        "tcp tail=x",
        "tcp reduction=0",
        "mmrl alpha=1.5",
        "mmrl n_tokens=0",
        "mmrl_pp beta=-0.1",
        "mmrl_pp rank=0",
        "clipfit weight=-1",
        "clip_svd template={}{}",
        "clip_svd training.cosine_iterations=0",
    ],
)
def test_values_out_of_range_are_refused(case):
    name, option = case.split()
    key, _, value = option.partition("=")
    with pytest.raises(UsageError, match="must"):
        plan(Overrides(options={key: value}).applied(one_stage(name)), facts_of("shapes"))


def test_mmrl_plus_plus_needs_an_image_projection():
    with pytest.raises(UsageError, match="clip models only"):
        get_method("mmrl_pp")(make_backbone(family="siglip"))


def test_options_change_what_they_name():
    config = override(published("mmrl_pp", "dtd")[0], {"rank": 2, "projection_rank": 8})
    method = MMRLPlusPlus(make_backbone(), config)
    assert method.space.projection.a.shape == (64, 8)
    assert method.get_parameter("space.to_text.own.0.a").shape == (48, 2)
