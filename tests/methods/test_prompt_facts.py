"""Published facts of the prompt methods: parameters, updates, hand-written prompts."""

import pytest
import torch
from conftest import VOCABULARY, WordTokenizer, make_backbone
from published_shapes import trains_and_scores_shapes, vit_b16, vit_l14
from written_out_clip import FixedSupport

from shotfit.config import override
from shotfit.data.benchmark.facts import benchmark_key
from shotfit.data.benchmark.templates import dataset_templates
from shotfit.data.task import Setting
from shotfit.errors import DataError, UsageError
from shotfit.layers.prompt_tokens import phrase_embeddings, text_context
from shotfit.methods import get_method
from shotfit.methods.plot_pp import PLOT
from shotfit.methods.prograd import ProGrad
from shotfit.methods.published import TaskFacts
from shotfit.plan import plan
from shotfit.recipe import Overrides, one_stage, two_stage
from shotfit.training.loop import total_iterations

PROMPTS = ("coop", "cocoop", "kgcoop", "prograd", "ivlp", "maple", "plot_pp")


def parameters(backbone, name, dataset="caltech101", setting: Setting = "base_to_novel", **options):
    kind = get_method(name)
    facts = TaskFacts(dataset, setting, shots=16, classes=50, images=800)
    method = kind(backbone, override(kind.published_config(facts), options))
    return sum(p.numel() for p in method.parameters() if p.requires_grad)


COUNTS = [
    ("coop", {}, 2048, 3072),
    ("coop", {"setting": "all_to_all"}, 8192, 12288),
    ("coop", {"n_ctx": 2}, 1024, 1536),
    ("coop", {"n_ctx": 8, "ctx_init": None}, 4096, 6144),
    # The hidden layer has 768 / 16 = 48 units on ViT-L/14.
    ("cocoop", {}, 35360, 3072 + 768 * 48 + 48 + 48 * 768 + 768),
    ("kgcoop", {}, 2048, 3072),
    ("prograd", {}, 8192, 12288),
    ("maple", {}, 3555072, 2 * 768 + 8 * 2 * 768 + 9 * (768 * 1024 + 1024)),
    ("ivlp", {}, 46080, 9 * 4 * (768 + 1024)),
    ("ivlp", {"paper": "maple"}, 30720, 12 * 2 * (768 + 1024)),
    ("plot_pp", {}, 14336, 4 * (4 * 768 + 2 * 1024)),
    ("plot_pp", {"dataset": "dtd"}, 16384, 4 * (5 * 768 + 2 * 1024)),
    ("plot_pp", {"dataset": "ucf101"}, 18432, 4 * (6 * 768 + 2 * 1024)),
]


@pytest.mark.parametrize(("name", "options", "base", "large"), COUNTS)
def test_trainable_parameters(name, options, base, large):
    assert parameters(vit_b16(), name, **options) == base
    assert parameters(vit_l14(), name, **options) == large


def test_more_tokens_than_the_phrase_has_are_refused():
    with pytest.raises(UsageError, match="cannot start 16 learned ones.*ctx_init=none"):
        parameters(vit_b16(), "coop", n_ctx=16)


@pytest.mark.parametrize("name", PROMPTS)
def test_large_models_train_and_score_on_their_own_device(name, monkeypatch):
    # Shapes have no values for Sinkhorn to stop at.
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    kind = get_method(name)
    facts = TaskFacts("dtd", "all_to_all", shots=4, classes=2, images=8)
    method = kind(vit_l14(), kind.published_config(facts))
    names = ("red", "light blue")
    method.setup(FixedSupport((), names, images=0))
    trains_and_scores_shapes(method, names)


# Base-to-novel, 16 shots: base classes, then the updates of CoOp, CoCoOp, KgCoOp, MaPLe, IVLP.
UPDATES = {
    "imagenet": (500, 12500, 80000, 6200, 10000, 40000),
    "caltech101": (50, 5000, 8000, 600, 1000, 4000),
    "oxford_pets": (19, 1800, 3040, 200, 380, 1520),
    "stanford_cars": (98, 9800, 15680, 1200, 1960, 7840),
    "oxford_flowers": (51, 5000, 8160, 600, 1020, 4080),
    "food101": (51, 5000, 8160, 600, 1020, 4080),
    "fgvc_aircraft": (50, 5000, 8000, 600, 1000, 4000),
    "sun397": (199, 19800, 31840, 2400, 3980, 15920),
    "dtd": (24, 2400, 3840, 300, 480, 1920),
    "eurosat": (5, 400, 800, 100, 100, 400),
    "ucf101": (51, 5000, 8160, 600, 1020, 4080),
}


def updates(name, facts):
    trainings = get_method(name).published_training(facts)
    return [total_iterations(training, facts.images) for training in trainings]


@pytest.mark.parametrize("dataset", UPDATES)
def test_update_counts(dataset):
    classes, *expected = UPDATES[dataset]
    facts = TaskFacts(dataset, "base_to_novel", 16, classes, 16 * classes)
    names = ("coop", "cocoop", "kgcoop", "maple", "ivlp")
    assert [updates(name, facts) for name in names] == [[count] for count in expected]
    all_classes = TaskFacts(dataset, "all_to_all", 16, classes, 16 * classes)
    assert updates("plot_pp", all_classes) == updates("coop", all_classes) * 2


@pytest.mark.parametrize(
    ("shots", "epochs"), [(1, 50), (2, 100), (4, 100), (8, 200), (16, 200), (32, 200)]
)
def test_epochs_by_shots(shots, epochs):
    for name in ("coop", "prograd", "plot_pp"):
        for dataset, expected in (("dtd", epochs), ("ImageNet", 50)):
            facts = TaskFacts(dataset, "all_to_all", shots, 10, 10 * shots)
            trainings = get_method(name).published_training(facts)
            assert {training.epochs for training in trainings} == {expected}


def test_trainer_facts():
    facts = TaskFacts("dtd", "base_to_novel", 16, 24, 384)
    facts_of = {name: get_method(name).published_training(facts)[0] for name in PROMPTS}
    rates = {name: (t.lr, t.batch_size) for name, t in facts_of.items()}
    assert rates == {
        "coop": (2e-3, 32),
        "cocoop": (2e-3, 1),
        "kgcoop": (2e-3, 128),
        "prograd": (2e-3, 32),
        "ivlp": (2.5e-3, 4),
        "maple": (3.5e-3, 4),
        "plot_pp": (2e-3, 32),
    }
    for training in facts_of.values():
        assert training.optimizer == "sgd"
        assert training.weight_decay == 5e-4
        assert training.drop_last
        assert training.warmup_epochs == 1
        assert training.schedule == "cosine_per_epoch"


def test_maples_own_ivlp_is_one_option_away():
    facts = TaskFacts("dtd", "base_to_novel", 16, 24, 384)
    maple = Overrides(options={"paper": "maple"})
    _, config, (training,) = plan(maple.applied(one_stage("ivlp")), facts)[0]
    assert config.paper == "maple"
    assert (training.lr, training.epochs, training.batch_size) == (3.5e-3, 5, 4)
    default = plan(one_stage("ivlp"), facts)[0][2][0]
    assert (default.lr, default.epochs) == (2.5e-3, 20)
    # As a first stage it has 0.3 of its 480 updates, in a shared budget no epochs at all.
    (_, _, (first,)), (_, _, (second,)) = plan(maple.applied(two_stage("ivlp")), facts)
    assert (first.lr, first.iterations, first.epochs) == (3.5e-3, 144, None)
    assert second.lr == 2e-4
    shared = plan(maple.applied(one_stage("ivlp", budget="shared")), facts)[0][2][0]
    assert (shared.lr, shared.iterations) == (3.5e-3, 4800)


def test_hand_written_prompts():
    assert benchmark_key("OxfordPets") == benchmark_key("oxford_pets") == "oxford_pets"
    assert dataset_templates("my photos") is None
    assert benchmark_key("my photos") == ""
    textures = dataset_templates("DescribableTextures")
    assert textures is not None and textures.prograd == "a texture of {}."
    for dataset in UPDATES:
        prompts = dataset_templates(dataset)
        assert prompts is not None
        assert prompts.prograd.endswith("{}."), "the class name must come last"
        assert prompts.kgcoop.count("{}") == 1
        assert len(prompts.plot) == 4
    facts = TaskFacts("dtd", "base_to_novel", 16, 24, 384)
    kgcoop = get_method("kgcoop").published_config(facts)
    assert kgcoop.target_template == "a photo of a {}, a type of texture."
    assert kgcoop.weight == 8.0
    lambdas = {
        (dataset, shots): get_method("prograd")
        .published_config(TaskFacts(dataset, "all_to_all", shots, 5, 5 * shots))
        .strength
        for dataset in ("eurosat", "oxford_pets")
        for shots in (4, 8)
    }
    expected = {("eurosat", 4): 1.0, ("eurosat", 8): 0.8}
    assert lambdas == expected | {("oxford_pets", 4): 1.0, ("oxford_pets", 8): 1.0}


def test_prograd_learns_a_token_for_each_word_and_keeps_the_last_of_pets():
    facts = TaskFacts("oxford_pets", "base_to_novel", 16, 19, 304)
    method = ProGrad(make_backbone(), ProGrad.published_config(facts))
    phrase = phrase_embeddings(method.backbone, "a type of pet, a photo of a")
    assert len(phrase) == 9
    assert torch.equal(method.context.ctx[:8], torch.zeros(8, 48))
    assert torch.equal(method.context.ctx[8:], phrase[:8])
    ids = method.backbone.tokenize(method.context.texts(["cat"]))[0]
    article = method.backbone.tokenize(["a"])[0][1]
    # Start token, sixteen learned ones, the fixed article, the name, full stop, end token.
    assert len(ids) == 21
    assert ids[17] == article


def test_plot_pads_a_short_phrase_instead_of_eating_the_name():
    facts = TaskFacts("imagenet", "base_to_novel", 16, 500, 8000)
    method = PLOT(make_backbone(), PLOT.published_config(facts))
    end = method.backbone.text.token_embedding.weight[VOCABULARY - 1]
    assert torch.equal(method.ctx[2, 3], end)
    assert torch.equal(method.ctx[2, :3], phrase_embeddings(method.backbone, "this is a"))
    with torch.no_grad():
        views = method.encode_classes(["red", "blue"]).per_prompt
    assert views is not None and views.shape == (4, 2, method.backbone.dim)
    assert not torch.allclose(views[2, 0], views[2, 1])


def test_plot_keeps_the_tail_of_a_long_phrase():
    kind = get_method("plot_pp")
    long = kind(make_backbone(), kind.Config(phrases=("a photo of a", "one good photo of a")))
    short = kind(make_backbone(), kind.Config(phrases=("a photo of a", "one good photo of")))
    with torch.no_grad():
        one, other = (method.encode_classes(["red"]).per_prompt for method in (long, short))
    assert one is not None and other is not None
    assert torch.allclose(one[0], other[0], atol=1e-6)
    assert not torch.allclose(one[1], other[1], atol=1e-3)


class CharacterTokenizer(WordTokenizer):
    """Two tokens for every word."""

    def _ids(self, text):
        ids = super()._ids(text)
        return [ids[0], *(token for one in ids[1:-1] for token in (one, one)), ids[-1]]


def test_a_placeholder_of_two_tokens_is_refused():
    backbone = make_backbone()
    backbone.tokenizer = CharacterTokenizer()
    generator = torch.Generator().manual_seed(0)
    with pytest.raises(UsageError, match="are 8 tokens"):
        text_context(backbone, None, 4, generator)
    assert len(text_context(backbone, "a photo", None, generator).ctx) == 4


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("maple", {"n_ctx": 5}, "4 tokens and cannot start 5"),
        ("coop", {"n_ctx": 0}, "n_ctx must lie between 1 and 1024"),
        ("ivlp", {"prompt_depth": 0}, "prompt_depth must lie between 1 and 1024"),
        ("prograd", {"n_ctx": 3}, "n_ctx must be at least 4"),
        ("plot_pp", {"phrases": ()}, "at least one phrase"),
    ],
)
def test_options_that_make_no_sense(name, options, message):
    kind = get_method(name)
    with pytest.raises(UsageError, match=message):
        kind(make_backbone(), override(kind.Config(), options))


@pytest.mark.parametrize("name", PROMPTS)
def test_a_prompt_longer_than_the_text_tower_reads(name):
    method = get_method(name)(make_backbone())
    with pytest.raises(DataError, match="this model reads 77"):
        method.encode_classes(["word " * 90])


@pytest.mark.parametrize("name", PROMPTS)
def test_no_names_at_all(name):
    method = get_method(name)(make_backbone())
    assert method.encode_classes([]).weight.shape == (0, method.backbone.dim)


@pytest.mark.parametrize("name", PROMPTS)
def test_the_generator_decides_the_start(name):
    kind = get_method(name)
    facts = TaskFacts("shapes", "all_to_all", 4, 3, 12)
    states = [
        kind(
            make_backbone(),
            kind.published_config(facts),
            generator=torch.Generator().manual_seed(seed),
        ).learned_state()
        for seed in (1, 1, 2)
    ]
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    random = name not in ("kgcoop", "prograd")
    assert any(not torch.equal(states[0][k], states[2][k]) for k in states[0]) == random
