"""The benchmark of speed: it counts what is needed, runs every case, and shows what it records."""

import json
import time

import pytest
import torch
from speed import figure
from speed.__main__ import main
from speed.cases import first_stage
from speed.flops import needed_flops
from speed.measuring import Row, Series, Settings, compared, exponent, line, speedup
from speed.ours import first_classes, tokenized_prompts
from speed.shapes import SHAPES, Words, class_names, random_batch, random_clip
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from shotfit.backbone import Backbone
from shotfit.data.sources import load_dataset
from shotfit.data.transforms import ImageSpec
from shotfit.methods.layernorm import LayerNorm

TINY = SHAPES["tiny"]


def tiny_backbone():
    spec = ImageSpec(size=TINY.image, resize=TINY.image)
    return Backbone.from_model(random_clip(TINY), Words(TINY.vocabulary), spec)


def counted(function):
    """Operations of forward and backward as PyTorch counts them: all, and without batched ones."""
    with FlopCounterMode(display=False) as counter:
        function().sum().backward()
    by_operator = counter.get_flop_counts()["Global"]
    plain = sum(by_operator[op] for op in (torch.ops.aten.addmm, torch.ops.aten.mm))
    return counter.get_total_flops(), plain


@pytest.mark.parametrize(("batch", "classes"), [(3, 5), (6, 2)])
def test_needed_operations_are_those_that_are_done(batch, classes):
    """Linear layers and scores; PyTorch counts image attention on a processor as nothing, and
    text attention as batched products of padded prompts."""
    method = LayerNorm(tiny_backbone())
    pixels, labels = random_batch(TINY, batch, classes)
    names = class_names(classes)
    needed = needed_flops(TINY, batch, tokenized_prompts("tiny", classes))
    images, _ = counted(lambda: method.encode_images(pixels))
    text, text_linear = counted(lambda: method.encode_classes(names).weight)
    both, _ = counted(lambda: method.loss(pixels, labels, names).loss)
    assert images == needed.image_linear
    assert text_linear == needed.text_linear
    assert both - images - text == needed.scores


def test_needed_operations_of_attention():
    """Against attention with a mask, counted pair by pair."""
    classes, batch = 5, 3
    prompts = tokenized_prompts("tiny", classes)
    needed = needed_flops(TINY, batch, prompts)
    # A shared prefix of five tokens: the start and "a photo of a".
    seen = {
        (row if place >= 5 else "shared", place): place + 1
        for row, prompt in enumerate(prompts)
        for place in range(len(prompt))
    }
    first = sum(seen.values())
    last = sum(len(prompt) for prompt in prompts)
    assert needed.text_attention == 12 * TINY.text.width * (first + last)
    tokens = TINY.image_tokens
    assert needed.image_attention == batch * 12 * TINY.vision.width * (tokens**2 + tokens)


def test_operations_of_the_published_model_are_those_of_the_design():
    needed = needed_flops(SHAPES["ViT-B/16"], 32, tokenized_prompts("ViT-B/16", 24))
    assert needed.image_linear + needed.image_attention == pytest.approx(2.14e12, rel=0.05)


def test_names_are_different_and_short():
    names = class_names(1000)
    assert len(set(names)) == 1000
    assert not set(names) & set(class_names(1000, seed=1))
    lengths = {len(prompt) for prompt in tokenized_prompts("ViT-B/16", 1000)}
    assert lengths == {8, 9, 10}


def test_sides_compute_the_same():
    from speed.literal_side import _loaded

    request = {"shape": "tiny", "batch": 3, "classes": 4, "device": "cpu"}
    model, ids, (pixels, _) = _loaded(request)
    with torch.no_grad():
        text = F.normalize(model.get_text_features(input_ids=ids).pooler_output, dim=-1)
        ours = LayerNorm(tiny_backbone()).encode_classes(class_names(4)).weight
    assert (ours - text).abs().max() < 1e-5


def test_line_and_exponent():
    assert line([(1, 3.0), (2, 5.0), (4, 9.0)], 10) == (pytest.approx(21), pytest.approx(0))
    assert line([(1, 3.0), (2, 6.0), (3, 7.0)], 4)[1] > 0.05
    assert exponent([(1, 2.0), (10, 200.0)]) == pytest.approx(2)
    assert exponent([(5, 7.0), (10, 14.0), (40, 56.0)]) == pytest.approx(1)


def test_speedup_is_of_rounds_together():
    """A machine that slows down for both in the same round changes no ratio."""
    ours, theirs = Series([[1.0], [10.0], [1.0]]), Series([[3.0], [30.0], [3.0]])
    assert speedup(ours, theirs) == 3


def test_goals_have_a_direction():
    assert Row("x", 1.3, "×", 1.2).met
    assert not Row("x", 1.1, "×", 1.2).met
    assert Row("x", 39, "%", 40, at_least=False).met
    assert not Row("x", 41, "%", 40, at_least=False).met
    assert Row("x", 41, "%").met is None


def test_first_classes():
    dataset = first_classes(load_dataset("demo", name="animals"), 7)
    assert len(dataset.classnames) == 7
    assert {example.label for example in dataset.train} == set(range(7))


PAGE = "# Title\n\n<!-- speed -->\nout of date\n<!-- /speed -->\nrest\n"


@pytest.mark.long
@pytest.mark.xdist_group("machine")
def test_every_case_runs_and_is_shown(tmp_path, capsys):
    results, page, picture = tmp_path / "speed", tmp_path / "page.md", tmp_path / "figure.png"
    page.write_text(PAGE)
    names = ["stage1", "thousand", "stage2", "fit", "names", "predict", "loader", "folder"]
    names += ["embedded", "scaling"]
    main(["--quick", "--threads", "1", "--results", str(results), "--only", *names])
    assert sorted(path.stem for path in results.glob("*.json")) == sorted(names)
    stage1 = json.loads((results / "stage1.json").read_text())
    assert [row["goal"] for row in stage1["rows"]] == [1.2, 75, 1.5, 3, 40]
    assert stage1["hardware"]["processor"]
    assert stage1["environment"]["torch"] == torch.__version__
    folder = json.loads((results / "folder.json").read_text())
    assert 0.5 < folder["rows"][0]["value"] < 2
    # A whole fit is what its parts are.
    stage2, whole = (json.loads((results / f"{n}.json").read_text()) for n in ("stage2", "fit"))
    first = stage1["raw"]["4 classes"]["ours"]["median_seconds"]
    for name, rest in stage2["raw"]["total_seconds"].items():
        if name != "literal":
            assert whole["raw"]["total_seconds"][name] == pytest.approx(2880 * first + rest)
    main(["--table", "--results", str(results), "--page", str(page), "--figure", str(picture)])
    text = page.read_text()
    assert text.startswith("# Title") and text.endswith("rest\n") and "out of date" not in text
    assert text.count("Measured on") == 1
    assert "| ≥ 15 × |" in text
    assert "| ≤ 40 % |" in text
    assert picture.stat().st_size > 10_000


def test_what_does_not_fit_is_extrapolated_and_said_so(monkeypatch):
    monkeypatch.setattr(first_stage, "free_memory_bytes", lambda device: 0)
    settings = Settings(rounds=1, threads=1, device="cpu", precision="fp32", quick=True)
    found = first_stage.stage1(settings, {})
    by_goal = {row.goal: row for row in found.rows}
    for goal in (3.0, 40.0):
        assert "does not fit here: line through 4, 5, 7 classes" in by_goal[goal].note
    extrapolated = found.raw["literal, line"]["seconds"]
    ours = found.raw["25 classes"]["ours"]["median_seconds"]
    assert by_goal[3.0].value == pytest.approx(extrapolated / ours)
    assert "literal" not in found.raw["25 classes"]


def test_quick_numbers_never_land_among_the_records(capsys):
    with pytest.raises(SystemExit):
        main(["--quick", "--only", "names"])
    assert "--results" in capsys.readouterr().err


def test_fit_without_its_parts_says_what_to_do(tmp_path, capsys):
    main(["--quick", "--threads", "1", "--results", str(tmp_path), "--only", "fit"])
    assert "stage1 and stage2" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


@pytest.mark.long
@pytest.mark.slow
def test_sides_are_processes_of_their_own():
    settings = Settings(rounds=2, threads=1, device="cpu", precision="fp32")
    options = {"shape": "tiny", "batch": 2, "classes": 3}
    ours, theirs = (settings.open(side, "predict", **options) for side in ("ours", "literal_side"))
    started = time.perf_counter()
    fast, slow = compared(ours, theirs, (2, 1), 2)
    spent = time.perf_counter() - started
    assert [len(part) for part in fast.rounds] == [2, 2]
    assert [len(part) for part in slow.rounds] == [1, 1]
    assert fast.peak_bytes >= fast.loaded_bytes > 50e6
    assert 0 < sum(map(sum, fast.rounds)) < spent


@pytest.mark.slow
def test_a_process_that_dies_is_an_error():
    settings = Settings(rounds=1, threads=1, device="cpu", precision="fp32")
    with pytest.raises(RuntimeError, match="has ended"):
        settings.open("ours", "no such job").__enter__()


def test_figure_needs_something_to_show(tmp_path):
    figure.draw({}, tmp_path / "figure.png")
    assert not (tmp_path / "figure.png").exists()
