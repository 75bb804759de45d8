"""The pages of claims and dynamics are those of the committed records."""

from pathlib import Path

import claims

from shotfit.data.sources.demo import list_tasks
from shotfit.records import load_records
from shotfit.records.dynamics import DynamicsPoint, LearningDynamics

REPOSITORY = Path(__file__).parents[2]


def test_the_pages_are_those_of_the_records():
    found = claims.curves(REPOSITORY / "results" / "dynamics")
    there = claims.DYNAMICS.read_text(encoding="utf-8")
    assert claims.page_of_dynamics(there, found) == there
    names = ("suite", "shifted", "sweeps")
    records = (load_records(REPOSITORY / "results" / name) for name in names)
    there = claims.CLAIMS.read_text(encoding="utf-8")
    assert claims.page_of_claims(there, found, *records) == there
    assert all((task, "layernorm") in found for task in list_tasks())


def curve(task, method, seed, novel):
    points = tuple(
        DynamicsPoint(20 * number, 50.0 + number, value) for number, value in enumerate(novel)
    )
    return LearningDynamics("0", {}, task, method, seed, 20, points)


def test_patterns_are_those_of_mean_curves():
    rises = [40.0 + 2 * min(n, 10) - max(0, n - 15) for n in range(31)]
    falls = [40.0 - n for n in range(31)]
    found = {
        ("a", "layernorm"): [curve("a", "layernorm", seed, rises) for seed in (1, 2, 3)],
        ("b", "layernorm"): [curve("b", "layernorm", 1, falls)],
        ("a", "lora"): [curve("a", "lora", seed, falls) for seed in (1, 2)],
    }
    text = claims.phases(found, ["a", "b"])
    assert "| task | LayerNorm | LoRA |" in text
    assert "| b | falling, 1 seed | – |" in text
    assert "falling, 2 seeds" in text and "| a | two phases at 2" in text
    assert "above zero-shot on 1 of 2 tasks, and falls again while base accuracy" in text
    # The mean of a rise and an equal fall neither rises nor falls.
    mixed = [rises, [80.0 - value for value in rises]]
    both = [curve("a", "layernorm", n, one) for n, one in enumerate(mixed)]
    assert claims.broken(both).pattern == "falling"
