"""The example in CONTRIBUTING.md is a method like any other."""

import re
import sys
from pathlib import Path

import pytest
import test_contract as contract

import shotfit.methods

PAGE = Path(__file__).parent.parent / "CONTRIBUTING.md"


@pytest.fixture
def feature_shift(tmp_path, monkeypatch):
    code, *_ = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(code.splitlines()) <= 45
    (tmp_path / "feature_shift.py").write_text(code)
    monkeypatch.setattr(shotfit.methods, "__path__", [*shotfit.methods.__path__, str(tmp_path)])
    yield "feature_shift"
    sys.modules.pop("shotfit.methods.feature_shift", None)


def test_the_example_passes_the_contract(feature_shift, task):
    assert feature_shift in shotfit.methods.list_methods()
    checks = [
        contract.test_docstring_cites,
        contract.test_config_round_trips_and_refuses_unknown_options,
        contract.test_published_training_is_complete,
        contract.test_shared_budget,
    ]
    for check in checks:
        check(feature_shift)
    checks = [
        contract.test_embeddings_are_finite_unit_vectors,
        contract.test_columns_follow_names,
        contract.test_starts_at_zero_shot_where_it_says_so,
        contract.test_only_what_requires_gradient_changes,
        contract.test_same_seed_same_curve_and_global_random_state_untouched,
        contract.test_evaluation_is_deterministic_and_leaves_no_trace,
        contract.test_restores_without_data,
        contract.test_second_stage,
        contract.test_two_stage_recipe_runs,
    ]
    for check in checks:
        check(feature_shift, task)
