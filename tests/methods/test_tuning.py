"""BitFit, LoRA, CLIP-LoRA, MMA and CLIP-Adapter against their equations written out."""

import dataclasses
import math

import pytest
import torch
from conftest import SPEC, make_backbone
from torch.nn import functional as F
from transformers import CLIPConfig, CLIPModel
from written_out_clip import NAMES, PlainCLIP, fixed_passes, fixed_support, pictures

from shotfit.backbone import Backbone
from shotfit.data.task import Setting
from shotfit.errors import UsageError
from shotfit.layers.adapters import ParallelAdapter, kaiming_linear
from shotfit.layers.lora import SeededDropout
from shotfit.methods import get_method
from shotfit.methods.published import TaskFacts, TrainConfig
from shotfit.training.loop import total_iterations, train

FACTS = TaskFacts("shapes", "base_to_novel", shots=16, classes=3, images=6)

# Base classes of the eleven datasets, and the updates of MMA and CLIP-LoRA on 16 shots.
UPDATES = {
    "imagenet": (500, 310, 12500),
    "caltech101": (50, 250, 5000),
    "oxford_pets": (19, 95, 1800),
    "stanford_cars": (98, 490, 9800),
    "oxford_flowers": (51, 255, 5000),
    "food101": (51, 255, 5000),
    "fgvc_aircraft": (50, 250, 5000),
    "sun397": (199, 995, 19800),
    "dtd": (24, 120, 2400),
    "eurosat": (5, 25, 400),
    "ucf101": (51, 255, 5000),
}


def make(name, **options):
    method = get_method(name)
    config = dataclasses.replace(method.Config(), **options)
    return method(make_backbone(), config, generator=torch.Generator().manual_seed(3))


def facts_of(dataset, classes, setting: Setting = "base_to_novel", shots=16):
    return TaskFacts(dataset, setting, shots, classes, classes * shots)


def updates(name, facts):
    trainings = get_method(name).published_training(facts)
    return sum(total_iterations(training, facts.images) for training in trainings)


@torch.no_grad()
def logits_of(method, batch):
    method.eval()
    return method(batch, method.encode_classes(NAMES))


def five_updates(method, **changes):
    """Five updates by our loop, with the published optimiser at a rate that shows."""
    config = type(method).published_training(FACTS)[0]
    cut = {"iterations": 5, "epochs": None, "warmup_epochs": 0, "schedule": "constant", "lr": 1e-2}
    for _ in train(method, fixed_support(), dataclasses.replace(config, **{**cut, **changes})):
        pass


def plain_updates(parameters, logits, optimizer):
    for pixels, labels in fixed_passes():
        loss = F.cross_entropy(logits(pixels), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def assert_close(ours, reference):
    assert (ours - reference).abs().max() <= 1e-4 * reference.abs().max()


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-2, weight_decay=1e-2)


def test_the_reference_is_zero_shot_clip():
    assert_close(logits_of(make("zero_shot"), pictures()), PlainCLIP().logits(pictures()))


def test_bitfit_matches_its_equation():
    clip = PlainCLIP()
    biases = [
        tensor.requires_grad_(True)
        for name, tensor in clip.tensors.items()
        if name.endswith(".bias") and not any(f"{part}_proj.bias" in name for part in "qkv")
    ]
    method = make("bitfit")
    assert_close(logits_of(method, pictures()), clip.logits(pictures()).detach())
    five_updates(method)
    plain_updates(biases, clip.logits, adamw(biases))
    assert_close(logits_of(method, pictures()), clip.logits(pictures()).detach())
    assert (PlainCLIP().logits(pictures()) - clip.logits(pictures())).abs().max() > 0.1


@pytest.mark.parametrize("name", ["lora", "clip_lora"])
@pytest.mark.parametrize(("scaling", "factor"), [("rslora", 2 / 3**0.5), ("standard", 2 / 3)])
def test_lora_matches_its_equation(name, scaling, factor):
    method = make(name, rank=3, alpha=2.0, scaling=scaling, dropout=0.0)
    clip = PlainCLIP()
    low = []
    frozen = dict(clip.tensors)
    for tower, depth in clip.depth.items():
        for index in range(depth):
            for part in "qkv":
                layer = getattr(getattr(method.backbone, tower).blocks[index], f"{part}_proj")
                a = layer.lora_a.detach().clone().requires_grad_(True)
                b = torch.zeros(len(layer.weight), 3, requires_grad=True)
                assert a.abs().max() <= 1 / math.sqrt(a.shape[1])
                at = f"{tower}_model.encoder.layers.{index}.self_attn.{part}_proj.weight"
                low.append((at, a, b))
    parameters = [tensor for _, a, b in low for tensor in (a, b)]

    def logits(pixels):
        clip.tensors = dict(frozen)
        for at, a, b in low:
            clip.tensors[at] = frozen[at] + factor * b @ a
        return clip.logits(pixels)

    assert_close(logits_of(method, pictures()), logits(pictures()).detach())
    five_updates(method)
    plain_updates(parameters, logits, adamw(parameters))
    assert_close(logits_of(method, pictures()), logits(pictures()).detach())
    assert (PlainCLIP().logits(pictures()) - logits(pictures())).abs().max() > 0.1


def test_lora_dropout_is_the_methods_own_and_off_in_evaluation():
    method = make("lora", dropout=0.5)
    for parameter in method.parameters():
        if parameter.requires_grad:
            parameter.data.add_(0.1)
    still = logits_of(method, pictures())
    assert torch.equal(still, logits_of(method, pictures()))
    method.train()
    state = torch.get_rng_state()
    first, second = method.encode_images(pictures()), method.encode_images(pictures())
    assert torch.equal(state, torch.get_rng_state())
    assert not torch.equal(first, second)


def test_dropout_keeps_the_mean_and_repeats_a_pass():
    dropout = SeededDropout(0.25, torch.Generator().manual_seed(0))
    dropout.renew()
    kept = dropout(torch.ones(200, 200), 3)
    assert kept.unique().tolist() == pytest.approx([0.0, 4 / 3])
    assert kept.mean().item() == pytest.approx(1, abs=0.02)
    assert torch.equal(kept, dropout(torch.ones(200, 200), 3))
    assert not torch.equal(kept, dropout(torch.ones(200, 200), 4))


def test_recomputed_blocks_meet_the_same_masks():
    gradients = []
    for checkpointing in (False, True):
        method = make("lora", dropout=0.5)
        for tower in (method.backbone.vision, method.backbone.text):
            tower.checkpointing = checkpointing
        method.train()
        method.loss(pictures(), torch.tensor([0, 1, 2, 0]), NAMES).loss.backward()
        gradients.append([p.grad for p in method.parameters() if p.grad is not None])
    assert len(gradients[0]) == 30
    for plain, recomputed in zip(*gradients, strict=True):
        assert torch.allclose(plain, recomputed, atol=1e-6)


@pytest.mark.parametrize(
    "options",
    [{"target_modules": ("nothing",)}, {"rank": 0}, {"blocks": (2, 9)}, {"dropout": 1.0}],
)
def test_lora_refuses_what_is_not_there(options):
    with pytest.raises(UsageError):
        make("lora", **options)


def test_lora_options_choose_where_it_goes():
    method = make("lora", towers="vision", blocks=(2, 3), target_modules=("fc1", "out_proj"))
    names = [name for name in method.learned_names() if name.endswith("lora_a")]
    assert names == [
        f"backbone.vision.blocks.{block}.{layer}.lora_a"
        for block in (1, 2)
        for layer in ("out_proj", "fc1")
    ]


def test_mma_matches_its_equation():
    """The gradient trick is written with detached copies: value s a, gradient that of a."""
    method = make("mma", scale=0.01)
    clip, s = PlainCLIP(), 0.01
    first, last = 0, 2
    weights = {}
    for index in range(first, last):
        weights["shared", index] = method.get_submodule(f"shared.{index}")
        for tower in ("vision", "text"):
            weights[tower, index] = method.get_submodule(f"adapters.{tower}.{index}")
    copies = {}
    for key, module in weights.items():
        copies[key] = {n: p.detach().clone().requires_grad_() for n, p in module.named_parameters()}

    def extra(tower, index, normed):
        if (tower, index) not in copies:
            return 0.0
        own, shared = copies[tower, index], copies["shared", index]
        x = s * normed + (normed - s * normed).detach()
        hidden = F.relu(x @ own["down.weight"].T + own["down.bias"])
        hidden = F.relu(hidden @ shared["weight"].T + shared["bias"])
        out = hidden @ own["up.weight"].T + own["up.bias"]
        return s * out.detach() + out - out.detach()

    clip.extra = extra
    parameters = [tensor for group in copies.values() for tensor in group.values()]
    assert_close(logits_of(method, pictures()), clip.logits(pictures()).detach())
    start = logits_of(method, pictures())
    five_updates(method)
    sgd = torch.optim.SGD(parameters, lr=1e-2, momentum=0.9, weight_decay=5e-4)
    plain_updates(parameters, clip.logits, sgd)
    assert_close(logits_of(method, pictures()), clip.logits(pictures()).detach())
    assert (logits_of(method, pictures()) - start).abs().max() > 1e-3


def test_mma_gradient_scale():
    generator = torch.Generator().manual_seed(0)
    shared = kaiming_linear(4, 4, generator)
    adapter = ParallelAdapter(6, 4, 0.001, generator)
    x = torch.randn(5, 6, generator=generator, requires_grad=True)
    towards = torch.randn(5, 6, generator=generator)

    def gradients(scale):
        adapter.scale = scale
        value = (adapter(x, shared) * towards).sum()
        into_x, *others = torch.autograd.grad(
            value, (x, *adapter.parameters(), *shared.parameters())
        )
        return into_x, others

    into_x, weights = gradients(0.001)
    plain_x, plain_weights = gradients(1.0)
    assert torch.allclose(into_x, 0.001 * plain_x, rtol=1e-4)
    for ours, plain in zip(weights, plain_weights, strict=True):
        assert torch.allclose(ours, plain, rtol=1e-4, atol=1e-7)


def test_mma_refuses_blocks_that_are_not_there():
    with pytest.raises(UsageError, match="end_block"):
        make("mma", end_block=3)


def test_clip_adapter_matches_its_equation():
    method = make("clip_adapter")
    clip = PlainCLIP()
    down, up = (
        method.get_parameter(f"adapter.{name}").detach().clone().requires_grad_()
        for name in ("down", "up")
    )
    texts = F.normalize(clip.texts([f"a photo of a {name}." for name in NAMES]), dim=-1)

    def logits(pixels):
        f = clip.images(pixels)
        adapted = F.relu(F.relu(f @ down.T) @ up.T)
        return clip.scale * F.normalize(0.2 * adapted + 0.8 * f, dim=-1) @ texts.T

    assert_close(logits_of(method, pictures()), logits(pictures()).detach())
    five_updates(method)
    sgd = torch.optim.SGD([down, up], lr=1e-2, momentum=0.9, weight_decay=5e-4)
    plain_updates([down, up], logits, sgd)
    assert_close(logits_of(method, pictures()), logits(pictures()).detach())


@pytest.mark.parametrize("dataset", UPDATES)
def test_published_updates_on_sixteen_shots(dataset):
    classes, mma, coop = UPDATES[dataset]
    facts = facts_of(dataset, classes)
    assert updates("mma", facts) == mma
    assert updates("clip_adapter", facts) == coop
    assert updates("clip_lora", facts) == 8000
    assert updates("lora", facts) == updates("bitfit", facts) == 4800


def test_mma_makes_ten_updates_on_eurosat_with_four_shots():
    assert updates("mma", facts_of("eurosat", 10, "all_to_all", 4)) == 10


def test_published_optimisers():
    lora = get_method("clip_lora").published_training(FACTS)
    assert lora == (TrainConfig(iterations=8000, lr=2e-4, weight_decay=1e-2, lr_min=1e-6),)
    (mma,) = get_method("mma").published_training(facts_of("imagenet", 500))
    assert (mma.optimizer, mma.lr, mma.batch_size, mma.warmup_epochs) == ("sgd", 1.5e-3, 128, 0)
    assert (mma.weight_decay, mma.momentum, mma.drop_last) == (5e-4, 0.9, True)


# Hidden sizes and depths of the image encoder, of the text encoder, and the joint dimension.
SHAPES = {"B/16": (768, 12, 16, 512), "B/32": (768, 12, 32, 512), "L/14": (1024, 24, 14, 768)}
COUNTS = {
    ("layernorm", ()): (61440, 61440, 135168),
    ("layernorm", (("norms", "all"),)): (65536, 65536, 140800),
    ("bitfit", ()): (124928, 124928, 273152),
    ("bitfit", (("attention_biases", True),)): (171008, 171008, None),
    ("lora", ()): (184320, 184320, 405504),
    ("clip_lora", ()): (184320, 184320, 405504),
    ("mma", ()): (674560, 674560, 940800),
    ("clip_adapter", ()): (131072, 131072, 294912),
}


def meta_backbone(shape):
    """The real model's shapes without its memory."""
    width, depth, patch, dim = SHAPES[shape]
    text = 768 if shape == "L/14" else 512
    config = CLIPConfig(
        text_config={"hidden_size": text, "intermediate_size": 4 * text, "projection_dim": dim},
        vision_config={
            "hidden_size": width,
            "intermediate_size": 4 * width,
            "num_hidden_layers": depth,
            "num_attention_heads": width // 64,
            "patch_size": patch,
        },
        projection_dim=dim,
    )
    with torch.device("meta"):
        model = CLIPModel(config)
    return Backbone.from_model(model, None, SPEC, name=f"ViT-{shape}")


@pytest.mark.parametrize("shape", SHAPES)
def test_published_parameter_counts(shape):
    for (name, options), counts in COUNTS.items():
        expected = counts[list(SHAPES).index(shape)]
        method = get_method(name)
        config = dataclasses.replace(method.Config(), **dict(options))
        built = method(meta_backbone(shape), config)
        count = sum(p.numel() for p in built.parameters() if p.requires_grad)
        assert expected is None or count == expected, (name, options)
