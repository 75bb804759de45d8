"""`make bench-smoke`: two methods, two tasks, two seeds on Ray; killed once, resumed, shown."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shotfit.records import load_records

SOURCE = Path(__file__).parents[2] / "src"
PATIENCE = 600


@pytest.mark.xdist_group("machine")
@pytest.mark.long
def test_a_killed_grid_is_resumed(checkpoint, tmp_path):
    pytest.importorskip("ray")
    pytest.importorskip("matplotlib")
    results = tmp_path / "results"
    command = [sys.executable, "-m", "shotfit", "bench", "--methods", "2sfs", "zero_shot"]
    command += ["--datasets", "animals,digits", "--seeds", "1", "2", "--shots", "1"]
    command += ["--iters-per-shot", "4", "--backbones", str(checkpoint)]
    command += ["--results", str(results), "--json", "--ray"]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    errors = tmp_path / "errors.txt"
    with (
        errors.open("w") as stream,
        subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=stream
        ) as killed,
    ):
        until = time.monotonic() + PATIENCE
        while len(list(results.rglob("*.json"))) < 2 and time.monotonic() < until:
            assert killed.poll() is None, errors.read_text()
            time.sleep(0.02)
        killed.kill()
    before = {path: path.stat().st_mtime_ns for path in results.rglob("*.json")}
    assert 2 <= len(before) < 8
    out = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert out.returncode == 0, out.stderr
    summary = json.loads(out.stdout)
    assert (summary["runs"], summary["done"], summary["failed"]) == (8, 8, 0)
    lines = [line for line in out.stderr.splitlines() if line.strip()]
    assert len(lines) == 8 - len(before), f"only a line a run: {out.stderr}"
    assert all(path.stat().st_mtime_ns == then for path, then in before.items())
    assert len(load_records(results)) == 8
    page, figure = tmp_path / "table.html", tmp_path / "ranking.png"
    for words in (
        ["table", "suite", "--format", "html", "--out", str(page)],
        ["plot", "ranking", "--out", str(figure)],
    ):
        command = [sys.executable, "-m", "shotfit", *words, "--results", str(results)]
        subprocess.run(command, env=environment, check=True, timeout=PATIENCE)
    text = page.read_text(encoding="utf-8")
    assert "2SFS (LayerNorm)" in text and "Average of 2 tasks" in text
    assert figure.read_bytes().startswith(b"\x89PNG") and figure.stat().st_size > 5000
