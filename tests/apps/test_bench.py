"""`shotfit bench` in this process: the plan, the runs, what it prints and its exit codes."""

import json

import pytest

from shotfit.records import load_records


@pytest.fixture
def grid(checkpoint, tmp_path):
    return (
        "bench --methods 2sfs zero_shot --datasets animals --shots 1 --seeds 1,2 --setting "
        f"all_to_all --iters-per-shot 2 --backbones {checkpoint} --results {tmp_path / 'r'}"
    ).split()


def test_plan_then_run_then_nothing_to_do(shotfit, grid, tmp_path):  # noqa: F811
    code, out, _ = shotfit(*grid, "--dry-run")
    assert code == 0
    assert "4 runs: 0 done, 0 failed, 4 to run." in out
    assert "rough" in out
    assert not (tmp_path / "r").exists()
    code, out, err = shotfit(*grid)
    assert code == 0, err
    assert "4 of 4 runs done" in out
    assert err.count("\n") == 4
    assert "4/4 (4 done, 0 failed, 0 running)" in err
    assert len(load_records(tmp_path / "r")) == 4
    code, out, err = shotfit(*grid)
    assert (code, err) == (0, "")
    assert "Nothing was missing" in out
    code, out, _ = shotfit(*grid, "--seeds", "3", "--dry-run", "--json")
    plan = json.loads(out)
    assert (plan["done"], len(plan["to_run"])) == (4, 2)
    assert {run["basis"] for run in plan["to_run"]} == {"same run"}


def test_a_failed_run_is_told_and_the_exit_code_is_one(shotfit, grid, monkeypatch):  # noqa: F811
    def broken(*_, **__):
        raise FloatingPointError("the loss is nan")

    with monkeypatch.context() as patch:
        patch.setattr("shotfit.bench.runner.run", broken)
        code, out, err = shotfit(*grid)
    assert code == 1
    assert "0 of 4 runs done" in out
    assert "the loss is nan" in err
    assert "--retry-failed" in err
    assert shotfit(*grid, "--retry-failed", "--quiet")[0] == 0


def test_bad_input_has_its_exit_code_and_leaves_the_records(shotfit, grid, tmp_path):  # noqa: F811
    assert shotfit(*grid, "--quiet")[0] == 0
    kept = load_records(tmp_path / "r")
    for code, words in [
        (2, ["--datasets", "animal"]),
        (2, ["--methods", "2sfz"]),
        (3, ["--datasets", "dtd", "--root", "/nowhere"]),
        (3, ["--seeds", "9", "--ray", "127.0.0.1:9"]),
    ]:
        assert shotfit(*grid, *words)[0] == code, words
    assert load_records(tmp_path / "r") == kept
    (tmp_path / "r" / "000000000000.json").write_text('{"schema": 0}')
    code, _, err = shotfit(*grid)
    assert code == 3
    assert "000000000000.json" in err
