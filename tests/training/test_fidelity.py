"""Against the published algorithm executed literally: same batches, same losses, same logits."""

import itertools

import pytest
import torch
from conftest import SPEC, VOCABULARY, WordTokenizer, make_backbone, make_support, tiny_clip
from literal import (
    embed_images,
    embed_text,
    first_stage,
    second_stage,
    start_classifier,
    tokens,
)
from plain_clip import pooled
from torch.nn import functional as F
from transformers import CLIPModel
from written_out_clip import FixedSupport

from shotfit.backbone import Backbone
from shotfit.errors import DataError
from shotfit.methods.layernorm import LayerNorm
from shotfit.methods.linear import LinearClassifier
from shotfit.methods.published import TaskFacts, TrainConfig
from shotfit.training.loop import learning_rate, total_iterations, train, updates_per_epoch

NAMES = ("red", "dark green", "a very long blue name")
TOLERANCE = 1e-5


def literal_tokens(model, names):
    end = VOCABULARY - 1
    return tokens(WordTokenizer(), names, model.config.text_config.max_position_embeddings, end)


def relative(ours, theirs):
    ours, theirs = torch.as_tensor(ours), torch.as_tensor(theirs)
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()


@pytest.fixture
def batches(task):
    """Thirty fixed augmented batches."""
    return list(itertools.islice(make_support(task).batches(8), 30))


def test_both_stages_follow_the_published_algorithm(batches):
    model = tiny_clip()
    ids = literal_tokens(model, NAMES)
    theirs = list(first_stage(model, ids, batches, 20))
    classifier = start_classifier(model, ids)
    theirs += list(second_stage(model, classifier, batches[20:], 10))

    support = FixedSupport(batches, NAMES, images=12)
    method = LayerNorm(make_backbone())
    ours = [step.loss for step in train(method, support, TrainConfig(iterations=20))]
    outer = LinearClassifier(method)
    outer.setup(support)
    rest = FixedSupport(batches[20:], NAMES, images=12)
    ours += [step.loss for step in train(outer, rest, TrainConfig(iterations=10))]

    for mine, reference in zip(ours, theirs, strict=True):
        assert mine == pytest.approx(reference, rel=TOLERANCE)
    pixels = batches[0][0]
    outer.eval()
    with torch.no_grad():
        base = outer(pixels, outer.encode_classes(NAMES))
        novel = outer(pixels, outer.encode_classes(("purple", "yellow")))
        images = model.logit_scale.exp() * embed_images(model, pixels)
        assert relative(base, images @ F.normalize(classifier, dim=-1).T) < TOLERANCE
        unseen = embed_text(model, literal_tokens(model, ("purple", "yellow")))
        assert relative(novel, images @ unseen.T) < TOLERANCE


@pytest.mark.parametrize(
    "names",
    [
        ("red",),
        ("red", "red"),
        ("red", "blue"),
        ("a photo", "a", "a photo of a cat and a dog", "x"),
        ("red", "a very long blue name", "red"),
    ],
)
def test_text_embeddings_equal_padded_ones(names):
    model = tiny_clip()
    expected = pooled(model.get_text_features(input_ids=literal_tokens(model, names)))
    backbone = make_backbone()
    ours = backbone.encode_text([f"a photo of a {name}." for name in names])
    assert relative(ours, expected) < TOLERANCE


def test_image_embeddings_equal_transformers():
    pixels = torch.randn(3, 3, SPEC.size, SPEC.size)
    expected = pooled(tiny_clip().get_image_features(pixel_values=pixels))
    assert relative(make_backbone().encode_image(pixels), expected) < TOLERANCE


def test_text_gradients_equal_padded_ones():
    """The shared prefix is computed once, with the gradient of every prompt that uses it."""
    model = tiny_clip()
    names = ("red", "dark blue", "green")
    embed_text(model, literal_tokens(model, names))[:, 0].sum().backward()
    backbone = make_backbone().requires_grad_(True)
    prompts = [f"a photo of a {name}." for name in names]
    F.normalize(backbone.encode_text(prompts), dim=-1)[:, 0].sum().backward()
    for ours, layer in zip(backbone.text.blocks, model.text_model.encoder.layers, strict=True):
        for mine, theirs in (
            ("norm1", "layer_norm1"),
            ("k_proj", "self_attn.k_proj"),
            ("fc2", "mlp.fc2"),
        ):
            weight = ours.get_parameter(f"{mine}.weight")
            assert relative(weight.grad, layer.get_parameter(f"{theirs}.weight").grad) < 1e-4


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        # MaPLe: five epochs, the first a warm-up, after which the wave starts from its top.
        (
            TrainConfig(
                optimizer="sgd",
                lr=3.5e-3,
                lr_min=0,
                epochs=5,
                batch_size=4,
                warmup_epochs=1,
                schedule="cosine_per_epoch",
            ),
            [1e-5, 3.5e-3, 3.166e-3, 2.291e-3, 1.209e-3],
        ),
        # MMA: no warm-up.
        (
            TrainConfig(
                optimizer="sgd",
                lr=1.5e-3,
                lr_min=0,
                epochs=5,
                batch_size=4,
                schedule="cosine_per_epoch",
            ),
            [1.5e-3, 1.357e-3, 9.82e-4, 5.18e-4, 1.43e-4],
        ),
    ],
)
def test_learning_rates_of_dassl(config, expected):
    per_epoch = updates_per_epoch(config, 8)
    total = total_iterations(config, 8)
    rates = [learning_rate(config, 2 * epoch, total, per_epoch) for epoch in range(5)]
    assert rates == pytest.approx(expected, rel=2e-3)


def test_coop_last_epoch():
    config = TrainConfig(
        lr=2e-3, lr_min=0, epochs=200, schedule="cosine_per_epoch", warmup_epochs=1
    )
    assert learning_rate(config, 199, 200, 1) == pytest.approx(4.93e-7, rel=1e-2)


def test_a_linear_warm_up_comes_before_the_whole_wave():
    config = TrainConfig(iterations=400, lr=1e-3, lr_min=0, warmup_iterations=50)
    rates = [learning_rate(config, n, 400, 1) for n in (0, 1, 25, 49, 50, 250, 399)]
    # The first by itself, then a 50th of the top more each, then (1 + cos(pi (n - 50) / 400)) / 2.
    expected = [1e-5, 2e-5, 5e-4, 9.8e-4, 1e-3, 5e-4, 3.958e-5]
    assert rates == pytest.approx(expected, rel=1e-3)


def test_cosine_is_that_of_torch():
    config = TrainConfig(iterations=50)
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.AdamW([parameter], lr=config.lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 50, eta_min=config.lr_min)
    for iteration in range(50):
        assert learning_rate(config, iteration, 50, 1) == pytest.approx(
            optimizer.param_groups[0]["lr"], rel=1e-9
        )
        optimizer.step()
        schedule.step()


@pytest.mark.parametrize(
    ("drop_last", "images", "batch", "updates"),
    # EuroSAT's 80 base images at 16 shots: CoOp makes 2 updates an epoch, 2SFS 3, KgCoOp 1.
    [(True, 80, 32, 2), (False, 80, 32, 3), (True, 80, 128, 1)],
)
def test_updates_per_epoch(drop_last, images, batch, updates):
    config = TrainConfig(batch_size=batch, drop_last=drop_last)
    assert updates_per_epoch(config, images) == updates


@pytest.mark.parametrize(
    ("vision", "text", "patch", "blocks", "all_norms"),
    [
        ((768, 12, 12, 3072), (512, 12, 8, 2048), 16, 61_440, 65_536),
        ((768, 12, 12, 3072), (512, 12, 8, 2048), 32, 61_440, 65_536),
        ((1024, 24, 16, 4096), (768, 12, 12, 3072), 14, 135_168, 140_800),
    ],
)
def test_published_parameter_counts(vision, text, patch, blocks, all_norms):
    from shotfit.methods.layernorm import LayerNormConfig

    for config, expected in (
        (LayerNormConfig(norms="blocks"), blocks),
        (LayerNormConfig(norms="all"), all_norms),
    ):
        method = LayerNorm(published_shape(vision, text, patch), config)
        trained = sum(p.numel() for p in method.parameters() if p.requires_grad)
        assert trained == expected


def published_shape(vision, text, patch):
    """A backbone of a published size whose weights take no memory."""
    from transformers import CLIPConfig

    def tower(width, layers, heads, hidden):
        return {
            "hidden_size": width,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "intermediate_size": hidden,
        }

    config = CLIPConfig(
        vision_config={**tower(*vision), "patch_size": patch},
        text_config=tower(*text),
        projection_dim=text[0],
    )
    with torch.device("meta"):
        model = CLIPModel(config)
    return Backbone.from_model(model, WordTokenizer(), SPEC)


@pytest.mark.parametrize("facts_shots", [1, 4, 16])
def test_two_stage_budget(facts_shots):
    from shotfit.plan import plan
    from shotfit.recipe import two_stage

    facts = TaskFacts("any", "base_to_novel", facts_shots, 5, 5 * facts_shots)
    first, second = plan(two_stage(), facts)
    assert first[2][0].iterations == 180 * facts_shots
    assert second[2][0].iterations == 120 * facts_shots


def test_a_tokenizer_of_another_model_is_noticed():
    backbone = make_backbone()
    plain = backbone.tokenizer
    backbone.tokenizer = lambda texts: {
        "input_ids": [[*ids[:1], VOCABULARY, *ids[1:]] for ids in plain(texts)["input_ids"]]
    }
    with pytest.raises(DataError, match=f"another model's: .* token {VOCABULARY}, .* {VOCABULARY}"):
        backbone.encode_text(["a red square"])
