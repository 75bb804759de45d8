"""How a fit is carried out: flags that change its cost and not its result, and its profile."""

import json
import shutil
from typing import Any

import pytest
import torch
import yaml
from conftest import make_backbone, make_support

from shotfit.adaptation import adapt
from shotfit.apps import cli
from shotfit.apps import fit as fitting
from shotfit.apps.fit_options import FitOptions
from shotfit.backbone import model as backbone_module
from shotfit.config import from_dict
from shotfit.errors import UsageError
from shotfit.methods.layernorm import LayerNorm
from shotfit.methods.published import TaskFacts, TrainConfig
from shotfit.observers.profiling import RECORDED, Profile
from shotfit.plan import plan
from shotfit.recipe import Stage, one_stage, two_stage
from shotfit.training.execution import check_compiler, determinism, quick_precision
from shotfit.training.loop import train

FACTS = TaskFacts("shapes", "base_to_novel", shots=4, classes=3, images=12)


def configs(**choices):
    """The training of every stage, as the command's options ask for it."""
    recipe = FitOptions(data="animals", **choices).experiment().recipe
    return [training for _, _, trainings in plan(recipe, FACTS) for training in trainings]


def test_flags_reach_the_training_of_every_stage():
    plain = configs()
    assert len(plain) == 2
    for training in plain:
        assert training.precision == "fp32"
        assert training.micro_batch is None
        assert not training.checkpointing
        assert not training.compile
    changed = configs(precision="bf16", micro_batch="8", checkpointing=True, compile=True)
    for training in changed:
        assert training.precision == "bf16"
        assert training.micro_batch == 8
        assert training.checkpointing
        assert training.compile
    assert [t.micro_batch for t in configs(micro_batch="auto")] == ["auto", "auto"]
    # The long way of saying the same gives the same run.
    long = FitOptions(data="animals", option=["training.precision=bf16"]).experiment()
    assert FitOptions(data="animals", precision="bf16").experiment().id == long.id
    assert FitOptions(data="animals").experiment().id != long.id


@pytest.mark.parametrize(("known", "expected"), [(True, "bf16"), (False, "fp32")])
def test_the_quick_precision_is_that_which_the_device_has_instructions_for(
    monkeypatch, known, expected
):
    monkeypatch.setattr("torch.cpu._is_avx512_bf16_supported", lambda: known)
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda including_emulation: not known)
    assert quick_precision(torch.device("cpu")) == expected
    assert quick_precision(torch.device("cuda")) == ("fp32" if known else "bf16")


def test_compiling_for_a_processor_wants_one_of_the_compilers_that_torch_takes(monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    for there in ("g++", "clang++", "c++", "own++"):
        if there == "own++":
            monkeypatch.setenv("CXX", there)
        monkeypatch.setattr(shutil, "which", lambda name, there=there: name == there)
        check_compiler(torch.device("cpu"))
    monkeypatch.setattr(shutil, "which", lambda name: False)
    with pytest.raises(UsageError, match="needs a C"):
        check_compiler(torch.device("cpu"))
    check_compiler(torch.device("cuda"))


def test_options_of_both_stages_are_kept_apart():
    options = ["norms=all", "linear.views=4"]
    chosen = FitOptions(data="animals", option=options, precision="fp16")
    first, second = chosen.experiment().recipe.stages
    assert first == Stage("layernorm", {"norms": "all"}, {"precision": "fp16"})
    assert second == Stage("linear", {"views": 4}, {"precision": "fp16"})


@pytest.mark.parametrize(
    ("choices", "message"),
    [({"precision": "fp8"}, "bf16"), ({"micro_batch": "many"}, "micro_batch")],
)
def test_wrong_values_are_refused(choices, message):
    with pytest.raises(UsageError, match=message):
        configs(**choices)


def test_determinism_is_on_inside_and_undone():
    options: Any = torch.utils.deterministic
    filling = options.fill_uninitialized_memory
    with pytest.raises(ZeroDivisionError), determinism():
        assert torch.are_deterministic_algorithms_enabled()
        assert not options.fill_uninitialized_memory
        _ = 1 / 0
    assert not torch.are_deterministic_algorithms_enabled()
    assert options.fill_uninitialized_memory == filling
    with determinism(False):
        assert not torch.are_deterministic_algorithms_enabled()


def losses(task, **changes):
    method = LayerNorm(make_backbone())
    config = TrainConfig(iterations=4, batch_size=5, **changes)
    return [step.loss for step in train(method, make_support(task), config)]


def test_deterministic_kernels_exist_for_a_whole_fit(task):
    expected = losses(task)
    with determinism():
        assert losses(task) == expected
        adapt(make_backbone(), make_support(task), two_stage(iters_per_shot=2), FACTS)


# PyTorch's compiler warns of what PyTorch itself does: imports it deprecates, gradients it reads.
@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
def test_compiled_blocks_give_the_same_losses(task):
    if not any(map(shutil.which, ("g++", "clang++", "c++"))):
        pytest.skip("no C++ compiler")
    torch.compiler.reset()
    counted = torch._dynamo.utils.counters["stats"]
    before = counted["unique_graphs"]
    compiled = losses(task, compile=True)
    # Compiled indeed, and for all blocks at once, not one by one.
    assert 0 < counted["unique_graphs"] - before <= 8
    expected = losses(task)
    assert compiled == pytest.approx(expected, rel=1e-4)
    recomputed = losses(task, compile=True, checkpointing=True)
    assert recomputed == pytest.approx(expected, rel=1e-4)
    blocks = make_backbone().vision.blocks
    assert all(block._compiled_call_impl is None for block in blocks)


def test_profile_names_where_time_goes(task, tmp_path):
    recipe = two_stage(iters_per_shot=8)
    recording = Profile([stage.method for stage in recipe.stages])
    plain, watched = [], []
    adapt(
        make_backbone(),
        make_support(task),
        recipe,
        FACTS,
        observe=lambda method, stage, step: plain.append(step.loss),
    )

    def observe(method, stage, step):
        watched.append(step.loss)
        recording(method, stage, step)

    adapt(make_backbone(), make_support(task), recipe, FACTS, observe=observe)
    recording.finish()
    assert watched == plain
    first, second = recording.stages
    assert (first.name, second.name) == ("stage 1: layernorm", "stage 2: linear")
    assert (first.total_updates, second.total_updates) == (19, 13)
    assert first.updates == second.updates == RECORDED
    assert first.components["text tower"] > 0
    # The second stage trains a linear layer: names are embedded before it, images in it.
    assert second.components["text tower"] == 0
    assert second.components["image tower"] > 0
    for stage in recording.stages:
        assert stage.components["backward"] > 0
        assert sum(stage.components.values()) == pytest.approx(stage.seconds, rel=0.01)
        names = [name for name, _, _ in stage.operators]
        assert "aten::addmm" in names
    assert "stage 2: linear" in recording.table()
    recording.save_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {"image tower", "text tower"} <= {event.get("name") for event in events}


@pytest.mark.long
def test_profile_counts_text_in_chunks(task, tmp_path, monkeypatch):
    """Each chunk as the text tower, and what is computed again as part of the backward pass."""
    backbone = make_backbone()
    # A prompt a chunk; only the first is kept for the gradient.
    monkeypatch.setattr(backbone_module, "TEXT_BYTES", 8 * backbone.text.token_bytes)
    recording = Profile(["layernorm"])
    recipe = one_stage("layernorm", iters_per_shot=3, budget="shared")
    adapt(backbone, make_support(task), recipe, FACTS, observe=recording)
    recording.finish()
    (stage,) = recording.stages
    recording.save_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = [event["name"] for event in events if event.get("cat") == "user_annotation"]
    assert names.count("image tower") == stage.updates
    assert names.count("text tower") == 3 * stage.updates


def test_profile_of_a_fit_too_short_to_record(task):
    recording = Profile(["layernorm", "linear"])
    recipe = two_stage(iters_per_shot=1, first_fraction=0.3)
    adapt(make_backbone(), make_support(task), recipe, FACTS, observe=recording)
    recording.finish()
    assert [stage.total_updates for stage in recording.stages] == [3]


@pytest.mark.long
def test_fit_carries_out_what_its_flags_say(tmp_path, monkeypatch, capsys):
    inside = []

    def watched(*arguments, **options):
        inside.append(torch.are_deterministic_algorithms_enabled())
        return run(*arguments, **options)

    run = fitting.run
    monkeypatch.setattr(fitting, "run", watched)
    trace = tmp_path / "trace.json"
    words = ["fit", "smileys", "--shots", "1", "--iters-per-shot", "8", "-q", "--json"]
    words += ["--precision", "bf16", "--micro-batch", "5", "--checkpointing", "--deterministic"]
    words += ["--trace", str(trace), "--out", str(tmp_path / "model")]
    monkeypatch.setattr("sys.argv", ["shotfit", *words])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert not stop.value.code
    printed = json.loads(capsys.readouterr().out)
    assert inside == [True]
    assert not torch.are_deterministic_algorithms_enabled()
    for stage in printed["record"]["experiment"]["recipe"]["stages"]:
        expected = {"precision": "bf16", "micro_batch": 5, "checkpointing": True}
        assert stage["training"] == expected
    assert [stage["name"] for stage in printed["profile"]] == [
        "stage 1: layernorm",
        "stage 2: linear",
    ]
    assert json.loads(trace.read_text())["traceEvents"]
    # The folder's config repeats the run.
    resolved = yaml.safe_load((tmp_path / "model" / "config.yaml").read_text())
    assert from_dict(FitOptions, resolved).experiment().id == printed["record"]["id"]
    assert resolved["deterministic"] is True
