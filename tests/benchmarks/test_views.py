"""The study of cached views: cells share a first stage, and the table says what records say."""

import json

import pytest
import views


def made_up(task, seed, losses):
    """A record in which so many views lose so many points to fresh images."""
    variants = [
        {
            "views": count,
            "seconds": 10.0 if count is None else 0.1 * count,
            "novel": 50.0,
            **dict.fromkeys(("base", "joint"), 60.0 + seed - losses.get(count, 0.0)),
            # Never averaged: harmonic means are those of averages.
            "harmonic_mean": 1.0,
        }
        for count in views.VIEWS
    ]
    options = {"shots": 4, "iters_per_shot": 300, "precision": "bf16", "threads": 1}
    return {"task": task, "seed": seed, "options": options, "variants": variants}


def test_enough_views_are_those_that_lose_nothing_from_there_on():
    losses = {1: 6.0, 2: 3.0, 4: 0.1, 8: 0.0, 16: 0.1, 32: 0.0}
    records = [made_up(task, seed, losses) for task in "abc" for seed in (1, 2)]
    assert views.enough(records) == 4
    gained = views.differences(records, 2, "base")
    assert (gained.mean, gained.half_width) == (pytest.approx(-3), pytest.approx(0))
    # Base is 61.5 with fresh images and 58.5 with two views, novel 50.
    gained = views.differences(records, 2, "harmonic_mean")
    assert gained.mean == pytest.approx(2 * 58.5 * 50 / 108.5 - 2 * 61.5 * 50 / 111.5)
    assert gained.half_width == pytest.approx(0)
    assert "| 2 | 58.50 | 53.92 | 58.50 | -3.00 ± 0.00 | -1.24 ± 0.00 |" in views.table(records)
    # A number of views that loses above one that does not is no reason to stop there.
    records = [made_up(task, 1, {**losses, 8: 2.0}) for task in "abc"]
    assert views.enough(records) == 16
    assert views.enough([made_up(task, 1, {32: 1.0}) for task in "abc"]) is None


def test_doubt_counts_against_a_number_of_views():
    """The same mean on tasks that disagree is not evidence enough."""
    records = [made_up(task, 1, {1: loss}) for task, loss in zip("abc", (-9, 0, 9), strict=True)]
    gained = views.differences(records, 1, "base")
    assert gained.mean == pytest.approx(0)
    assert gained.half_width is not None and gained.half_width > 10
    assert views.enough(records) == 2


def test_cells_are_kept_shown_and_not_run_again(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(views, "VIEWS", (None, 1, 2))
    results, page = tmp_path / "views", tmp_path / "page.md"
    command = ["--results", str(results), "--tasks", "smileys", "digits", "--seeds", "1"]
    command += ["--iters-per-shot", "3", "--shots", "1"]
    views.main(command)
    written = sorted(results.glob("*.json"))
    assert [path.stem for path in written] == ["digits-seed1", "smileys-seed1"]
    record = json.loads(written[0].read_text())
    assert [part["views"] for part in record["variants"]] == [None, 1, 2]
    # Names that were never trained on are the shared first stage's business.
    assert len({part["novel"] for part in record["variants"]}) == 1
    before = [path.stat().st_mtime_ns for path in written]
    views.main(command)
    assert [path.stat().st_mtime_ns for path in written] == before
    page.write_text("top\n<!-- views -->\nold\n<!-- /views -->\nend\n")
    views.main(["--results", str(results), "--write", str(page)])
    text = page.read_text()
    assert text.startswith("top") and text.endswith("end\n") and "old" not in text
    assert "| fresh |" in text and "| 2 |" in text
    assert "2 runs on 2 tasks" in text
