"""The table of costs says how it was measured."""

from argparse import Namespace

import iterations


def test_the_table_names_its_command_and_its_ratios():
    seconds = {"layernorm": [0.1, 0.2, 0.1], "tip_adapter_f": [0.04, 0.1, 0.06]}
    options = Namespace(batch_size=32, task="food", rounds=3)
    text = iterations.table(seconds, options, ["--rounds", "3"])
    assert text.startswith("`python benchmarks/iterations.py --rounds 3`:")
    assert "median of 3 rounds" in text
    # The median of 0.4, 0.5 and 0.6, where the quotient of the medians is 0.6.
    assert "| tip_adapter_f | 60.0 | 0.50 |" in text
    assert "not the quotient" in text


def test_the_tip_adapter_that_has_iterations_is_named(monkeypatch):
    monkeypatch.setattr(iterations, "list_methods", lambda: ["tip_adapter"])
    options = Namespace(task="digits", batch_size=4, rounds=1, iterations=2)
    assert list(iterations.measure(options)) == ["tip_adapter_f"]
