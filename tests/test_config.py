"""Strict configs: round trips, conversions, did-you-mean."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pytest

from shotfit.config import Must, Size, digest, from_dict, override, read_yaml, to_dict
from shotfit.errors import UsageError
from shotfit.experiment import Experiment
from shotfit.methods import method_key, published_names
from shotfit.methods.published import TaskFacts
from shotfit.plan import plan
from shotfit.recipe import Overrides, Recipe, Stage, named_recipe, two_stage


@dataclass(frozen=True)
class Inner:
    rate: float = 0.1


Half = Annotated[float, Must("lie in the half", lambda value: value <= 0.5)]


@dataclass(frozen=True)
class Options:
    count: int = 3
    size: Size = 1
    kind: Literal["a", "b"] = "a"
    ratio: float | None = None
    names: tuple[str, ...] = ()
    inner: Inner = field(default_factory=Inner)
    extra: dict[str, Any] = field(default_factory=dict)
    flag: bool = False
    share: Half | None = None
    shares: tuple[Half, ...] = ()


def test_round_trip():
    options = Options(4, 1, "b", 0.5, ("x", "y"), Inner(2.0), {"k": 1}, True)
    assert from_dict(Options, to_dict(options)) == options


def test_strings_are_parsed_as_a_command_line_gives_them():
    options = override(Options(), {"count": "7", "ratio": "1e-3", "names": "a, b", "flag": "true"})
    assert options == Options(7, 1, "a", 1e-3, ("a", "b"), Inner(), {}, True)
    assert override(options, {"ratio": "none"}).ratio is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"cuont": 1}, "Did you mean 'count'"),
        ({"kind": "c"}, "Options.kind"),
        ({"count": 1.5}, "Options.count"),
        ({"count": True}, "Options.count"),
        ({"flag": 1}, "Options.flag"),
        ({"inner": {"rat": 1}}, "Did you mean 'rate'"),
        ({"names": 3}, "must be a list"),
        ({"ratio": "much"}, "Options.ratio"),
        ({"ratio": "nan"}, "finite"),
        ({"count": "inf"}, "finite"),
        ({"ratio": 10**400}, "Options.ratio must be a finite number"),
        ({"count": 10**400}, "Options.count must be a finite number"),
        (
            {"count": 2**53 + 2},
            "Options.count must be a whole number of up to 9,007,199,254,740,992",
        ),
        ({"size": 0}, "Options.size must lie between 1 and 1024, got 0"),
        ({"size": 1025}, "Options.size must lie between 1 and 1024, got 1025"),
        ({"share": 1.5}, "Options.share must lie in the half, got 1.5"),
        ({"shares": "0.1, 2"}, "Options.shares must lie in the half, got 2"),
    ],
)
def test_what_does_not_fit_is_refused(values, message):
    with pytest.raises(UsageError, match=message):
        from_dict(Options, values)


def test_yaml_must_be_a_mapping(tmp_path):
    path = tmp_path / "c.yaml"
    for text in ("- a\n- b\n", "a: [", ""):
        path.write_text(text)
        with pytest.raises(UsageError, match=r"c\.yaml"):
            read_yaml(path)
    with pytest.raises(UsageError, match="missing"):
        read_yaml(tmp_path / "missing.yaml")


def test_identity_follows_the_config():
    assert Experiment().id == Experiment().id == from_dict(Experiment, to_dict(Experiment())).id
    assert Experiment(seed=2).id != Experiment().id
    assert Experiment(recipe=two_stage(first_fraction=0.5)).id != Experiment().id
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})


def test_an_option_is_the_same_run_however_it_is_written():
    runs = {
        Experiment(recipe=Overrides(options={"linear.views": views}).applied(two_stage())).id
        for views in ("none", "None", None)
    }
    assert len(runs) == 1
    numbers = [Overrides(options={"alpha": alpha}).applied(two_stage()) for alpha in ("4", 4)]
    assert numbers[0] == numbers[1]


def test_named_recipes():
    assert named_recipe("2sfs") == two_stage()
    assert named_recipe("zero-shot") == Recipe((Stage("zero_shot"),))
    trained_keys = Recipe((Stage("tip_adapter", {"finetune": True}),), budget="shared")
    assert named_recipe("tip-adapter-f", budget="shared") == trained_keys
    with pytest.raises(UsageError, match="Did you mean 'layernorm'"):
        named_recipe("layer-norms")
    with pytest.raises(UsageError, match="Did you mean 'layernorm'"):
        named_recipe("2sfs:layernom")


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("CoOp", "coop"),
        ("clip-LoRA", "clip_lora"),
        ("PLOT++", "plot_pp"),
        ("lp++", "lp_pp"),
        ("Tip-Adapter-F", "tip_adapter_f"),
        ("2SFS:CLIP-LoRA", "2sfs:clip_lora"),
        ("Zero-shot CLIP", "zero_shot"),
    ],
)
def test_methods_may_be_written_as_papers_write_them(written, name):
    assert named_recipe(written) == named_recipe(name)


def test_every_label_is_a_name():
    for name, entry in published_names().items():
        assert method_key(entry.label) == method_key(name) == name


def test_a_config_of_aliases_is_refused_and_not_written_out(tmp_path):
    path = tmp_path / "config.yaml"
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    path.write_text("\n".join(lines))
    with pytest.raises(UsageError, match="aliases") as caught:
        read_yaml(path)
    assert len(str(caught.value)) < 300


def test_a_config_without_an_end_is_refused(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("a: " + "[" * 100_000)
    with pytest.raises(UsageError, match="nested more than 50 deep"):
        read_yaml(path)


def test_an_option_of_the_training_says_where_it_belongs():
    recipe = Overrides(options={"lr": "3"}).applied(two_stage())
    facts = TaskFacts("pets", "all_to_all", 4, 3, 12)
    with pytest.raises(UsageError, match=r"not of layernorm: training\.lr"):
        plan(recipe, facts)
