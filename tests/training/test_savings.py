"""Exact savings: less time or memory, and the same numbers as the plain way."""

import dataclasses
import itertools
from functools import partial

import pytest
import torch
from conftest import make_backbone, make_support

from shotfit.backbone import model as backbone_module
from shotfit.backbone.activation import quick_gelu
from shotfit.errors import UsageError
from shotfit.layers.lora import SeededDropout
from shotfit.methods import get_method, list_methods
from shotfit.methods.linear import LinearClassifier, LinearConfig
from shotfit.methods.published import TaskFacts, TrainConfig
from shotfit.training.execution import check_compiler, micro_batch
from shotfit.training.loop import train

FACTS = TaskFacts("shapes", "base_to_novel", shots=4, classes=3, images=12)
TRAINED = [name for name in list_methods() if get_method(name).published_training(FACTS)]
TOLERANCE = 1e-5
FREE_MEMORY = "shotfit.training.execution.free_memory_bytes"


def relative(ours, theirs):
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()


def test_cached_views_are_dropped_as_asked_and_freed_at_the_end(support):
    classifier = LinearClassifier(get_method("layernorm")(make_backbone()), LinearConfig(views=2))
    classifier.setup(support)

    def sizes(batch_size, drop_last):
        batches = classifier.batches(support, batch_size, drop_last)
        return [len(labels) for _, labels in itertools.islice(batches, 4)]

    assert sizes(5, drop_last=False) == [5, 5, 2, 5]
    assert sizes(5, drop_last=True) == [5, 5, 5, 5]
    assert sizes(64, drop_last=True) == [12, 12, 12, 12]
    classifier.finish(support, None)
    assert classifier.features is None


def test_views_are_passes_in_order_each_image_once_a_view(task, monkeypatch):
    method = get_method("zero_shot")(make_backbone())
    passes = []
    support = make_support(task)
    for _ in range(3):
        batches = support.augmented_once(crop_scale=(0.5, 1.0))
        passes.append(torch.cat([method.encode_images(pixels) for pixels, _ in batches]))
    monkeypatch.setattr(type(method), "crop_scale", (0.5, 1.0))
    assert torch.equal(method.encode_views(make_support(task), 3), torch.stack(passes))
    seen = []
    views = method.encode_views(support, 2, lambda pixels: seen.append(pixels) or pixels.mean(1))
    assert views.shape == (2, len(support), 32, 32)
    assert sum(map(len, seen)) == 2 * len(support)


def test_quick_gelu_and_its_gradient():
    x = torch.linspace(-30, 30, 1001, dtype=torch.float64, requires_grad=True)
    weight = torch.linspace(-1, 1, 1001, dtype=torch.float64)
    plain = x * torch.sigmoid(1.702 * x)
    (expected,) = torch.autograd.grad((plain * weight).sum(), x)
    (ours,) = torch.autograd.grad((quick_gelu(x) * weight).sum(), x)
    assert relative(quick_gelu(x), plain) < 1e-12
    assert relative(quick_gelu(x.detach()), plain) < 1e-12
    assert relative(ours, expected) < 1e-12


def kept_bytes(function, parameters=()):
    """Bytes that autograd keeps of what `function` computes, each storage once, without weights."""
    weights = {p.untyped_storage().data_ptr() for p in parameters}
    storages = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = function()
    return sum(storages.values()), result


def test_quick_gelu_keeps_its_input_alone():
    x = torch.randn(64, 64, requires_grad=True)
    ours, _ = kept_bytes(lambda: quick_gelu(x))
    plain, _ = kept_bytes(lambda: x * torch.sigmoid(1.702 * x))
    assert ours == x.numel() * 4
    assert plain >= 2 * ours


def text_gradients(names):
    # In float64, so that only a wrong sum is an error and no other order of adding.
    backbone = make_backbone().double().requires_grad_(True)
    prompts = [f"a photo of a {name}." for name in names]
    kept, embeds = kept_bytes(lambda: backbone.encode_text(prompts), backbone.parameters())
    (embeds * torch.linspace(-1, 1, embeds.numel()).view_as(embeds)).sum().backward()
    gradients = [p.grad for p in backbone.text.blocks.parameters()]
    return kept, embeds.detach(), gradients


def test_text_in_chunks_is_the_same_in_bounded_memory(monkeypatch):
    names = [f"thing {number} {'long ' * (number % 3)}" for number in range(60)]
    whole_bytes, whole, expected = text_gradients(names)
    # Room for about a third of these prompts, five in a chunk.
    room = 20 * 6 * make_backbone().text.token_bytes
    monkeypatch.setattr(backbone_module, "TEXT_BYTES", room)
    few_bytes, _, _ = text_gradients(names[:30])
    chunked_bytes, chunked, gradients = text_gradients(names)
    assert relative(chunked, whole) < 1e-12
    for ours, theirs in zip(gradients, expected, strict=True):
        # A key's bias moves all scores of a softmax alike: its gradient is rounding alone.
        assert (ours - theirs).abs().max() < 1e-11
    assert chunked_bytes < 0.7 * whole_bytes
    assert chunked_bytes < 1.2 * few_bytes
    with torch.no_grad():
        prompts = [f"a photo of a {name}." for name in names]
        assert relative(make_backbone().double().encode_text(prompts), whole) < 1e-12


def test_chunks_count_every_group_of_contexts(monkeypatch):
    backbone = make_backbone()
    prompts = [f"a photo of a thing {number}." for number in range(40)]
    groups = torch.randn(4, 3, backbone.text.width)
    with torch.no_grad():
        whole = backbone.encode_text(prompts, groups)
    room = 400 * backbone.text.token_bytes
    monkeypatch.setattr(backbone_module, "TEXT_BYTES", room)
    backbone._prepared.clear()
    forward, kept = backbone.text.forward, []

    def watched(prompts, context, deep):
        kept.append(len(context) * prompts.ids.numel() * backbone.text.token_bytes)
        return forward(prompts, context, deep)

    monkeypatch.setattr(backbone.text, "forward", watched)
    with torch.no_grad():
        chunked = backbone.encode_text(prompts, groups)
        assert max(kept) <= room / 4
        few = len(kept)
        kept.clear()
        backbone.encode_text(prompts, groups[:1])
    # One group has room for more prompts at once, and its chunks are not those of four.
    assert 1 < len(kept) < few
    assert relative(chunked, whole) < TOLERANCE


def dropped_gradients(names, monkeypatch):
    """Gradients of a text pass with LoRA's dropout, and the seeds of the first layer's masks."""
    generator = torch.Generator().manual_seed(1)
    method = get_method("lora")(make_backbone(), generator=generator).train()
    call, seeds = SeededDropout.__call__, []

    def watched(self, x, layer):
        found = call(self, x, layer)
        if layer == 0:
            seeds.append(self._on_device[x.device].initial_seed())
        return found

    with monkeypatch.context() as patch:
        patch.setattr(SeededDropout, "__call__", watched)
        weight = method.encode_classes(names).weight
        (weight * torch.linspace(-1, 1, weight.numel()).view_as(weight)).sum().backward()
    text = method.backbone.text.blocks.named_parameters()
    return [p.grad for _, p in text if p.requires_grad], seeds


def test_chunks_have_masks_of_their_own_also_when_computed_again(monkeypatch):
    names = [f"thing {number}" for number in range(20)]
    _, (whole,) = dropped_gradients(names, monkeypatch)
    room = 80 * make_backbone().text.token_bytes
    monkeypatch.setattr(backbone_module, "TEXT_BYTES", room)
    again, seeds = dropped_gradients(names, monkeypatch)
    monkeypatch.setattr(backbone_module, "recomputed", lambda function, *a: function(*a))
    once, chunks = dropped_gradients(names, monkeypatch)
    # The first chunk's are those of a pass in one.
    assert chunks[0] == whole
    assert len(chunks) == len(set(chunks)) > 2
    assert len(seeds) > len(chunks)
    assert set(seeds) == set(chunks)
    for ours, theirs in zip(again, once, strict=True):
        assert torch.equal(ours, theirs)


def curve(name, task, **changes):
    method = get_method(name)(
        make_backbone(),
        get_method(name).published_config(FACTS),
        generator=torch.Generator().manual_seed(1),
    )
    support = make_support(task)
    method.setup(support)
    losses = []
    for phase, training in enumerate(get_method(name).published_training(FACTS)):
        method.begin_round(phase)
        training = dataclasses.replace(training, iterations=3, epochs=None, batch_size=8, **changes)
        losses += [(step.loss, step.accuracy) for step in train(method, support, training)]
    return torch.tensor(losses)


@pytest.mark.parametrize("name", TRAINED)
def test_recomputation_gives_the_same_curve(name, task):
    assert relative(curve(name, task, checkpointing=True), curve(name, task)) < TOLERANCE


@pytest.mark.parametrize("name", TRAINED)
def test_micro_batches_add_up_to_the_batch(name, task, monkeypatch):
    # A mask is drawn per forward pass, so that dropout cannot be the same in parts.
    monkeypatch.setattr(SeededDropout, "__call__", lambda self, x, layer: x)
    if not get_method(name).additive_loss:
        with pytest.raises(UsageError, match="whole batch"):
            curve(name, task, micro_batch=3)
        return
    assert relative(curve(name, task, micro_batch=3), curve(name, task)) < TOLERANCE


def test_auto_takes_what_free_memory_holds(monkeypatch, backbone):
    method = get_method("layernorm")(backbone)
    config = TrainConfig(micro_batch="auto")
    image = backbone.vision.position_embedding.shape[0] * backbone.vision.token_bytes
    for free, expected in ((0, 1), (10 * image, 5), (1000 * image, 32)):
        monkeypatch.setattr(FREE_MEMORY, lambda device, free=free: free)
        assert micro_batch(method, config) == expected
    # PLOT++ has a pass for each of its visual prompts.
    plot = get_method("plot_pp")(make_backbone())
    monkeypatch.setattr(FREE_MEMORY, lambda device: 40 * image)
    assert micro_batch(plot, config) == 5
    with pytest.raises(UsageError, match="micro_batch"):
        micro_batch(method, TrainConfig(micro_batch=0))


def test_estimate_of_kept_bytes_is_near_what_is_kept():
    """What "auto" and the text tower plan with, against what autograd keeps."""
    backbone = make_backbone(vision_blocks=6)
    method = get_method("layernorm")(backbone)
    pixels = torch.randn(4, 3, 32, 32)
    kept, _ = kept_bytes(lambda: method.encode_images(pixels), method.parameters())
    tokens = 4 * backbone.vision.position_embedding.shape[0]
    # The last block keeps less, since only one token of an image passes it whole.
    assert 0.75 < kept / (tokens * backbone.vision.token_bytes) < 1.1


def test_compiling_without_a_compiler_says_what_to_do(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(UsageError, match=r"g\+\+"):
        check_compiler(torch.device("cpu"))


def test_fp16_gives_up_when_no_scale_is_small_enough(task, monkeypatch):
    method = get_method("layernorm")(make_backbone())
    support = make_support(task)
    calls = itertools.count()
    loss = type(method).loss

    def overflowing(self, *arguments):
        next(calls)
        output = loss(self, *arguments)
        return dataclasses.replace(output, loss=output.loss * float("inf"))

    monkeypatch.setattr(type(method), "loss", overflowing)
    with pytest.raises(FloatingPointError, match="any scale"):
        list(train(method, support, TrainConfig(iterations=2, precision="fp16")))
    assert next(calls) < 60


def test_fp16_is_refused_where_its_scale_does_not_reach_the_gradients(task):
    with pytest.raises(UsageError, match="ProGrad.*bf16"):
        curve("prograd", task, precision="fp16")
    curve("prograd", task, precision="bf16")


def test_fp16_leaves_out_a_step_that_overflows(task, monkeypatch):
    """As if it had not been: neither counted nor scheduled, and no weight has moved."""
    support = make_support(task)
    batch = next(support.batches(8))
    kind = get_method("layernorm")
    loss = kind.loss
    monkeypatch.setattr(kind, "batches", lambda *_: itertools.repeat(batch))
    # Without an overflow, whatever the scale that it starts at.
    monkeypatch.setattr("torch.amp.GradScaler", partial(torch.amp.GradScaler, init_scale=64.0))

    def trained(overflowing):
        calls = itertools.count()

        def disturbed(self, *arguments):
            output = loss(self, *arguments)
            if next(calls) in overflowing:
                output = dataclasses.replace(output, loss=output.loss * float("inf"))
            return output

        monkeypatch.setattr(kind, "loss", disturbed)
        method = kind(make_backbone())
        config = TrainConfig(iterations=4, precision="fp16", lr=1e-2)
        steps = list(train(method, support, config))
        return steps, method.learned_state(), next(calls)

    plain, expected, calls = trained(())
    assert (len(plain), calls) == (4, 4)
    steps, weights, calls = trained((0, 2))
    assert calls == 6
    assert [(s.iteration, s.lr) for s in steps] == [(s.iteration, s.lr) for s in plain]
    assert [s.loss for s in steps] == pytest.approx([s.loss for s in plain], rel=1e-3)
    start = kind(make_backbone()).learned_state()
    moved = max((expected[name] - start[name]).abs().max() for name in expected)
    assert moved > 1e-2
    for name, value in weights.items():  # one of four steps more or less would be a quarter
        assert (value - expected[name]).abs().max() < 0.1 * moved, name


def embeds_and_gradients(backbone, cast):
    """Image and text embeddings under bf16 autocast, and the gradients of the LayerNorms."""
    pixels = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    towers = (backbone.vision, backbone.text)
    for tower in towers:
        for block in tower.blocks:
            block.norm1.requires_grad_(True)
            block.norm2.requires_grad_(True)
            block.cache_cast(torch.bfloat16 if cast else None)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        images = backbone.encode_image(pixels)
        texts = backbone.encode_text(["a photo of a red.", "a photo of a long blue thing."])
    (images.float().sum() + texts.float().square().sum()).backward()
    gradients = [p.grad for tower in towers for p in tower.blocks.parameters() if p.requires_grad]
    return [images.detach(), texts.detach(), *gradients]


def test_weights_kept_in_half_precision_are_what_autocast_makes_of_them():
    plain = embeds_and_gradients(make_backbone(), cast=False)
    kept = embeds_and_gradients(make_backbone(), cast=True)
    for ours, theirs in zip(kept, plain, strict=True):
        # Queries, keys and values as one product add their gradients in fp32, not in bf16.
        assert relative(ours.float(), theirs.float()) < 2e-2
    exact = embeds_and_gradients(make_backbone(), cast=True)
    assert all(torch.equal(a, b) for a, b in zip(kept, exact, strict=True))


def test_training_in_bf16_keeps_no_weights_and_evaluates_in_fp32(task):
    method = get_method("layernorm")(make_backbone())
    support = make_support(task)
    pixels = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    config = TrainConfig(iterations=3, precision="bf16", lr=0.0, lr_min=0.0, weight_decay=0.0)
    before = method.encode_images(pixels)
    for _ in train(method, support, config):
        # Nothing was trained, so what is seen between two steps must be the fp32 embedding.
        assert torch.equal(method.encode_images(pixels), before)
    assert not any(block._cast for block in method.backbone.vision.blocks)
    assert not any(block._cast for block in method.backbone.text.blocks)
