"""The table of how often `instant` encodes: by value, and no cell made twice."""

import json

import instant


def test_the_table_by_value_and_nothing_twice(tmp_path, monkeypatch):
    asked = []

    def measured(task, shots, seed, passes):
        asked.append((shots, passes, task))
        if task == "digits":
            return {}
        found = {"base": 60.0 + passes + seed, "novel": 70.0, "harmonic_mean": 0, "joint": 50.0}
        return {**found, "processor_seconds": 0.5 * passes}

    monkeypatch.setattr(instant, "measured", measured)
    monkeypatch.setattr(instant, "PASSES", {4: (1, 2)})
    words = ["--tasks", "food", "digits", "--results", str(tmp_path / "cells.json")]
    instant.main(words)
    assert asked == [
        (4, passes, task) for _ in (1, 2) for task in ("food", "digits") for passes in (1, 2)
    ]
    instant.main(words)
    assert len(asked) == len(json.loads((tmp_path / "cells.json").read_text())) == 8
    page = tmp_path / "page.md"
    page.write_text("<!-- instant -->\n<!-- /instant -->\n")
    instant.main([*words, "--write", str(page)])
    # Base 63.5, and the harmonic mean of that and 70.
    assert "| 4 | 2 | 8 | 2 | 63.5 | 70.0 | 66.6 | 50.0 | 1.0 |" in page.read_text()


def test_the_preset_is_timed_on_a_shape():
    header, _, row = instant.timed(["tiny"], 1, classes=3, shots=2).splitlines()
    assert header == "| model | seconds, 1 threads |" and row.startswith("| tiny | ")
